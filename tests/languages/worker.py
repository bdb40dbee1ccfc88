"""A worker of `run` in Python, with the package `sluice`: threads that acquire, hold and release until the time is over.

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


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def main(history: str, seconds: float) -> None:
    wants = json.loads(os.environ["WANTS"])
    until = time.monotonic() + seconds
    lock = threading.Lock()
    client = sluice.Client.from_env(caller="python")

    with open(history, "w") as file:

        lines = 0

        def write_line(line: str) -> None:
            nonlocal lines
            with lock:
                file.write(line + "\n")
                file.flush()
                lines += 1

        def write(event: str, **fields: object) -> None:
            write_line(json.dumps({"event": event, **fields}))

        def refused(dimension: str, asked: int, **error: str) -> None:
            write(
                "refused", process=f"python-{os.getpid()}", dimensions=[dimension], asked_at_micros=asked,
                at_micros=time.time_ns() // 1_000, booked=False, **error,
            )

        write_line(os.environ["HISTORY_HEADER"])

        def work() -> None:
            while time.monotonic() < until:
                dimension, cost = random.choice(list(wants.items()))
                asked = time.time_ns() // 1_000
                try:
                    grant = client.acquire(dimension, costs={dimension: cost})
                except sluice.StoreError as error:
                    refused(dimension, asked, error=str(error))
                    time.sleep(0.05)
                    continue
                if isinstance(grant, sluice.RetryIn):
                    refused(dimension, asked)
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

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        write("end", events=lines)
    client.close()


main(sys.argv[1], float(sys.argv[2]))
