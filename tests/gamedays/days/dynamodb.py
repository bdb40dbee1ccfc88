"""What DynamoDB does: it is silent, fails, throttles, is slow, or its clock is off."""

import threading
import time
from collections.abc import Callable

from day import Day, day, expect, first_line
from days.game_day import BUCKET, LIMITS, Seen
from judged import HOUR
from lab import Lab


def table_throttled(lab: Lab) -> Seen:
    with day(lab, "throttled", timeout_secs=12) as this:
        this.shell(LIMITS)
        this.sweep()
        calls = this.caller("calls", BUCKET, 30, SLUICE_LEASE_TTL="10")
        time.sleep(3)
        this.begin("broken")
        this.gate.throttled = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")
        began = time.monotonic()
        said = this.shell(f"sluice run {BUCKET} --wait 2s -- true", fails=None)
        waited = time.monotonic() - began
        ended = this.try_sweep()
        time.sleep(max(0.0, 12 - (time.monotonic() - began)))
        this.gate.throttled = ()
        this.begin("mended")
        counts = this.heard(calls)
        expect(counts["after"] > 5, "the caller did not go on by itself", counts)
        time.sleep(13)
        this.sweep()
        left = (this.table.tokens(BUCKET), this.table.leases())
        expect(left == ("5", set()), "a slot is lost for good", left)
        seen = f"{counts['granted']} grants and {counts['errors']} errors; it went on; every slot is back"
        quick = f"A caller that waits for 2 s ended after {waited:.1f} s: {first_line(said)}"
        return this.phases, f"{seen}. {quick}. The sweep: {ended[:80]}"


def dynamodb_silent(lab: Lab) -> Seen:
    with day(lab, "silent", timeout_secs=12) as this:
        return without_dynamodb(this, this.gate.silent.set, this.gate.silent.clear)


def dynamodb_fails(lab: Lab) -> Seen:
    with day(lab, "failing", timeout_secs=12) as this:
        return without_dynamodb(
            this,
            lambda: setattr(this.gate, "is_failing", True),
            lambda: setattr(this.gate, "is_failing", False),
        )


def without_dynamodb(this: Day, take_away: Callable, give_back: Callable) -> Seen:
    this.shell(LIMITS)
    this.sweep()
    calls = this.caller("calls", "openai#rpm", 34)
    time.sleep(3)
    this.begin("broken")
    take_away()
    doctor: list[str] = []
    asks = threading.Thread(target=lambda: doctor.append(this.shell("timeout 30 sluice doctor", fails=None)))
    asks.start()
    began = time.monotonic()
    failed = this.failing_sweep()
    # Callers print every ten seconds.
    time.sleep(max(0.0, 12 - (time.monotonic() - began)))
    lasted = time.monotonic() - began
    give_back()
    this.begin("mended")
    asks.join()
    counts = this.heard(calls)
    expect(
        counts["after"] > 0 and counts["errors"] > 0,
        "the caller did not fail, or did not go on by itself",
        counts,
    )
    this.sweep()
    failures = (
        f"{counts['errors']} calls failed in {lasted:.0f} s, the slowest after {counts['slowest']:.1f} s"
    )
    went = f"{failures}; {counts['after']} went on by themselves"
    return this.phases, f"{went}. Doctor: {first_line(doctor[0])}. The run: {failed[:80]}"


def dynamodb_slow(lab: Lab) -> Seen:
    """So slow that no sweep is done in its time."""
    with day(lab, "slow", timeout_secs=3) as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.gate.delay_secs = 0.5
        report = this.sweep()
        expect(
            report["deadline_hit"] and report["segments_unscanned"] > 0, "the sweep was done in time", report
        )
        this.begin("mended")
        this.gate.delay_secs = 0.0
        this.sweep()
        return (
            this.phases,
            f"after {report['duration_ms']} ms {report['segments_unscanned']} of 16 segments were unscanned",
        )


def clock_off(lab: Lab) -> Seen:
    with day(lab, "clock") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        this.gate.ahead = HOUR
        report = this.sweep()
        expect(
            abs(report["clock_offset_ms"] - HOUR * 1000) < 5_000, "the sweep does not see the offset", report
        )
        this.shell(f"sluice run {BUCKET} openai#rpm -- true")
        said = this.shell("sluice doctor", fails=True)
        expect("clock" in said, "doctor does not name the clock", said)
        this.begin("mended")
        this.gate.ahead = 0
        # The bucket's anchor is an hour ahead now.
        began = time.monotonic()
        this.shell("sluice run openai#rpm --wait 20s -- true")
        waited = time.monotonic() - began
        this.sweep()
        return (
            this.phases,
            f"calls went on; doctor names the clock; the first call after the clocks agreed waited "
            f"{waited:.1f} s",
        )
