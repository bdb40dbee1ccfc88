"""A worker of `run` in Python, with the package `sluice`: threads that acquire, hold and release until the time is over.
If there are several buckets, every second thread waits in a slot for all of them, and tells how many tokens it used.

worker.py HISTORY SECONDS
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
import uuid
from datetime import datetime

import sluice

THREADS = int(os.environ.get("WORKERS", "4"))
# A slot does not tell when its lease ends: at the earliest so long after it was asked for, since ends are whole seconds.
LEAST_LEASE_MICROS = (int(os.environ.get("SLUICE_LEASE_TTL", "300")) - 1) * 10**6


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def main(history: str, seconds: float) -> None:
    wants = json.loads(os.environ["WANTS"])
    until = time.monotonic() + seconds
    lock = threading.Lock()
    client = sluice.Client.from_env(caller="python")

    with open(history, "w") as file:

        lines = 0

        def write_lines(*texts: str) -> None:
            nonlocal lines
            with lock:
                file.write("".join(f"{text}\n" for text in texts))
                file.flush()
                lines += len(texts)

        def write(event: str, **fields: object) -> None:
            write_lines(json.dumps({"event": event, **fields}))

        def refused(dimensions: list[str], asked: int, *, booked: bool = False, **error: str) -> None:
            write(
                "refused", process=f"python-{os.getpid()}", dimensions=dimensions, asked_at_micros=asked,
                at_micros=time.time_ns() // 1_000, booked=booked, **error,
            )

        write_lines(os.environ["HISTORY_HEADER"])

        def work() -> None:
            while time.monotonic() < until:
                dimension, cost = random.choice(list(wants.items()))
                asked = time.time_ns() // 1_000
                try:
                    grant = client.acquire(dimension, costs={dimension: cost})
                except sluice.StoreError as error:
                    refused([dimension], asked, error=str(error))
                    time.sleep(0.05)
                    continue
                if isinstance(grant, sluice.RetryIn):
                    refused([dimension], asked)
                    time.sleep(min(grant.wait, 0.2))
                    continue
                name = uuid.uuid4().hex
                ends = {} if grant.lease_ends is None else {"ends_at_micros": micros(grant.lease_ends)}
                write(
                    "granted", id=name, process=f"python-{os.getpid()}", dimension=dimension, cost_micros=cost * 10**6,
                    asked_at_micros=asked, granted_at_micros=time.time_ns() // 1_000,
                    start_at_micros=micros(grant.start_at), booked=False, **ends,
                )
                time.sleep(random.uniform(0.005, 0.015))
                write("released", id=name, dimension=dimension, at_micros=time.time_ns() // 1_000, how="released")
                # If that fails, the sweep gives back what the lease holds.
                with contextlib.suppress(sluice.LimitError):
                    grant.release()

        def wait() -> None:
            while time.monotonic() < until:
                # Without a pause, bookings would leave nothing to callers that do not wait.
                time.sleep(random.uniform(0.5, 1))
                asked, has_begun = time.time_ns() // 1_000, False
                try:
                    with client.slot(*wants, costs=wants, max_wait=2) as slot:
                        has_begun = True
                        call(slot, asked)
                except sluice.LimitError as error:
                    # At the end of the slot: the sweep gives back what the lease holds.
                    if has_begun:
                        continue
                    if not isinstance(error, (sluice.RefusedError, sluice.StoreError)):
                        raise
                    of = {} if isinstance(error, sluice.RefusedError) else {"error": str(error)}
                    refused(list(wants), asked, booked=True, **of)

        def call(slot: sluice.Slot, asked: int) -> None:
            name, granted = uuid.uuid4().hex, time.time_ns() // 1_000
            # Each rate bucket has a start of its own.
            starts = {dimension: micros(slot.start_in(dimension) or slot.start_at) for dimension in wants}
            write_lines(*(
                json.dumps({
                    "event": "granted", "id": name, "process": f"python-{os.getpid()}", "dimension": dimension,
                    "cost_micros": cost * 10**6, "asked_at_micros": asked, "granted_at_micros": granted,
                    "start_at_micros": starts[dimension], "booked": True,
                    "ends_at_micros": max(granted, asked + LEAST_LEASE_MICROS),
                })
                for dimension, cost in wants.items()
            ))
            time.sleep(random.uniform(0.005, 0.015))
            for dimension, cost in wants.items():
                if dimension.endswith("#tpm"):
                    used = random.randint(cost // 2, cost)
                    slot.used(dimension, used)
                    write(
                        "settled", id=name, dimension=dimension, at_micros=time.time_ns() // 1_000,
                        used_micros=used * 10**6,
                    )
            ended = time.time_ns() // 1_000
            write_lines(*(
                json.dumps({"event": "released", "id": name, "dimension": dimension, "at_micros": ended, "how": "released"})
                for dimension in wants
            ))

        works = [wait if caller % 2 and len(wants) > 1 else work for caller in range(THREADS)]
        threads = [threading.Thread(target=of) for of in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        write("end", events=lines)
    client.close()


main(sys.argv[1], float(sys.argv[2]))
