"""Pydantic AI's limiter."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sluice
from sluice.pydantic_ai import Limiter

from conftest import Declare, eventually, level, used_up_but_for


async def test_a_model_of_pydantic_ai_holds_its_slots(client: sluice.Client, declare: Declare) -> None:
    slots, rpm = declare(sluice.Limit.concurrent(2), "concurrent"), declare(sluice.Limit.requests(7, per=1_000))
    at_once = most = 0

    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return ModelResponse(parts=[TextPart("Hello")])

    limiter = Limiter(slots, rpm, client=client, max_wait=5)
    agent = Agent(ConcurrencyLimitedModel(FunctionModel(answer), limiter))
    replies = await asyncio.gather(*(agent.run("Hello") for _ in range(7)))
    assert [reply.output for reply in replies] == ["Hello"] * 7
    assert most == 2
    with pytest.raises(sluice.RefusedError):
        await agent.run("Hello")
    assert eventually(lambda: level(client, slots) == 2)


async def test_a_share_pays_for_a_model_of_pydantic_ai(client: sluice.Client, declare: Declare) -> None:
    rpm = used_up_but_for(client, declare, "chat")
    with pytest.raises(sluice.RefusedError):
        await Limiter(rpm, client=client, max_wait=1).acquire("a model")
    limiter = Limiter(rpm, share="chat", client=client, max_wait=1)
    await limiter.acquire("a model")
    limiter.release()
