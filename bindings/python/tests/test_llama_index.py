"""LlamaIndex's rate limiter."""

from __future__ import annotations

import pytest
from llama_index.core.llms import MockLLM

import sluice
from sluice.llama_index import RateLimiter

from conftest import Declare, used_up_but_for


async def test_a_model_of_llama_index_waits_for_its_buckets(client: sluice.Client, declare: Declare) -> None:
    # The model for tests makes an awaited call through the other form, and so takes twice.
    rpm = declare(sluice.Limit.requests(3, per=300))
    model = MockLLM()
    model.rate_limiter = RateLimiter(rpm, client=client, max_wait=1)
    assert model.complete("Hello").text == "Hello"
    assert (await model.acomplete("Hello")).text == "Hello"
    with pytest.raises(sluice.RefusedError):
        model.complete("Hello")
    with pytest.raises(sluice.RefusedError):
        await model.acomplete("Hello")


async def test_a_share_pays_for_a_model_of_llama_index(client: sluice.Client, declare: Declare) -> None:
    rpm = used_up_but_for(client, declare, "chat")
    with pytest.raises(sluice.RefusedError):
        RateLimiter(rpm, client=client, max_wait=1).acquire()
    limiter = RateLimiter(rpm, share="chat", client=client, max_wait=1)
    limiter.acquire()
    await limiter.async_acquire()
