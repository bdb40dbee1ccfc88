"""A Lambda function behind SQS: each message is a call to the vendor. What does not fit now, or fails, comes again."""

from __future__ import annotations

from typing import Any

from openai import APIError, DefaultHttpx2Client, OpenAI

import sluice.httpx2

# Outside of the handler: it lives as long as the function's environment, also while that is frozen.
transport = sluice.httpx2.Transport("openai", client=sluice.Client.from_env(), patience=5)
openai = OpenAI(http_client=DefaultHttpx2Client(transport=transport), max_retries=0, timeout=20)


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    failed = []
    for record in event["Records"]:
        try:
            openai.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": record["body"]}])
        except (APIError, sluice.Error):  # a refusal, a timeout, an error: this message comes again, the others do not
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}
