"""What the scenarios stand on: servers that are ended for certain, a table with what callers leave in it, a deployed function."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import deploy

LOCALSTACK = Path(deploy.__file__).parent
START_SECS = 30
HOUR = 3_600


class Failed(Exception):
    """A promise that did not hold."""


def expect(holds: bool, message: str, *evidence: object) -> None:
    if not holds:
        shown = "".join(f"\n      {item}" for item in evidence)
        raise Failed(f"{message}{shown}")


class Server:
    """A program that listens on the loopback interface, in a process group of its own; ended with everything that it began."""

    def __init__(self, endpoint: str, log: Path, command: list[str | Path]):
        self.endpoint = endpoint
        self.log = log
        with log.open("w") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.process = subprocess.Popen(command, start_new_session=True, **streams)

    def wait_for(self, is_ready) -> None:
        end = time.monotonic() + START_SECS
        while not is_ready():
            expect(self.process.poll() is None, "it ended while it started", self.log.read_text()[-2_000:])
            expect(time.monotonic() < end, f"it was not ready after {START_SECS} s", self.log.read_text()[-2_000:])
            time.sleep(0.1)

    def stop(self) -> None:
        for ending in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, ending)
                self.process.wait(timeout=5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass


def ministack(folder: Path) -> Server:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, LOCALSTACK / "emulator.py", str(port), folder]
    server = Server(f"http://127.0.0.1:{port}", folder / "ministack.log", command)

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    server.wait_for(answers)
    return server


def embedded(folder: Path) -> Server:
    server = Server("", folder / "embedded.log", [LOCALSTACK / "sluice", "sandbox", "--port", "0"])
    server.wait_for(lambda: "Ctrl-C stops it." in server.log.read_text())
    server.endpoint = next(word for word in server.log.read_text().split() if word.startswith("http://"))
    return server


@dataclass
class Table:
    """A table, and the rows that callers would have left in it."""

    db: object
    name: str

    def create(self) -> "Table":
        key = {"AttributeName": "vendor_dimension"}
        self.db.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{**key, "AttributeType": "S"}],
            KeySchema=[{**key, "KeyType": "HASH"}],
        )
        return self

    def put(self, rows: list[dict]) -> None:
        batches = [rows[at : at + 25] for at in range(0, len(rows), 25)]

        def write(batch: list[dict]) -> None:
            reply = self.db.batch_write_item(RequestItems={self.name: [{"PutRequest": {"Item": row}} for row in batch]})
            expect(not reply["UnprocessedItems"], "the rows could not be loaded")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, batches))

    def rows(self) -> dict[str, dict]:
        pages = self.db.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        return {row["vendor_dimension"]["S"]: row for page in pages for row in page["Items"]}

    def leases(self) -> set[str]:
        return {key for key in self.rows() if key.startswith("lease#")}

    def tokens(self, dimension: str) -> str:
        key = {"vendor_dimension": {"S": dimension}}
        return self.db.get_item(TableName=self.name, Key=key, ConsistentRead=True)["Item"]["tokens"]["N"]

    def set_tokens(self, dimension: str, tokens: int) -> None:
        self.db.update_item(
            TableName=self.name,
            Key={"vendor_dimension": {"S": dimension}},
            UpdateExpression="SET tokens = :t",
            ExpressionAttributeValues={":t": {"N": str(tokens)}},
        )


def slots(dimension: str, capacity: int, free: int) -> dict:
    """A concurrency bucket."""
    now = int(time.time())
    numbers = {"capacity": capacity, "tokens": free, "refill_rate": 0, "last_refill_at": now, "cost_per_call": 1, "version": 1}
    return item(numbers, {"vendor_dimension": dimension, "limit_type": "concurrent"})


def lease(dimension: str, number: int, ends_in: int = -50) -> dict:
    """A lease; as it stands, one that has ended."""
    ends = int(time.time()) + ends_in
    numbers = {"cost": 1, "created_at": ends - 60, "ttl": ends, "purge_at": ends + 7 * 24 * HOUR}
    return item(numbers, {"vendor_dimension": f"lease#{dimension}#{number:08}", "dimension": dimension, "caller": "e2e"})


def item(numbers: dict[str, int], texts: dict[str, str]) -> dict:
    """A row as DynamoDB's API takes it."""
    return {name: {"N": str(value)} for name, value in numbers.items()} | {name: {"S": value} for name, value in texts.items()}


@dataclass
class Lab:
    """What the scenarios share."""

    aws: deploy.Aws
    folder: Path

    def table(self, name: str) -> Table:
        return Table(self.aws.client("dynamodb"), f"sluice-e2e-{name}").create()

    def function(self, name: str, table: str, timeout_secs: int = 60, **variables: str) -> str:
        """Deploys one under a name of its own, on a table."""
        name = f"sluice-reconciler-{name}"
        settings = {"SLUICE_TABLE_NAME": table, "SLUICE_ENDPOINT_URL": self.aws.endpoint, **variables}
        deploy.deploy(self.aws, name, settings, timeout_secs)
        return name

    def invoke(self, function: str) -> dict:
        """Runs it, and returns its report."""
        reply = self.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
        payload = json.load(reply["Payload"])
        expect("FunctionError" not in reply, "the invocation ended in an error", payload)
        expect(payload.get("event") == "reconciler.complete", "the reply is no report", payload)
        return payload

    def invoke_in_vain(self, function: str) -> str:
        """Runs it, and returns the message of its error."""
        reply = self.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
        payload = json.load(reply["Payload"])
        expect("FunctionError" in reply, "the invocation ended without an error", payload)
        return payload["errorMessage"]
