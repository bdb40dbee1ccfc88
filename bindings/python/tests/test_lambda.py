"""The example of a Lambda function does what it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import sluice
from sluice.testkit import sandbox

from conftest import _command
from fake_vendor import served

EXAMPLE = Path(__file__).parents[1] / "examples" / "lambda_function.py"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="openai 3 needs Python 3.11")
def test_what_does_not_fit_goes_back_into_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    # The buckets of openai are those of other tests, too.
    with sandbox(_command()) as table, served() as vendor:
        environment = {**table.variables, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{vendor.base_url}/v1"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with sluice.Client.from_env() as client:
            client.ops.remove_bucket("openai#tpm")
            client.ops.remove_bucket("openai#rpm")
            client.ops.apply_limit("openai#rpm", sluice.Limit.requests(2, per=86_400.0))
        spec = importlib.util.spec_from_file_location("lambda_function", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        function = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(function)
        records = [{"messageId": str(number), "body": "Hello"} for number in range(3)]
        assert function.handler({"Records": records}, None) == {"batchItemFailures": [{"itemIdentifier": "2"}]}
        assert len(vendor.seen) == 2
        function.openai.close()
