"""A product in Python that prints its metrics (SLUICE_METRICS=emf): caller.py WHAT BUCKET HOW_MUCH. Its last
line is what it counted.
"""

import json
import sys
import threading
import time

import sluice


def calls(client, bucket: str, seconds: float) -> dict:
    """One call after the other. `after`: calls since the last error."""
    counts = {"granted": 0, "errors": 0, "after": 0, "slowest": 0.0}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            answer = client.acquire(bucket)
            if isinstance(answer, sluice.Grant):
                answer.release()
                counts["granted"] += 1
                counts["after"] += 1
        except sluice.Error:
            counts["errors"] += 1
            counts["after"] = 0
            counts["slowest"] = max(counts["slowest"], time.monotonic() - began)
        time.sleep(0.2)
    return counts


def hammers(client, bucket: str, seconds: float) -> dict:
    """Asks again at once, in eight threads, and holds what it gets for a second."""
    refused = [0] * 8

    def hammer(number: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = client.acquire(bucket)
            if isinstance(answer, sluice.Grant):
                time.sleep(1)
                answer.release()
            else:
                refused[number] += 1
                time.sleep(0.005)

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(len(refused))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"refused": sum(refused)}


def poisoned(client, bucket: str, times: float) -> dict:
    """A vendor whose replies make no sense: refused for a day, nothing left, a limit of one."""
    headers = {
        "retry-after": "86400",
        "x-ratelimit-limit-requests": "1",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "24h",
    }
    grants = [client.acquire(bucket) for _ in range(int(times))]
    for grant in grants:
        grant.reply(sluice.Reply(429, headers))
    return {"replies": len(grants)}


def holds(client, bucket: str, seconds: float) -> dict:
    """One call that lasts so long, without the time for which the process stands still."""
    with client.acquire(bucket) as grant:
        for _ in range(int(seconds * 10)):
            time.sleep(0.1)
        return {"lost": int(grant.is_lease_lost)}


def asks(client, bucket: str, seconds: float) -> dict:
    """Asks whether requests that must be done within a second are worth beginning."""
    counts = {"admitted": 0, "shed": 0}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        is_shed = isinstance(client.admit(bucket, slo=1), sluice.Shed)
        counts["shed" if is_shed else "admitted"] += 1
        time.sleep(0.2)
    return counts


what, bucket, how_much = sys.argv[1:]
with sluice.Client.from_env() as client:
    kinds = {one.__name__: one for one in (calls, hammers, poisoned, holds, asks)}
    counts = kinds[what](client, bucket, float(how_much))
print(json.dumps({"counts": counts}), flush=True)
