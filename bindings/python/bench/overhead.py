"""What an acquire takes in Python: the same acquires as the example `overhead` of the Rust SDK, against the table that
the environment names. `task bench:languages` runs all.

    python bench/overhead.py blocking|asyncio

Prints medians in microseconds, and the time of the import in milliseconds."""

import time

BEGAN = time.perf_counter()
import sluice  # noqa: E402

IMPORT_MS = (time.perf_counter() - BEGAN) * 1e3

import asyncio  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from collections.abc import Awaitable, Callable  # noqa: E402

WARM_UP = 500
STOCK, WRITTEN = ("overhead#rpm", 20_000), ("overhead#rps", 2_000)


def blocking(acquire: Callable[[str], object], dimension: str, calls: int) -> float:
    times = []
    for call in range(WARM_UP + calls):
        began = time.perf_counter()
        outcome = acquire(dimension)
        took = time.perf_counter() - began
        assert isinstance(outcome, sluice.Grant), outcome
        if call >= WARM_UP:
            times.append(took)
    return statistics.median(times) * 1e6


async def awaited(acquire: Callable[[str], Awaitable[object]], dimension: str, calls: int) -> float:
    times = []
    for call in range(WARM_UP + calls):
        began = time.perf_counter()
        outcome = await acquire(dimension)
        took = time.perf_counter() - began
        assert isinstance(outcome, sluice.AsyncGrant), outcome
        if call >= WARM_UP:
            times.append(took)
    return statistics.median(times) * 1e6


def in_threads() -> tuple[float, float]:
    with sluice.Client.from_env(prefetch=[STOCK[0]]) as client:
        return blocking(client.acquire, *STOCK), blocking(client.acquire, *WRITTEN)


async def in_asyncio() -> tuple[float, float]:
    async with sluice.AsyncClient.from_env(prefetch=[STOCK[0]]) as client:
        return await awaited(client.acquire, *STOCK), await awaited(client.acquire, *WRITTEN)


stock, write = in_threads() if sys.argv[1] == "blocking" else asyncio.run(in_asyncio())
print(json.dumps({"stock_us": stock, "write_us": write, "start_ms": IMPORT_MS}))
