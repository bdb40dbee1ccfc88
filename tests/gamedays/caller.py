"""A product in Python that prints its metrics (SLUICE_METRICS=emf): caller.py WHAT BUCKET HOW_MUCH. Ends with a line of what it counted."""

import json
import sys
import time

import sluice


def calls(client, bucket: str, seconds: float) -> dict:
    """One call after the other; those after the last error are `after`."""
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
        time.sleep(0.5)
    return counts


def hammers(client, bucket: str, seconds: float) -> dict:
    """Holds what there is, and asks again at once."""
    held, counts = [], {"errors": 0}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = client.acquire(bucket)
        if isinstance(answer, sluice.Grant):
            held.append((answer, time.monotonic() + 1))
        else:
            counts["errors"] += 1
            time.sleep(0.01)
        for grant, until in [one for one in held if one[1] < time.monotonic()]:
            grant.release()
            held.remove((grant, until))
    return counts


def poisons(client, bucket: str, times: float) -> dict:
    """A vendor whose replies make no sense: refused for a day, nothing left, a limit of one."""
    headers = {"retry-after": "86400", "x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "24h"}
    grants = [client.acquire(bucket) for _ in range(int(times))]
    for grant in grants:
        grant.reply(sluice.Reply(429, headers))
    return {"errors": len(grants)}


what, bucket, how_much = sys.argv[1:]
with sluice.Client.from_env() as client:
    counts = {"calls": calls, "hammers": hammers, "poisons": poisons}[what](client, bucket, float(how_much))
print(json.dumps({"counts": counts}), flush=True)
