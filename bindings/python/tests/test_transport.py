"""One line in the HTTP client: each attempt is admitted, and its reply is read as it passes by."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sluice

from conftest import Declare, eventually, level
from fake_vendor import Vendor, served

DAY = 100 * 86_400.0

RESERVED = 406
"""What a call takes: its `max_tokens`, and an estimate of its input."""


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with served() as vendor:
        yield vendor


@pytest.fixture(params=["httpx", "httpx2"] if sys.version_info >= (3, 11) else ["httpx"])
def http(request: pytest.FixtureRequest) -> Any:
    """The module, and that of the same name in `sluice`."""
    return importlib.import_module(request.param), importlib.import_module(f"sluice.{request.param}")


class Buckets:
    """The buckets of a vendor of its own."""

    _made = 0

    def __init__(self, client: sluice.Client, declare: Declare) -> None:
        Buckets._made += 1
        self.client = client
        self.vendor = f"acme{os.getpid()}x{Buckets._made}"
        self.rpm = declare(sluice.Limit.requests(1_000, per=DAY), "rpm", self.vendor)
        self.tpm = declare(sluice.Limit.tokens(20_000, per=DAY), "tpm", self.vendor)
        self.slots = declare(sluice.Limit.concurrent(2), "concurrent", self.vendor)
        # Not full: a full bucket takes back no more than has room.
        client.acquire(self.tpm, costs={self.tpm: 10_000})

    def now(self) -> tuple[int, int, int]:
        """What was taken of requests and tokens, and what is held of the slots."""
        client = self.client
        requests, tokens = 1_000 - level(client, self.rpm), 10_000 - level(client, self.tpm)
        return round(requests), round(tokens), 2 - round(level(client, self.slots))

    def become(self, requests: int, tokens: int, slots: int) -> bool:
        is_so = eventually(lambda: self.now() == (requests, tokens, slots))
        if not is_so:
            print("requests, tokens, slots:", self.now())
        return is_so


@pytest.fixture
def buckets(client: sluice.Client, declare: Declare) -> Buckets:
    return Buckets(client, declare)


def asked(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    return {"model": "m", "max_tokens": 400, "messages": messages, **more}


def test_a_call_takes_and_settles_what_it_used(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    with module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client:
        reply = client.post(vendor.url, json=asked())
        assert reply.json()["usage"]["total_tokens"] == 50
        assert buckets.now() == (1, 50, 0)
        assert client.post(vendor.url, json=asked(user="gzip")).json()["usage"]["total_tokens"] == 50
        assert buckets.now() == (2, 100, 0)
        assert set(vendor.encodings) == {"gzip, deflate"}
        assert client.get(vendor.url).status_code == 200
        assert buckets.now() == (2, 100, 0), "a GET is not limited"


def test_no_more_calls_run_than_there_are_slots(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    with module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client:
        threads = [
            threading.Thread(target=client.post, args=(vendor.url,), kwargs={"json": asked()}) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(vendor.seen) == 12
    assert vendor.most_at_once <= 2
    assert buckets.become(12, 12 * 50, 0)


def test_a_wait_beyond_the_patience_is_a_429_of_the_vendor_s_form(
    http: Any, vendor: Vendor, client: sluice.Client, declare: Declare
) -> None:
    module, ours = http
    rpm = declare(sluice.Limit.requests(1, per=100))
    limited = module.Client(transport=ours.Transport("acme", client=client, buckets=[rpm], patience=1))
    assert limited.post(vendor.url, json=asked()).status_code == 200
    reply = limited.post(vendor.url, json=asked())
    assert reply.status_code == 429
    assert 90 < int(reply.headers["retry-after"]) <= 100
    assert reply.headers["x-sluice-refused-by"] == rpm
    assert reply.json()["error"]["code"] == "rate_limit_exceeded"
    assert len(vendor.seen) == 1, "the call was not made"
    limited.close()


def test_a_limiter_that_cannot_decide_makes_no_call(http: Any, vendor: Vendor, client: sluice.Client) -> None:
    module, ours = http
    limited = module.Client(transport=ours.Transport("acme", client=client, buckets=["nobody#rpm"]))
    with pytest.raises(sluice.UnknownDimensionError):
        limited.post(vendor.url, json=asked())
    assert vendor.seen == []
    with pytest.raises(ValueError, match="nobody"):
        ours.Transport("acme", client=client, buckets=["nobody"])


def test_calls_are_paid_by_a_share(http: Any, vendor: Vendor, client: sluice.Client, declare: Declare) -> None:
    module, ours = http
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    client.ops.apply_limit(slots, sluice.Limit.concurrent(3), shares={"search": 0.67})
    transport = ours.Transport("acme", client=client, buckets=[slots], share="search")
    with module.Client(transport=transport) as limited, limited.stream("POST", vendor.url, json=asked(stream=True)):
        assert (level(client, slots), level(client, f"{slots}@search")) == (1, 1)
    with pytest.raises(ValueError, match='malformed share "no good"'):
        ours.Transport("acme", client=client, share="no good")


def test_a_refusal_reaches_the_fleet_and_then_the_client(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    with module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client:
        reply = client.post(vendor.url, json=asked(user="refuse"))
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
    assert reply.json()["error"]["message"] == "slow down", "the client reads all of the body"
    refused = buckets.client.acquire(buckets.rpm)
    assert isinstance(refused, sluice.RetryIn)
    assert refused.reason == "cooling_down"
    assert 0 < refused.wait <= 1
    assert buckets.become(1, 0, 0)


def test_a_wait_that_only_the_body_of_a_refusal_names_is_read(
    http: Any, vendor: Vendor, client: sluice.Client, declare: Declare
) -> None:
    module, ours = http
    Buckets._made += 1
    rpm = declare(sluice.Limit.requests(1_000, per=DAY), f"m{os.getpid()}x{Buckets._made}#rpm", "gemini")
    with module.Client(transport=ours.Transport("gemini", client=client, buckets=[rpm])) as limited:
        reply = limited.post(vendor.url, json=asked(user="refuse in the body"))
    assert reply.json()["error"]["details"][0]["retryDelay"] == "4s", "the client reads all of the body"
    refused = client.acquire(rpm)
    assert isinstance(refused, sluice.RetryIn)
    assert refused.reason == "cooling_down"
    assert 3 < refused.wait <= 4


def test_a_stream_holds_its_slot_until_its_end(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    transport = ours.Transport(buckets.vendor, client=buckets.client, ask_usage=True)
    with (
        module.Client(transport=transport) as client,
        client.stream("POST", vendor.url, json=asked(stream=True, user="pause")) as reply,
    ):
        lines = reply.iter_lines()
        assert "Hel" in next(lines)
        assert buckets.now()[2] == 1
        vendor.may_go_on.set()
        assert "data: [DONE]" in list(lines)
        assert buckets.now() == (1, 50, 0)
    assert vendor.seen[0]["stream_options"] == {"include_usage": True}


def test_a_stream_that_is_left_gives_its_slot_back(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    with module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client:
        with client.stream("POST", vendor.url, json=asked(stream=True, user="pause")) as reply:
            pieces = reply.iter_bytes()
            assert next(pieces)
            assert buckets.now()[2] == 1
        # The vendor may have made the rest: its tokens stay taken.
        assert buckets.become(1, RESERVED, 0)
    vendor.may_go_on.set()


@pytest.mark.parametrize("act", ["hang up", "break off"])
def test_a_connection_that_breaks_gives_the_slot_back(http: Any, vendor: Vendor, buckets: Buckets, act: str) -> None:
    module, ours = http
    with (
        module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client,
        pytest.raises(module.RemoteProtocolError),
    ):
        client.post(vendor.url, json=asked(user=act))
    assert buckets.become(1, RESERVED, 0)


def test_a_call_that_was_never_sent_gives_everything_back(http: Any, buckets: Buckets) -> None:
    module, ours = http
    with (
        module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client,
        pytest.raises(module.ConnectError),
    ):
        client.post("http://127.0.0.1:9/v1/chat/completions", json=asked())
    assert buckets.become(0, 0, 0)


def test_a_body_that_is_streamed_up_is_not_read(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    body = json.dumps(asked()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    with module.Client(transport=ours.Transport(buckets.vendor, client=buckets.client)) as client:
        assert client.post(vendor.url, content=iter([body]), headers=headers).status_code == 200
    assert vendor.seen == [asked()]


async def test_asyncio_calls_are_limited_in_the_same_way(http: Any, vendor: Vendor, buckets: Buckets) -> None:
    module, ours = http
    transport = ours.AsyncTransport(buckets.vendor, client=buckets.client, ask_usage=True)
    async with module.AsyncClient(transport=transport) as client:
        replies = await asyncio.gather(*(client.post(vendor.url, json=asked()) for _ in range(8)))
        assert [reply.json()["usage"]["total_tokens"] for reply in replies] == [50] * 8
        assert vendor.most_at_once <= 2
        assert buckets.become(8, 400, 0)
        async with client.stream("POST", vendor.url, json=asked(stream=True)) as reply:
            assert "[DONE]" in "".join([text async for text in reply.aiter_text()])
            assert buckets.now() == (9, 450, 0)
        with pytest.raises(module.RemoteProtocolError):
            await client.post(vendor.url, json=asked(user="break off"))
        assert buckets.become(10, 450 + RESERVED, 0)
        refused = await client.post(vendor.url, json=asked(user="refuse"))
        assert (refused.status_code, refused.json()["error"]["message"]) == (429, "slow down")
        assert buckets.become(11, 450 + RESERVED, 0)


async def test_an_asyncio_call_that_is_cancelled_gives_its_slot_back(
    http: Any, vendor: Vendor, buckets: Buckets
) -> None:
    module, ours = http
    async with module.AsyncClient(transport=ours.AsyncTransport(buckets.vendor, client=buckets.client)) as client:

        async def read() -> None:
            async with client.stream("POST", vendor.url, json=asked(stream=True, user="pause")) as reply:
                async for _ in reply.aiter_bytes():
                    has_begun.set()

        has_begun = asyncio.Event()
        task = asyncio.create_task(read())
        await has_begun.wait()
        assert buckets.now()[2] == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert buckets.become(1, RESERVED, 0)
    vendor.may_go_on.set()
