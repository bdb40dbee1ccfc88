"""LangChain's rate limiter."""

from __future__ import annotations

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

import sluice
from sluice.langchain import RateLimiter

from conftest import Declare


async def test_a_model_of_langchain_waits_for_its_buckets(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(3, per=300))
    limiter = RateLimiter(rpm, client=client, max_wait=1)
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello")] * 4), rate_limiter=limiter)
    assert model.invoke("Hello").content == "Hello"
    assert (await model.ainvoke("Hello")).content == "Hello"
    assert limiter.acquire(blocking=False)
    assert not limiter.acquire(blocking=False)
    assert not await limiter.aacquire(blocking=False)
    with pytest.raises(sluice.RefusedError):
        model.invoke("Hello")
    with pytest.raises(sluice.RefusedError):
        await model.ainvoke("Hello")
