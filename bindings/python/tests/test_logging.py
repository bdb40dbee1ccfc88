"""Events of the SDK arrive in the logger `sluice`."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time

import pytest

import sluice

from conftest import Declare, eventually


def test_events_are_records_with_fields(
    client: sluice.Client, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    rpm = declare(sluice.Limit.requests(100))
    with caplog.at_level(logging.WARNING, "sluice"), client.slot(rpm) as slot:
        slot.reply(sluice.Reply(429, {"retry-after": "3"}))
        found = "vendor.refused"
        assert eventually(lambda: any(getattr(record, "event", "") == found for record in caplog.records))
    record = next(record for record in caplog.records if getattr(record, "event", "") == found)
    assert (record.name, record.levelname) == ("sluice", "WARNING")
    assert record.fields["dimensions"] == rpm  # type: ignore[attr-defined]
    assert f"{found} dimensions={rpm} refusal=Rate" in record.getMessage()


def test_the_level_of_the_logger_is_followed(
    client: sluice.Client, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    rpm = declare(sluice.Limit.requests(100))

    def is_logged() -> bool:
        other = sluice.Client.from_env()
        other.acquire(rpm)
        other.close(1)
        return any(getattr(record, "event", "") == "client.closed" for record in caplog.records)

    with caplog.at_level(logging.INFO, "sluice"):
        assert eventually(is_logged), "INFO is logged within a second of the change"


def test_the_first_client_of_a_process_warns_of_a_misspelt_setting() -> None:
    program = "import logging, sluice; logging.basicConfig(); sluice.Client.from_env().close(1)"
    settings = {**os.environ, "SLUICE_LEASE_TLL": "5s"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=settings, stderr=subprocess.PIPE, text=True, timeout=30, check=True
    )
    assert "WARNING:sluice:settings.misspelt" in done.stderr, done.stderr
    assert "SLUICE_LEASE_TLL" in done.stderr


def test_records_that_find_no_room_are_counted(
    client: sluice.Client, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    rpm = declare(sluice.Limit.requests(1, per=86_400.0))
    may_write = threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            may_write.wait(30)

    logger, slow = logging.getLogger("sluice"), Slow()
    logger.addHandler(slow)
    try:
        with caplog.at_level(logging.DEBUG, "sluice"):
            # The level is followed within a second.
            time.sleep(1.1)
            for _ in range(11_000):
                client.acquire(rpm)
            may_write.set()

            def dropped() -> list[int]:
                client.acquire(rpm)
                records = [record for record in caplog.records if getattr(record, "event", "") == "log.dropped"]
                return [int(record.fields["records"]) for record in records]  # type: ignore[attr-defined]

            assert eventually(lambda: bool(dropped()), 20)
            assert 0 < dropped()[0] <= 1_100
    finally:
        logger.removeHandler(slow)
        may_write.set()


async def test_a_logger_that_fails_fails_nothing_else(
    aclient: sluice.AsyncClient, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    rpm = declare(sluice.Limit.requests(100))

    def fail(*_: object, **__: object) -> None:
        raise OSError("no disk")

    unraisable: list[object] = []
    monkeypatch.setattr(logging.getLogger("sluice"), "log", fail)
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    async with aclient.slot(rpm) as slot:
        await slot.reply(sluice.Reply(429, {"retry-after": "3"}))
        for _ in range(100):
            await asyncio.sleep(0.02)
            if unraisable:
                break
    assert unraisable
