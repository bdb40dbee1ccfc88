"""A worker of `run` that follows the reference document to the letter, with boto3 alone: read, compute, one transaction, and
a release that deletes the lease. It knows nothing of anchors in microseconds, bookings, or lanes.

reference.py HISTORY SECONDS
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from decimal import Decimal

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

TABLE = f"ontopix-vendor-buckets-{os.environ['SLUICE_ENV']}"
LEASE_TTL = 5
MAX_RETRIES = 5

# Boto's own four tries are too few where one request in seven meets a fault.
dynamo = boto3.client(
    "dynamodb", region_name="eu-central-1", endpoint_url=os.environ.get("SLUICE_ENDPOINT_URL"),
    config=Config(retries={"max_attempts": 10, "mode": "standard"}),
)


def number(value: object) -> dict[str, str]:
    return {"N": format(value, "f") if isinstance(value, Decimal) else str(value)}


def acquire(dimension: str, cost: int) -> tuple[str, float, int] | float:
    """The lease with the time of the grant and the lease's end, or in how many seconds to come back."""
    key = {"vendor_dimension": {"S": dimension}}
    for attempt in range(MAX_RETRIES):
        row = dynamo.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
        capacity, stored = Decimal(row["capacity"]["N"]), Decimal(row["tokens"]["N"])
        rate, last = Decimal(row["refill_rate"]["N"]), Decimal(row["last_refill_at"]["N"])
        version, is_slot = int(row["version"]["N"]), row["limit_type"]["S"] == "concurrent"
        now = Decimal(time.time_ns() // 1_000) / 10**6
        tokens = stored if is_slot else min(capacity, stored + max(now - last, Decimal(0)) * rate)
        tokens = tokens.quantize(Decimal("0.000001"), rounding="ROUND_DOWN")
        if tokens < cost:
            return 1.0 if is_slot else float((cost - tokens) / rate)
        lease, ends = f"lease#{dimension}#{uuid.uuid4().hex[:8]}", int(time.time()) + LEASE_TTL
        # Time does not go back, also where another clock is ahead.
        at = last if is_slot else max(now, last)
        update = {
            "TableName": TABLE,
            "Key": key,
            "UpdateExpression": "SET tokens = :tokens, last_refill_at = :now, version = :next",
            "ConditionExpression": "version = :expected",
            "ExpressionAttributeValues": {
                ":tokens": number(tokens - cost), ":now": number(at), ":next": number(version + 1),
                ":expected": number(version),
            },
        }
        item = {
            "vendor_dimension": {"S": lease}, "dimension": {"S": dimension}, "cost": number(cost),
            "created_at": number(int(time.time())), "ttl": number(ends), "caller": {"S": "reference"},
        }
        try:
            dynamo.transact_write_items(
                TransactItems=[{"Update": update}, {"Put": {"TableName": TABLE, "Item": item}}]
            )
            return lease, float(at), ends
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionCanceledException":
                raise
            time.sleep(random.uniform(0, min(0.2, 0.025 * 2**attempt)))
    return 0.2


def release(dimension: str, lease: str, cost: int) -> None:
    """Deletes the lease; slots come back with it."""
    delete = {
        "TableName": TABLE, "Key": {"vendor_dimension": {"S": lease}},
        "ConditionExpression": "attribute_exists(vendor_dimension)",
    }
    restore = {
        "TableName": TABLE, "Key": {"vendor_dimension": {"S": dimension}},
        "UpdateExpression": "SET tokens = tokens + :cost, version = version + :one",
        "ExpressionAttributeValues": {":cost": number(cost), ":one": number(1)},
    }
    actions = [{"Delete": delete}] + ([{"Update": restore}] if dimension.endswith("concurrent") else [])
    for attempt in range(50):
        try:
            dynamo.transact_write_items(TransactItems=actions)
            return
        except ClientError as error:
            reasons = [reason["Code"] for reason in error.response.get("CancellationReasons", [])]
            if "ConditionalCheckFailed" in reasons:
                return
            time.sleep(random.uniform(0, min(0.2, 0.025 * 2**attempt)))
    raise RuntimeError(f"{lease} was not released")


def main(history: str, seconds: float) -> None:
    wants = json.loads(os.environ["WANTS"])
    until = time.monotonic() + seconds
    with open(history, "w") as file:

        lines = 0

        def write_line(line: str) -> None:
            nonlocal lines
            file.write(line + "\n")
            file.flush()
            lines += 1

        def write(event: str, **fields: object) -> None:
            write_line(json.dumps({"event": event, **fields}))

        write_line(os.environ["HISTORY_HEADER"])

        while time.monotonic() < until:
            dimension, cost = random.choice(list(wants.items()))
            asked = time.time_ns() // 1_000
            outcome = acquire(dimension, cost)
            if isinstance(outcome, float):
                write(
                    "refused", process=f"reference-{os.getpid()}", dimensions=[dimension], asked_at_micros=asked,
                    at_micros=time.time_ns() // 1_000, booked=False,
                )
                time.sleep(min(outcome, 0.2))
                continue
            lease, start, ends = outcome
            granted = time.time_ns() // 1_000
            is_slot = dimension.endswith("concurrent")
            write(
                "granted", id=lease, process=f"reference-{os.getpid()}", dimension=dimension, cost_micros=cost * 10**6,
                asked_at_micros=asked, granted_at_micros=granted, start_at_micros=round(start * 1e6) if not is_slot else granted,
                booked=False, **({"ends_at_micros": ends * 10**6} if is_slot else {}),
            )
            time.sleep(random.uniform(0.005, 0.015))
            write("released", id=lease, dimension=dimension, at_micros=time.time_ns() // 1_000, how="released")
            release(dimension, lease, cost)
        write("end", events=lines)


main(sys.argv[1], float(sys.argv[2]))
