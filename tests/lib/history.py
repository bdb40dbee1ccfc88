"""The buckets that workers of several languages or commits share, and their common history."""

import json
import pathlib
import sys
import time

from sandbox import LEASE_TTL_SECS, Sandbox

SLOTS = "mixed#concurrent"
# Dimension, kind, capacity, refill a second, and what a call takes. Twice the rates are asked for, and more
# slots than there are.
BUCKETS = [
    ("mixed#rpm", "requests", 50, 20, 1),
    ("mixed#tpm", "tokens", 4_000, 2_000, 100),
    (SLOTS, "concurrent", 6, 0, 1),
]
# The clocks by which clients plan, and the times of the events: one machine, but grants of slots are stated
# to the second.
CLOCK_ERROR_MICROS, STAMP_ERROR_MICROS = 50_000, 1_000


def limits(folder: pathlib.Path) -> pathlib.Path:
    lines = []
    for dimension, kind, capacity, rate, cost in BUCKETS:
        lines += ["[[bucket]]", f'dimension = "{dimension}"', f'type = "{kind}"', f"capacity = {capacity}"]
        lines += [f"refill_rate = {rate}"] if rate else []
        lines += [f"cost_per_call = {cost}"]
    file = folder / "limits.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def held(events: list) -> list:
    """What was granted of a bucket and not released."""
    ends = {(event["id"], event["dimension"]) for event in events if event["event"] == "released"}
    return [
        event
        for event in events
        if event["event"] == "granted" and (event["id"], event["dimension"]) not in ends
    ]


def head() -> dict:
    return {
        "event": "history",
        "version": 2,
        "clock_error_micros": CLOCK_ERROR_MICROS,
        "stamp_error_micros": STAMP_ERROR_MICROS,
    }


def limit(bucket: tuple, began: int) -> dict:
    dimension, kind, capacity, rate, _ = bucket
    return {
        "event": "limit",
        "dimension": dimension,
        "kind": kind,
        "capacity_micros": capacity * 10**6,
        "refill_pico_per_sec": rate * 10**12,
        "from_micros": began,
    }


def died(grant: dict, at: int) -> dict:
    return {
        "event": "released",
        "id": grant["id"],
        "dimension": grant["dimension"],
        "at_micros": max(at, grant["granted_at_micros"]),
        "how": "died",
    }


def read(file: pathlib.Path, is_whole: bool = False) -> list:
    """The events of a worker, without what begins and ends its file. Only a killed worker's may lack the end."""
    # The last line of a killed worker may be half of one.
    lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    events = [json.loads(line) for line in lines]
    if is_whole and not (events and events[-1] == {"event": "end", "events": len(events) - 1}):
        sys.exit(f"{file} has no end record, or not after its last event")
    return [event for event in events if event["event"] not in ("history", "limit", "end")]


def save(file: pathlib.Path, events: list) -> pathlib.Path:
    """Writes a history, with its end."""
    events = [*events, {"event": "end", "events": len(events)}]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


def healed(sandbox: Sandbox) -> bool:
    """Whether what killed workers held is back after a sweep."""
    until = time.monotonic() + LEASE_TTL_SECS + 33
    capacity = next(capacity for dimension, _, capacity, _, _ in BUCKETS if dimension == SLOTS)
    while time.monotonic() < until:
        sandbox.sluice("reconcile", "--once")
        bucket = json.loads(sandbox.sluice("buckets", "show", SLOTS, "--json"))
        leases = json.loads(sandbox.sluice("leases", "--json"))
        left = leases if isinstance(leases, list) else leases.get("leases", [])
        if float(bucket["level"]) == capacity and not left:
            print(f"healed: {capacity} of {capacity} slots are free, and no lease is left")
            return True
        time.sleep(1)
    print(f"not healed: {bucket['level']} of {capacity} slots are free, {len(left)} leases are left")
    return False
