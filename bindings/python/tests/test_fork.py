"""A child process makes a client of its own, however it is started, and leaves alone what its parent holds."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor

import pytest

import sluice

from conftest import Declare, in_child, level, skip_without_forks

DAY = 86_400.0

METHODS = ["fork", "spawn", "forkserver"]

# What a module of a worker has: made before the fork, used after it.
_client: sluice.Client | None = None


def _of_module() -> sluice.Client:
    global _client
    if _client is None:
        _client = sluice.Client.from_env()
    return _client


def _take(dimension: str) -> tuple[int, bool, bool]:
    """One acquire and one slot, blocking and in asyncio."""

    async def take() -> bool:
        async with sluice.AsyncClient.from_env().slot(dimension, max_wait=5):
            return True

    taken = isinstance(_of_module().acquire(dimension), sluice.Grant)
    with _of_module().slot(dimension, max_wait=5):
        pass
    return os.getpid(), taken, asyncio.run(take())


@pytest.mark.parametrize("method", METHODS)
def test_children_of_each_start_method_work(method: str, declare: Declare) -> None:
    if method == "fork":
        skip_without_forks()
    rpm = declare(sluice.Limit.requests(100, per=DAY))
    # Runtime and client of the parent are in use.
    assert _take(rpm)[1:] == (True, True)
    context = multiprocessing.get_context(method)
    with warnings.catch_warnings():
        # Python 3.12 and later warn of every fork of a process with threads: that this works is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            results = [done.result(30) for done in [pool.submit(_take, rpm) for _ in range(4)]]
    assert all(result[1:] == (True, True) for result in results)
    assert all(result[0] != os.getpid() for result in results)
    # The parent goes on.
    assert _take(rpm)[1:] == (True, True)


def test_a_child_leaves_alone_what_its_parent_holds(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(4), "concurrent")
    tracker = client.reservations()
    tracked = client.acquire(slots)
    assert isinstance(tracked, sluice.Grant)
    tracker.store("request", slots, tracked)
    # No other variable refers to them.
    held = [client.acquire(slots)]
    slot = client.slot(slots)
    slot.__enter__()

    def run() -> None:
        grant = held[0]
        assert isinstance(grant, sluice.Grant)
        for use in (grant.release, grant.renew, lambda: tracker.get("request", slots)):
            with pytest.raises(sluice.ForkedError, match="acquire anew"):
                use()
        # Forgotten in the child, held in the parent.
        held.clear()
        del grant, use
        gc.collect()
        own = client.acquire(slots)
        assert isinstance(own, sluice.Grant)
        own.release()

    assert in_child(run) == 0
    assert level(client, slots) == 1
    slot.__exit__(None, None, None)
    grant = held.pop()
    assert isinstance(grant, sluice.Grant)
    assert grant.release() == "given_back"
    found = tracker.get_and_clear("request", slots)
    assert found is not None
    found[1].release()
    assert level(client, slots) == 4


def test_a_child_that_leaves_its_parent_s_block_does_not_release_it(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    context = client.slot(slots)
    context.__enter__()
    assert in_child(lambda: context.__exit__(None, None, None)) == 0
    assert level(client, slots) == 0
    context.__exit__(None, None, None)
    assert level(client, slots) == 1


def test_a_client_of_asyncio_works_in_a_child(declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100, per=DAY))
    client = sluice.AsyncClient.from_env()

    def take() -> None:
        async def acquired() -> None:
            assert isinstance(await client.acquire(rpm), sluice.AsyncGrant)

        asyncio.run(acquired())

    take()
    assert in_child(take) == 0
    take()


def test_a_child_of_a_child_works(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100, per=DAY))

    def take() -> None:
        assert isinstance(client.acquire(rpm), sluice.Grant)

    def run() -> None:
        take()
        assert in_child(take) == 0

    take()
    assert in_child(run) == 0


def test_a_child_that_ends_gives_back_what_it_holds(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    kept = client.acquire(slots)
    assert isinstance(kept, sluice.Grant)

    def run() -> None:
        held = client.acquire(slots)
        assert isinstance(held, sluice.Grant)
        client.close(2)

    assert in_child(run) == 0
    assert level(client, slots) == 1
    kept.release()
