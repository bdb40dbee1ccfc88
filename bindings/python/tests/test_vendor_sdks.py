"""The packages `openai` and `anthropic`, with one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from test_transport import Buckets

import sluice

from conftest import Declare
from fake_vendor import Vendor, served

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import anthropic
    import openai

    import sluice.httpx2

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="they need httpx2, which needs Python 3.11")


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with served() as vendor:
        yield vendor


@pytest.fixture
def buckets(client: sluice.Client, declare: Declare) -> Buckets:
    return Buckets(client, declare)


def _openai(vendor: Vendor, buckets: Buckets) -> openai.OpenAI:
    transport = sluice.httpx2.Transport(buckets.vendor, client=buckets.client, ask_usage=True)
    http_client = openai.DefaultHttpx2Client(transport=transport)
    return openai.OpenAI(api_key="k", base_url=f"{vendor.base_url}/v1", http_client=http_client)


def _ask(client: openai.OpenAI, user: str = "answer") -> str | None:
    asked = client.chat.completions.create(
        model="m", max_tokens=400, user=user, messages=[{"role": "user", "content": "Hello"}]
    )
    return asked.choices[0].message.content


def test_openai_is_limited_and_settled(vendor: Vendor, buckets: Buckets) -> None:
    with _openai(vendor, buckets) as client:
        assert _ask(client) == "Hello"
        assert buckets.become(1, 50, 0)
        stream = client.chat.completions.create(
            model="m", max_tokens=400, stream=True, messages=[{"role": "user", "content": "Hello"}]
        )
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == "Hel"
        assert buckets.become(2, 100, 0)


def test_each_attempt_of_openai_is_admitted_after_the_cool_down(vendor: Vendor, buckets: Buckets) -> None:
    with _openai(vendor, buckets) as client:
        assert _ask(client, "refuse once") == "Hello"
    assert len(vendor.seen) == 2
    assert buckets.become(2, 50, 0)


def test_openai_raises_its_own_error_beyond_the_patience(
    vendor: Vendor, client: sluice.Client, declare: Declare
) -> None:
    rpm = declare(sluice.Limit.requests(1, per=1_000))
    transport = sluice.httpx2.Transport("acme", client=client, buckets=[rpm], patience=1)
    http_client = openai.DefaultHttpx2Client(transport=transport)
    with openai.OpenAI(
        api_key="k", base_url=f"{vendor.base_url}/v1", http_client=http_client, max_retries=0
    ) as limited:
        assert _ask(limited) == "Hello"
        with pytest.raises(openai.RateLimitError, match=r"Sluice: .* the call was not made"):
            _ask(limited)
    assert len(vendor.seen) == 1


async def test_anthropic_is_limited_and_settled(vendor: Vendor, buckets: Buckets) -> None:
    transport = sluice.httpx2.AsyncTransport(buckets.vendor, client=buckets.client)
    http_client = anthropic.DefaultAsyncHttpxClient(transport=transport)
    async with anthropic.AsyncAnthropic(api_key="k", base_url=vendor.base_url, http_client=http_client) as client:
        message = await client.messages.create(
            model="m", max_tokens=400, messages=[{"role": "user", "content": "Hello"}]
        )
        assert message.usage.output_tokens == 20
        assert buckets.become(1, 50, 0)
