"""What becomes of slots: held for nothing, lost, given back twice."""

import signal
import subprocess
import time

import judged
from day import TABLE, Day, day, expect, key, of_runbook
from days.game_day import BUCKET, LIMITS, Seen
from judged import HOUR
from lab import Lab, lease, slots


def slots_held(lab: Lab) -> Seen:
    """100 slots whose holders renew and do nothing."""
    bucket = "leaky#concurrent"
    with day(lab, "held") as this:
        this.table.put([slots(bucket, 120, 120)])
        this.sweep()
        this.sweep()
        this.begin("broken")
        leases = [lease(bucket, number, ends_in=3 * HOUR) for number in range(100)]
        this.table.put(leases)
        this.table.set_tokens(bucket, 20)
        expect(nothing_moves(this, bucket) == 100, "the sweeps do not suspect the leak")
        said = this.shell(of_runbook("leak", "sluice leases --json"))
        expect(said.count(bucket) >= 100, "`sluice leases` does not show the holders", said[:300])
        this.begin("mended")
        # One by hand, and the holders of the others are ended: nobody renews their leases.
        example = {"elevenlabs#concurrent#0193...": f"{bucket}#00000007"}
        this.shell(of_runbook("leak", "delete-item", "reconcile --once", changed=example))
        expect(
            this.table.tokens(bucket) == "21",
            "the slot is not back after two sweeps",
            this.table.tokens(bucket),
        )
        this.table.put([lease(bucket, number) for number in range(100) if number != 7])
        this.sweep()
        expect(this.table.tokens(bucket) == "120", "slots are not back", this.table.tokens(bucket))
        this.sweep()
        return (
            this.phases,
            "`sluice leases` shows all holders; one lease given back by hand came back with the second "
            "sweep, as written",
        )


def nothing_moves(this: Day, bucket: str) -> float:
    """Sweeps until they suspect a leak; of how many slots. Each finds the load row an interval older."""
    leaked = this.sweep()["leaked"]
    for _ in range(8):
        if leaked:
            break
        earlier(this, f"load#{bucket}", judged.INTERVAL)
        leaked = this.sweep()["leaked"]
    return leaked.get(bucket, 0.0)


def earlier(this: Day, row: str, seconds: int) -> None:
    """Moves the instants of a load row back."""
    of_row = this.table.rows()[row]
    for name in ("measured_at", "pending_since", "departed_at", "still_since"):
        if float(of_row.get(name, {"N": "0"})["N"]):
            change = {
                "UpdateExpression": f"SET {name} = {name} - :s",
                "ExpressionAttributeValues": {":s": {"N": str(seconds)}},
            }
            this.db.update_item(TableName=TABLE, Key=key(row), **change)


def slots_lost(lab: Lab) -> Seen:
    """100 slots that no lease explains."""
    bucket = "leaky#concurrent"
    with day(lab, "lost") as this:
        this.table.put([slots(bucket, 120, 120)])
        this.sweep()
        this.sweep()
        this.begin("broken")
        this.table.set_tokens(bucket, 20)
        found = this.sweep()
        expect(found["drift"] == {bucket: 100.0}, "the sweep does not find the drift", found)
        corrected = this.sweep()
        expect(corrected["corrected"] == {bucket: 100.0}, "the second sweep does not correct it", corrected)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(bucket) == "120", "slots are not back", this.table.tokens(bucket))
        return this.phases, "the second sweep gave all slots back: nobody has to act"


def callers_crash(lab: Lab) -> Seen:
    """Four in each interval of the schedule."""
    with day(lab, "crash") as this:
        this.shell(LIMITS)
        this.sweep()
        this.begin("broken")
        crash(this, 4)
        time.sleep(4)
        report = this.sweep()
        expect(report["restored_slots"] == 4, "the sweep does not give the slots back", report)
        shown = this.shell("sluice watch --once", COLUMNS="130")
        expect(BUCKET in shown, "`sluice watch` does not show the bucket", shown)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "slots are not back", this.table.tokens(BUCKET))
        return this.phases, "the next sweep gave all four slots back"


def crash(this: Day, callers: int) -> None:
    """Callers that are killed while each holds a slot, with leases of a second."""
    command = ["bash", "-c", f"exec sluice acquire {BUCKET} --hold 60s"]
    free = int(this.table.tokens(BUCKET))
    environment = this.environment(SLUICE_LEASE_TTL="1s", SLUICE_SELF_HEAL="off")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    holders = [subprocess.Popen(command, env=environment, **quiet) for _ in range(callers)]
    try:
        end = time.monotonic() + 20
        while int(this.table.tokens(BUCKET)) > free - callers:
            expect(time.monotonic() < end, "the callers do not hold their slots")
            time.sleep(0.1)
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def holder_frozen(lab: Lab) -> Seen:
    """A process that stands still for longer than its lease lasts, and goes on."""
    with day(lab, "frozen") as this:
        this.shell(LIMITS)
        this.sweep()
        this.sweep()
        this.begin("broken")
        holder = this.caller("holds", BUCKET, 6, SLUICE_LEASE_TTL="2s")
        end = time.monotonic() + 10
        while this.table.tokens(BUCKET) == "5":
            expect(time.monotonic() < end, "the caller does not hold a slot")
            time.sleep(0.1)
        # Until the holder has its answer: it would take another slot for one whose lease has ended.
        time.sleep(0.5)
        holder.send_signal(signal.SIGSTOP)
        time.sleep(5)
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "the slot is not given back", this.table.tokens(BUCKET))
        holder.send_signal(signal.SIGCONT)
        counts = this.heard(holder)
        expect(counts["lost"] == 1, "the holder does not know that its lease is gone", counts)
        report = this.sweep()
        expect(report["outlived"] == 1, "the sweep does not report the holder", report)
        this.begin("mended")
        this.sweep()
        expect(
            this.table.tokens(BUCKET) == "5", "the late release changed the bucket", this.table.tokens(BUCKET)
        )
        return (
            this.phases,
            "the slot was given back once; the holder's late release changed nothing",
        )


def given_back_twice(lab: Lab) -> Seen:
    """A client that gives slots back and leaves its leases."""
    with day(lab, "twice") as this:
        this.table.put([slots(BUCKET, 5, 5)])
        this.sweep()
        this.begin("broken")
        this.table.put([lease(BUCKET, 1)])
        report = this.sweep()
        expect(report["already_capped"] == 1, "the sweep does not report the lease", report)
        this.begin("mended")
        this.sweep()
        expect(this.table.tokens(BUCKET) == "5", "the bucket has another level", this.table.tokens(BUCKET))
        return this.phases, "the lease was deleted, and no slot was added"
