"""What the binding adds to the SDK of Rust: the same acquires in both, against a sandbox of its own.

    cargo build --release -p sluice-cli
    cargo build --release -p sluice-sdk --example overhead
    python bench/overhead.py            with the wheel of a release build installed

Prints medians in microseconds, the time of the import, and the size of the native module.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import sluice

ROOT = Path(__file__).parents[3]
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
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


def import_ms() -> float:
    """The time of `import sluice` beyond that of an empty interpreter, in a new process: the least of ten."""
    clock = "import time; began = time.perf_counter(); import sluice; print((time.perf_counter() - began) * 1e3)"
    runs = [subprocess.run([sys.executable, "-c", clock], check=True, capture_output=True) for _ in range(10)]
    return min(float(run.stdout) for run in runs)


def in_rust() -> tuple[float, float]:
    figures = json.loads(subprocess.run([RELEASE / "examples/overhead"], check=True, capture_output=True).stdout)
    return figures["stock_us"], figures["write_us"]


def in_threads() -> tuple[float, float]:
    with sluice.Client.from_env(prefetch=[STOCK[0]]) as client:
        return blocking(client.acquire, *STOCK), blocking(client.acquire, *WRITTEN)


async def in_asyncio() -> tuple[float, float]:
    async with sluice.AsyncClient.from_env(prefetch=[STOCK[0]]) as client:
        return await awaited(client.acquire, *STOCK), await awaited(client.acquire, *WRITTEN)


def measure() -> None:
    print("median, us          from stock    one write")
    for name, figures in [
        ("Rust, before", in_rust()),
        ("Python, blocking", in_threads()),
        ("Python, asyncio", asyncio.run(in_asyncio())),
        ("Rust, after", in_rust()),
    ]:
        print(f"{name:<18}{figures[0]:>12.1f}{figures[1]:>13.1f}")
    module = next(Path(sluice.__file__).parent.glob("_native*.so"))
    print(f"import sluice: {import_ms():.0f} ms; {module.name}: {module.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    sandbox = subprocess.Popen(
        [RELEASE / "sluice", "sandbox", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert sandbox.stdout is not None
        found = next(found for line in sandbox.stdout if (found := re.search(r"SLUICE_ENDPOINT_URL=(\S+)", line)))
        os.environ.update(
            SLUICE_ENV="sandbox",
            SLUICE_ENDPOINT_URL=found[1],
            AWS_ACCESS_KEY_ID="sandbox",
            AWS_SECRET_ACCESS_KEY="sandbox",
        )
        measure()
    finally:
        sandbox.terminate()
        sandbox.wait(10)


main()
