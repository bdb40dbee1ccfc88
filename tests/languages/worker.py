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

THREADS = 4


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def main(history: str, seconds: float) -> None:
    wants = json.loads(os.environ["WANTS"])
    until = time.monotonic() + seconds
    lock = threading.Lock()
    client = sluice.Client.from_env(caller="python")

    with open(history, "w") as file:

        def write(event: str, **fields: object) -> None:
            with lock:
                file.write(json.dumps({"event": event, **fields}) + "\n")
                file.flush()

        def work() -> None:
            while time.monotonic() < until:
                dimension, cost = random.choice(list(wants.items()))
                asked = time.time_ns() // 1_000
                try:
                    grant = client.acquire(dimension, costs={dimension: cost})
                except sluice.StoreError:
                    time.sleep(0.05)
                    continue
                if isinstance(grant, sluice.RetryIn):
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
    client.close()


main(sys.argv[1], float(sys.argv[2]))
