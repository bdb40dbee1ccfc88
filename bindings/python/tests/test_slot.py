"""Slots give back what they held on every way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import sluice

from conftest import Declare, all_free, eventually, level

DAY = 86_400.0


def test_a_slot_is_held_for_its_block(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    with client.slot(slots) as slot:
        assert level(client, slots) == 1
        assert not slot.is_lease_lost
        assert slot.basis == "table"
        assert slot.start_at <= client.now()
        assert slot.start_in(slots) is None
        assert slot.acquiring >= 0
    assert level(client, slots) == 2
    tpm = declare(sluice.Limit.tokens(100, per=DAY), "tpm")
    with client.slot(tpm, costs={tpm: 10}) as ended:
        pass
    with pytest.raises(sluice.EndedError, match="has ended"):
        ended.used(tpm, 5)


def test_a_slot_waits_for_its_start_and_no_longer_than_asked(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=0.6))
    began = time.monotonic()
    for _ in range(2):
        with client.slot(rpm):
            pass
    assert 0.5 < time.monotonic() - began < 5
    slow = declare(sluice.Limit.requests(1, per=100))
    with client.slot(slow):
        pass
    with pytest.raises(sluice.RefusedError, match="no start within the wait") as refused, client.slot(slow, max_wait=1):
        pytest.fail("the block ran")
    assert refused.value.retry.reason == "exhausted"
    assert refused.value.delay_seconds == refused.value.retry.delay_seconds > 90


def test_a_failed_call_gives_its_tokens_back_and_an_answered_one_keeps_them(
    client: sluice.Client, declare: Declare
) -> None:
    tpm = declare(sluice.Limit.tokens(1_000, per=DAY), "tpm")
    with pytest.raises(KeyError), client.slot(tpm, costs={tpm: 400}):
        raise KeyError
    assert level(client, tpm) == pytest.approx(1_000, abs=1)
    with pytest.raises(KeyError), client.slot(tpm, costs={tpm: 400}) as slot:
        slot.reply(sluice.Reply(200))
        raise KeyError
    assert level(client, tpm) == pytest.approx(600, abs=1)
    with client.slot(tpm, costs={tpm: 400}) as slot:
        slot.used(tpm, 100)
    assert level(client, tpm) == pytest.approx(500, abs=1)


def test_a_refusal_of_the_vendor_stops_the_fleet(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(100, per=DAY))
    with client.slot(rpm) as slot:
        replied = slot.reply(sluice.Reply(429, {"retry-after": "3"}, b"{}"))
    assert replied.decision.action == "retry_inline"
    assert replied.decision.wait == pytest.approx(3, abs=0.5)
    refused = client.acquire(rpm)
    assert isinstance(refused, sluice.RetryIn)
    assert refused.reason == "cooling_down"
    assert 2 < refused.wait <= 3
    client.end_cool_down(rpm)
    decision = client.on_rate_limited(rpm, reply=sluice.Reply(429, {"retry-after": "20"}))
    assert (decision.action, decision.delay_seconds) == ("requeue", 21)
    assert client.on_rate_limited(rpm, reply=sluice.Reply(200)).action == "not_refused"


def test_headers_of_a_reply_lower_a_bucket(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(500), vendor="openai", metric=f"model{os.getpid()}#rpm")
    headers = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "10"}
    with client.slot(rpm) as slot:
        assert slot.observe(rpm, headers).level == "lowered"
        assert slot.reply(sluice.Reply(200, headers)).observed[rpm].level in ("agrees", "stale")
    assert level(client, rpm) < 30
    grant = client.slot(rpm).grant()
    assert client.observe(rpm, {"x-ratelimit-remaining-requests": "5"}, grant=grant).level == "lowered"
    assert grant.observe(rpm, {"x-ratelimit-remaining-requests": "0"}).level == "lowered"
    grant.release()
    with pytest.raises(sluice.EndedError):
        grant.observe(rpm, headers)
    assert client.observe(rpm, headers).level == "no_grant"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler. A program that a shell starts in the background has none."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_wait_at_once_and_gives_back_what_it_had(client: sluice.Client, declare: Declare) -> None:
    slots, slow = declare(sluice.Limit.concurrent(1), "concurrent"), declare(sluice.Limit.requests(1, per=100))
    assert isinstance(client.acquire(slow), sluice.Grant)
    threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
    began = time.monotonic()
    # It has the slot, and waits for its booked start.
    with pytest.raises(KeyboardInterrupt), client.slot(slots, slow, max_wait=200):
        pytest.fail("the block ran")
    # The signal comes after half a second.
    assert time.monotonic() - began < 1.5
    assert all_free(client, slots, 1)
    assert eventually(lambda: level(client, slow) >= 0), "the booked start was not given back"


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_block_gives_the_slot_back(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    # The variable keeps the slot's object.
    with pytest.raises(KeyboardInterrupt), client.slot(slots) as _slot:
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)
    assert all_free(client, slots, 1)


def test_a_client_that_is_closed_in_a_block_is_an_error_unless_the_block_has_its_own(
    client: sluice.Client, declare: Declare
) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    ending = sluice.Client.from_env()
    with pytest.raises(sluice.ClosedError), ending.slot(slots):
        assert ending.close(0.2).cut_off
    ending = sluice.Client.from_env()
    with pytest.raises(KeyError, match="of the block"), ending.slot(slots):
        assert ending.close(0.2).cut_off
        raise KeyError("of the block")
    assert all_free(client, slots, 1)


def test_an_exception_and_an_exit_in_a_block_give_the_slot_back(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    with pytest.raises(KeyError), client.slot(slots):
        raise KeyError
    assert level(client, slots) == 1
    # The variable keeps the slot's object.
    with pytest.raises(SystemExit), client.slot(slots) as _slot:
        sys.exit(3)
    assert all_free(client, slots, 1)


def test_a_wait_that_is_over_leaves_nothing_on_a_concurrency_bucket(client: sluice.Client, declare: Declare) -> None:
    slots, slow = declare(sluice.Limit.concurrent(1), "concurrent"), declare(sluice.Limit.requests(1, per=100))
    assert isinstance(client.acquire(slow), sluice.Grant)
    held = client.acquire(slots)
    assert isinstance(held, sluice.Grant)
    # For the slot; and then with the slot, for the request.
    with pytest.raises(sluice.RefusedError), client.slot(slots, max_wait=0.3):
        pytest.fail("the block ran")
    held.release()
    with pytest.raises(sluice.RefusedError), client.slot(slots, slow, max_wait=0.3):
        pytest.fail("the block ran")
    assert all_free(client, slots, 1)


def test_what_a_process_held_that_was_killed_is_swept(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    program = (
        "import os, signal, sluice\n"
        f"with sluice.Client.from_env(lease_ttl=1).slot({slots!r}):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert level(client, slots) == 0
    assert all_free(client, slots, 1, swept=True)


def test_a_program_that_exits_in_a_block_gives_the_slot_back(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(1), "concurrent")
    program = f"import sluice, sys\nwith sluice.Client.from_env().slot({slots!r}):\n    sys.exit(3)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert level(client, slots) == 1


def test_a_wait_lets_other_threads_run(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=1))
    assert isinstance(client.acquire(rpm), sluice.Grant)
    counted = 0
    is_over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not is_over.is_set():
            counted += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    with client.slot(rpm):
        is_over.set()
    other.join()
    assert counted > 100


def test_threads_share_a_client(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(3), "concurrent")
    lock, running, most = threading.Lock(), 0, 0
    # Every call needs two others that run at the same time, however slow the machine is.
    together = threading.Barrier(3, timeout=60)

    def call() -> None:
        nonlocal running, most
        with client.slot(slots):
            with lock:
                running += 1
                most = max(most, running)
            together.wait()
            with lock:
                running -= 1

    threads = [threading.Thread(target=call) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, together.broken) == (3, False)
    assert all_free(client, slots, 3)


def test_the_end_of_the_program_gives_back_what_it_holds(client: sluice.Client, declare: Declare) -> None:
    slots = declare(sluice.Limit.concurrent(2), "concurrent")
    program = (
        "import ctypes, sluice; client = sluice.Client.from_env()\n"
        f"held = client.acquire({slots!r}); assert isinstance(held, sluice.Grant)\n"
        f"slot = client.slot({slots!r}).__enter__()\n"
        # Leaked: no object goes away by itself.
        "for kept in (client, held, slot): ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert level(client, slots) == 2


def test_a_thread_that_waits_does_not_disturb_the_end_of_the_program(client: sluice.Client, declare: Declare) -> None:
    rpm = declare(sluice.Limit.requests(1, per=1_000))
    program = (
        "import sluice, threading, time\n"
        "client = sluice.Client.from_env()\n"
        f"client.acquire({rpm!r})\n"
        "def wait():\n"
        "    try:\n"
        f"        client.slot({rpm!r}, max_wait=20_000).grant()\n"
        "    except sluice.ClosedError:\n"
        "        print('closed', flush=True)\n"
        "for _ in range(4): threading.Thread(target=wait, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
