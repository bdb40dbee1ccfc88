"""A slot inside of a slot of the same bucket would wait for itself."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import sluice

from conftest import Declare, in_child, level
from fake_vendor import served

NESTED = "inside of another slot"


def test_a_slot_inside_of_a_slot_of_the_same_bucket_is_an_error(client: sluice.Client, declare: Declare) -> None:
    slots, other = declare(sluice.Limit.concurrent(2), "concurrent"), declare(sluice.Limit.concurrent(2), "concurrent")
    with client.slot(slots), client.slot(other):
        with pytest.raises(sluice.RequestError, match=NESTED), client.slot(slots, max_wait=5):
            pytest.fail("the block ran")
        with pytest.raises(sluice.RequestError, match=NESTED):
            client.slot(slots, other, max_wait=5).grant()
    with client.slot(slots):
        pass
    assert level(client, slots) == level(client, other) == 2


def test_what_is_no_nesting_passes(client: sluice.Client, declare: Declare) -> None:
    slots, rpm = declare(sluice.Limit.concurrent(2), "concurrent"), declare(sluice.Limit.requests(100))
    another = sluice.Client.from_env()

    def in_thread() -> None:
        with client.slot(slots, max_wait=5):
            passed.append("thread")

    def in_fork() -> None:
        with client.slot(slots, max_wait=5):
            pass

    passed: list[str] = []
    with client.slot(rpm), client.slot(rpm, max_wait=5):
        # Rates do not wait for each other.
        pass
    with client.slot(slots):
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        with another.slot(slots, max_wait=5):
            pass
        assert in_child(in_fork) == 0
        grant = client.acquire(slots)
        assert isinstance(grant, sluice.Grant), "it never waits"
        grant.release()
    assert passed == ["thread"]
    another.close()


def test_a_generator_that_ends_late_leaves_no_trace(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")

    @contextmanager
    def held() -> Iterator[None]:
        with client.slot(slots):
            yield

    first, second = held(), client.slot(declare(sluice.Limit.concurrent(1), "concurrent"))
    first.__enter__()
    second.__enter__()
    # Not in the order of their beginnings.
    first.__exit__(None, None, None)
    with client.slot(slots, max_wait=5):
        pass
    second.__exit__(None, None, None)


async def test_tasks_of_asyncio_know_where_they_are(aclient: sluice.AsyncClient, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    late = asyncio.Event()

    async def waits() -> None:
        async with aclient.slot(slots, max_wait=5):
            pass

    async def waits_late() -> None:
        await late.wait()
        await waits()

    async with aclient.slot(slots):
        outlives = asyncio.create_task(waits_late())
        for nested in (waits(), asyncio.gather(waits()), aclient.slot(slots, max_wait=5).grant()):
            with pytest.raises(sluice.RequestError, match=NESTED):
                await nested
        elsewhere = asyncio.get_running_loop().run_in_executor(None, asyncio.run, waits())
        await elsewhere
    # The slot around it has ended.
    late.set()
    await outlives


@pytest.mark.skipif(sys.version_info < (3, 11), reason="httpx2 needs Python 3.11")
def test_a_limited_call_inside_of_a_slot_of_its_bucket_passes(
    client: sluice.Client, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    import httpx2

    import sluice.httpx2

    slots = declare(sluice.Limit.concurrent(1), "concurrent", "nestvendor")
    with served() as vendor:
        transport = sluice.httpx2.Transport("nestvendor", client=client, patience=5)
        http: Any = httpx2.Client(transport=transport, base_url=vendor.url)
        body = {"model": "m", "max_tokens": 5, "messages": []}
        with client.slot(slots):
            assert http.post("/v1/chat/completions", json=body).status_code == 200
            assert level(client, slots) == 0
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        http.close()
    assert level(client, slots) == 1
