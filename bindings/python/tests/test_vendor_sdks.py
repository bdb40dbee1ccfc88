"""The packages `openai` and `anthropic`, with one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from test_transport import RESERVED, Buckets

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


def test_each_attempt_is_admitted_and_the_pause_is_served_once(vendor: Vendor, buckets: Buckets) -> None:
    for calls, package in enumerate(("openai", "anthropic"), start=1):
        vendor.seen.clear()
        began = time.monotonic()
        if package == "openai":
            with _openai(vendor, buckets) as of_openai:
                assert _ask(of_openai, "refuse once") == "Hello"
        else:
            with _anthropic(vendor, buckets) as of_anthropic:
                asked = of_anthropic.messages.create(
                    model="m", max_tokens=400, metadata={"user_id": "refuse once"}, messages=MESSAGES
                )
                assert asked.usage.output_tokens == 20
        took = time.monotonic() - began
        assert len(vendor.seen) == 2
        # The client serves it, and the limiter not again.
        assert 1.9 < took < 3.9, "a pause of two seconds"
        assert buckets.become(2 * calls, 50 * calls, 0)


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


MESSAGES: Any = [{"role": "user", "content": "Hello"}]


def _async_openai(vendor: Vendor, buckets: Buckets, max_retries: int = 2) -> openai.AsyncOpenAI:
    transport = sluice.httpx2.AsyncTransport(buckets.vendor, client=buckets.client, ask_usage=True, patience=20)
    http_client = openai.DefaultAsyncHttpx2Client(transport=transport)
    return openai.AsyncOpenAI(
        api_key="k", base_url=f"{vendor.base_url}/v1", http_client=http_client, max_retries=max_retries
    )


def _anthropic(vendor: Vendor, buckets: Buckets) -> anthropic.Anthropic:
    http_client = anthropic.DefaultHttpxClient(transport=sluice.httpx2.Transport(buckets.vendor, client=buckets.client))
    return anthropic.Anthropic(api_key="k", base_url=vendor.base_url, http_client=http_client)


def _async_anthropic(vendor: Vendor, buckets: Buckets) -> anthropic.AsyncAnthropic:
    http_client = anthropic.DefaultAsyncHttpxClient(
        transport=sluice.httpx2.AsyncTransport(buckets.vendor, client=buckets.client, patience=20)
    )
    return anthropic.AsyncAnthropic(api_key="k", base_url=vendor.base_url, http_client=http_client)


async def test_openai_for_asyncio_is_limited_and_settled(vendor: Vendor, buckets: Buckets) -> None:
    async with _async_openai(vendor, buckets) as client:
        reply = await client.chat.completions.create(model="m", max_tokens=400, messages=MESSAGES)
        assert reply.choices[0].message.content == "Hello"
        assert buckets.become(1, 50, 0)
        stream = await client.chat.completions.create(model="m", max_tokens=400, stream=True, messages=MESSAGES)
        assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices]) == "Hel"
        assert buckets.become(2, 100, 0)


def test_anthropic_is_limited_and_settled_streams_too(vendor: Vendor, buckets: Buckets) -> None:
    with _anthropic(vendor, buckets) as client:
        assert client.messages.create(model="m", max_tokens=400, messages=MESSAGES).usage.output_tokens == 20
        assert buckets.become(1, 50, 0)
        with client.messages.stream(model="m", max_tokens=400, messages=MESSAGES) as stream:
            assert stream.get_final_message().usage.output_tokens == 20
        assert buckets.become(2, 100, 0)


async def test_anthropic_for_asyncio_is_limited_and_settled(vendor: Vendor, buckets: Buckets) -> None:
    async with _async_anthropic(vendor, buckets) as client:
        message = await client.messages.create(model="m", max_tokens=400, messages=MESSAGES)
        assert message.usage.output_tokens == 20
        assert buckets.become(1, 50, 0)
        async with client.messages.stream(model="m", max_tokens=400, messages=MESSAGES) as stream:
            assert (await stream.get_final_message()).usage.output_tokens == 20
        assert buckets.become(2, 100, 0)


async def test_a_stream_that_is_left_gives_its_slot_back(vendor: Vendor, buckets: Buckets) -> None:
    with _openai(vendor, buckets) as client:
        left = client.chat.completions.create(model="m", max_tokens=400, user="pause", stream=True, messages=MESSAGES)
        with left:
            assert next(left).choices[0].delta.content == "Hel"
            assert buckets.now()[2] == 1
    assert buckets.become(1, RESERVED, 0)
    async with (
        _async_openai(vendor, buckets) as aclient,
        await aclient.chat.completions.create(
            model="m", max_tokens=400, user="pause", stream=True, messages=MESSAGES
        ) as aleft,
    ):
        assert (await anext(aiter(aleft))).choices[0].delta.content == "Hel"
        assert buckets.now()[2] == 1
    assert buckets.become(2, 2 * RESERVED, 0)
    with (
        _anthropic(vendor, buckets) as of_anthropic,
        of_anthropic.messages.stream(
            model="m", max_tokens=400, metadata={"user_id": "pause"}, messages=MESSAGES
        ) as stream,
    ):
        assert next(iter(stream)).type == "message_start"
        assert buckets.now()[2] == 1
    assert buckets.become(3, 3 * RESERVED, 0)
    async with (
        _async_anthropic(vendor, buckets) as aof_anthropic,
        aof_anthropic.messages.stream(
            model="m", max_tokens=400, metadata={"user_id": "pause"}, messages=MESSAGES
        ) as astream,
    ):
        assert (await anext(aiter(astream))).type == "message_start"
        assert buckets.now()[2] == 1
    assert buckets.become(4, 4 * RESERVED, 0)
    vendor.may_go_on.set()
