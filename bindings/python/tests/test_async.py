"""asyncio: nothing blocks, and a cancellation gives back what the task had or was about to get."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import sluice

from conftest import Declare, all_free, eventually, level, version

DAY = 86_400.0


async def test_the_same_operations_are_awaited(aclient: sluice.AsyncClient, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(2, per=100))
    async with asyncio.timeout(10) if hasattr(asyncio, "timeout") else _nothing():
        grant = await aclient.acquire(rpm)
        assert isinstance(grant, sluice.AsyncGrant)
        assert (await grant.observe(rpm, {})).level == "not_said"
        assert await grant.release() == "given_back"
        async with aclient.slot(rpm, max_wait=1) as slot:
            assert slot.basis == "table"
        retry = await aclient.acquire(rpm)
        assert isinstance(retry, sluice.RetryIn)
        assert 45 < retry.wait <= 50
        with pytest.raises(sluice.RefusedError):
            await aclient.slot(rpm, max_wait=1).grant()
        with pytest.raises(sluice.UnknownDimensionError):
            await aclient.acquire("nobody#rpm")
        assert await aclient.limit("nobody#rpm") is None
        bucket = await aclient.ops.bucket(rpm)
        assert bucket is not None
        assert bucket.level < 1
        assert isinstance(await aclient.admit(rpm, 1, slo=1), sluice.Shed)


class _nothing:  # noqa: N801
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


async def test_a_wait_does_not_block_the_event_loop(aclient: sluice.AsyncClient, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=0.5))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    for _ in range(2):
        async with aclient.slot(rpm):
            pass
    ticking.cancel()
    assert ticks > 30


async def test_a_cancelled_wait_gives_back_what_it_had(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots, slow = declare(sluice.Limit.concurrent(1), "concurrent"), declare(sluice.Limit.requests(1, per=100))
    assert isinstance(await aclient.acquire(slow), sluice.AsyncGrant)

    async def wait() -> None:
        async with aclient.slot(slots, slow, max_wait=200):
            pytest.fail("the block ran")

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(wait(), 0.5)
    assert all_free(client, slots, 1)
    assert eventually(lambda: level(client, slow) >= 0), "the booked start was not given back"


async def test_a_wait_that_is_over_leaves_nothing_on_a_concurrency_bucket(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots, slow = declare(sluice.Limit.concurrent(1), "concurrent"), declare(sluice.Limit.requests(1, per=100))
    assert isinstance(await aclient.acquire(slow), sluice.AsyncGrant)
    held = await aclient.acquire(slots)
    assert isinstance(held, sluice.AsyncGrant)

    async def wait(*dimensions: str) -> None:
        with pytest.raises(sluice.RefusedError):
            async with aclient.slot(*dimensions, max_wait=0.3):
                pytest.fail("the block ran")

    # For the slot; and then with the slot, for the request.
    await wait(slots)
    await held.release()
    await wait(slots, slow)
    assert all_free(client, slots, 1)


async def test_a_cancelled_block_gives_its_slot_back(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    has_begun = asyncio.Event()

    async def call() -> None:
        async with aclient.slot(slots):
            has_begun.set()
            await asyncio.sleep(100)

    task = asyncio.create_task(call())
    await has_begun.wait()
    assert level(client, slots) == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all_free(client, slots, 1)


async def test_a_grant_that_arrives_after_the_cancellation_goes_back(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots, tpm = declare(sluice.Limit.concurrent(50), "concurrent"), declare(sluice.Limit.tokens(5_000, per=DAY), "tpm")
    # Cancelled at every moment of an acquire, also after its answer and before the task runs again.
    for delay in range(50):
        task = asyncio.create_task(aclient.acquire(slots, tpm, costs={tpm: 100}))
        await asyncio.sleep(delay * 0.000_4)
        time.sleep(0.002 if delay % 3 == 0 else 0)  # noqa: ASYNC251
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], sluice.AsyncGrant):
            await results[0].cancel()
    gc.collect()
    assert all_free(client, slots, 50)
    # An answer that asyncio threw away itself is a dropped grant, whose tokens stay spent.
    assert level(client, tpm) >= 4_000


async def test_an_answer_that_nobody_takes_gives_its_tokens_back(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    while True:
        slots = declare(sluice.Limit.concurrent(1), "concurrent")
        tpm = declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
        task = asyncio.create_task(aclient.acquire(slots, tpm, costs={tpm: 400}))
        await asyncio.sleep(0)
        if not task.done():
            break
        # The machine was so busy that the reply came while the request was sent.
        await task
    # The event loop stands still until the answer has come; then the task is cancelled before it gets it.
    time.sleep(0.3)  # noqa: ASYNC251
    assert level(client, slots) == 0
    task.cancel()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
    assert all_free(client, slots, 1)
    assert eventually(lambda: level(client, tpm) >= 1_000)


async def test_an_error_in_a_block_ends_the_slot(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    with pytest.raises(KeyError):
        async with aclient.slot(slots):
            raise KeyError
    assert level(client, slots) == 1
    assert all_free(client, slots, 1)
    tpm = declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
    with pytest.raises(KeyError):
        async with aclient.slot(tpm, costs={tpm: 400}):
            raise KeyError
    async with aclient.slot(tpm, costs={tpm: 400}) as slot:
        await slot.reply(sluice.Reply(200), used={tpm: 100})
    bucket = await aclient.ops.bucket(tpm)
    assert bucket is not None
    assert bucket.level == pytest.approx(900, abs=1)


async def test_a_client_that_is_closed_in_a_block_is_an_error_unless_the_block_has_its_own(
    client: sluice.Client, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    ending = sluice.AsyncClient.from_env()
    with pytest.raises(sluice.ClosedError):
        async with ending.slot(slots):
            assert (await ending.close(0.2)).cut_off
    ending = sluice.AsyncClient.from_env()
    with pytest.raises(KeyError, match="of the block"):
        async with ending.slot(slots):
            assert (await ending.close(0.2)).cut_off
            raise KeyError("of the block")
    assert all_free(client, slots, 1)


async def test_ten_thousand_tasks_share_one_bucket_and_few_writes(
    aclient: sluice.AsyncClient, declare: Declare
) -> None:
    rpm = declare(sluice.Limit.requests(10_000, per=DAY))
    before = version(rpm)
    began = time.monotonic()
    outcomes = await asyncio.gather(*(aclient.acquire(rpm) for _ in range(10_001)))
    took = time.monotonic() - began
    granted = sum(isinstance(outcome, sluice.AsyncGrant) for outcome in outcomes)
    assert granted == 10_000
    assert took < 20
    assert 1 < version(rpm) - before < 1_000


async def test_a_thousand_tasks_share_the_slots_and_no_lease_is_left(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(50), "concurrent")
    calls = 0

    async def call() -> None:
        nonlocal calls
        async with aclient.slot(slots, max_wait=50):
            calls += 1

    await asyncio.gather(*(call() for _ in range(1_000)))
    assert calls == 1_000
    assert all_free(client, slots, 50)


def test_an_event_loop_that_closes_loses_nothing(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    asyncio_client = sluice.AsyncClient.from_env()

    async def leave() -> None:
        held = await asyncio_client.acquire(slots)
        assert isinstance(held, sluice.AsyncGrant)
        asyncio.ensure_future(asyncio_client.slot(slots).grant())  # noqa: RUF006
        asyncio.ensure_future(asyncio_client.acquire(slots))  # noqa: RUF006
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert all_free(client, slots, 3)
    # The client outlives the event loop.
    assert asyncio.run(_acquire(asyncio_client, slots))


def test_a_program_that_does_not_close_its_client_ends_cleanly(client: sluice.Client, declare: Declare) -> None:
    slots, slow = declare(sluice.Limit.concurrent(2), "concurrent"), declare(sluice.Limit.requests(1, per=100))
    assert isinstance(client.acquire(slow), sluice.Grant)
    program = (
        "import asyncio, sluice\n"
        "client = sluice.AsyncClient.from_env()\n"
        "async def main():\n"
        "    global held, context, waits\n"
        f"    held, context = await client.acquire({slots!r}), client.slot({slots!r})\n"
        "    await context.__aenter__()\n"
        f"    waits = asyncio.ensure_future(client.slot({slow!r}, max_wait=600).grant())\n"
        "    await asyncio.sleep(0.2)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all_free(client, slots, 2)
    assert level(client, slow) >= 0, "the booked start was not given back"


@pytest.mark.parametrize("where", ["in a wait", "in a block"])
def test_ctrl_c_ends_a_program_of_asyncio_at_once_and_nothing_is_left(
    client: sluice.Client, declare: Declare, where: str
) -> None:
    slots, slow = declare(sluice.Limit.concurrent(1), "concurrent"), declare(sluice.Limit.requests(1, per=1_000))
    waits = where == "in a wait"
    if waits:
        # It has the slot then, and waits for its booked start.
        assert isinstance(client.acquire(slow), sluice.Grant)
    program = (
        "import asyncio, signal, sluice\n"
        # A program that a shell starts in the background has none.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "async def main():\n"
        f"    async with sluice.AsyncClient.from_env().slot({slots!r}, {slow!r}, max_wait=2_000):\n"
        "        await asyncio.sleep(1_000)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as running:
        assert eventually(lambda: level(client, slots) == 0 and level(client, slow) < (0 if waits else 1), 20)
        time.sleep(0.2)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == -signal.SIGINT
    assert time.monotonic() - began < 5
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert all_free(client, slots, 1)
    if waits:
        assert level(client, slow) >= 0, "the booked start was not given back"


def test_event_loops_of_two_threads_share_a_client(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    shared = sluice.AsyncClient.from_env()
    both, lock, running, most = threading.Barrier(2), threading.Lock(), 0, 0

    async def call() -> None:
        nonlocal running, most
        async with shared.slot(slots, max_wait=60):
            with lock:
                running += 1
                most = max(most, running)
            await asyncio.sleep(0.02)
            with lock:
                running -= 1

    async def calls() -> None:
        both.wait(10)
        await asyncio.gather(*(call() for _ in range(15)))

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(asyncio.run, calls()) for _ in range(2)]:
            done.result(60)
    assert most == 3
    assert all_free(client, slots, 3)
    # Also a third, which begins when those are closed.
    assert asyncio.run(_acquire(shared, slots))


async def _acquire(client: sluice.AsyncClient, slots: str) -> bool:
    grant = await client.acquire(slots)
    assert isinstance(grant, sluice.AsyncGrant)
    async with grant:
        return True


async def test_an_operation_is_begun_when_it_is_awaited(
    client: sluice.Client, aclient: sluice.AsyncClient, declare: Declare
) -> None:
    rpm = declare(sluice.Limit.requests(10, per=DAY))
    forgotten = aclient.acquire(rpm)
    await asyncio.sleep(0.1)
    assert level(client, rpm) == 10
    forgotten.close()
    operation = aclient._native.acquire([rpm], None, None, None, None)
    await operation
    with pytest.raises(RuntimeError, match="begun before"):
        await operation


async def test_threads_and_tasks_may_share_a_connection(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=1_000))
    assert isinstance(await sluice.AsyncClient.sharing(client).acquire(rpm), sluice.AsyncGrant)
    assert isinstance(client.acquire(rpm), sluice.RetryIn)
