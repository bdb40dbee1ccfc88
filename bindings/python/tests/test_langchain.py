"""LangChain's rate limiter."""

from __future__ import annotations

import sys

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from test_transport import Buckets

import sluice
from sluice.langchain import RateLimiter

from conftest import Declare, used_up_but_for
from fake_vendor import served


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


async def test_a_share_pays_for_a_model_of_langchain(client: sluice.Client, declare: Declare) -> None:
    rpm = used_up_but_for(client, declare, "chat")
    assert not RateLimiter(rpm, client=client).acquire(blocking=False)
    limiter = RateLimiter(rpm, share="chat", client=client, max_wait=1)
    assert limiter.acquire(blocking=False)
    assert limiter.acquire()
    assert await limiter.aacquire(blocking=False)
    assert await limiter.aacquire()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="httpx2 needs Python 3.11")
async def test_a_chat_model_of_openai_is_limited_by_its_http_client(client: sluice.Client, declare: Declare) -> None:
    from langchain_openai import ChatOpenAI
    from openai import DefaultAsyncHttpx2Client, DefaultHttpx2Client
    from pydantic import SecretStr

    import sluice.httpx2 as ours

    buckets = Buckets(client, declare)
    with served() as vendor:
        http = DefaultHttpx2Client(transport=ours.Transport(buckets.vendor, client=client, ask_usage=True))
        of_asyncio = ours.AsyncTransport(buckets.vendor, client=client, ask_usage=True)
        ahttp = DefaultAsyncHttpx2Client(transport=of_asyncio)
        url = f"{vendor.base_url}/v1"
        model = ChatOpenAI(
            model="m",
            api_key=SecretStr("k"),
            base_url=url,
            max_completion_tokens=400,
            http_client=http,
            http_async_client=ahttp,
        )
        assert model.invoke("Hello").content == "Hello"
        assert buckets.become(1, 50, 0)
        assert "".join(str(piece.content) for piece in model.stream("Hello")) == "Hel"
        assert buckets.become(2, 100, 0)
        assert (await model.ainvoke("Hello")).content == "Hello"
        assert buckets.become(3, 150, 0)
        http.close()
        await ahttp.aclose()
