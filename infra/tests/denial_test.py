#!/usr/bin/env python3
"""What a product's policy stops, tried: a role with one product's policy tries every write on another
vendor's rows, while its own work goes on.

There is no IAM here. A proxy stands before the embedded engine (`sluice sandbox`), reads each request, and
asks iam.py whether the policies that Terraform plans for prod (planned/prod.json) allow it to the role, which
the access key names. The work is that of the command `sluice`, which uses the SDK. Needs the command
(localstack/sluice; SLUICE_CLI names one that is built).
"""

import http.client
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import iam
import wiring

ROOT = Path(__file__).resolve().parent.parent.parent
SLUICE = ROOT / "localstack/sluice"
TABLE = "ontopix-vendor-buckets-sandbox"
BUCKETS = """
[[bucket]]
dimension = "openai#rpm"
type = "requests"
capacity = 6_000
window = "1m"

[[bucket]]
dimension = "openai#slow"
type = "requests"
capacity = 4
window = "8s"

[[bucket]]
dimension = "openai#concurrent"
type = "concurrent"
capacity = 8

[[bucket]]
dimension = "openai2#rpm"
type = "requests"
capacity = 60
window = "1m"

[[bucket]]
dimension = "elevenlabs#rpm"
type = "requests"
capacity = 60
window = "1m"

[[bucket]]
dimension = "elevenlabs#concurrent"
type = "concurrent"
capacity = 5
"""


def policies() -> dict[str, list[dict]]:
    """The documents of each role, about the table of the sandbox."""
    planned = json.loads(json.dumps(wiring.agreed("prod")).replace("ontopix-vendor-buckets-prod", TABLE))
    made = {address: values["policy"] for address, values in planned.items() if ".aws_iam_policy." in address}

    def ends(with_: str) -> list[dict]:
        return [document for address, document in made.items() if address.endswith(with_)]

    roles = {
        product: ends(f'product_policy["{product}"].aws_iam_policy.caller') for product in ("chat", "voice")
    }
    roles |= {"operator": ends(".operator"), "reader": ends(".reader"), "nobody": []}
    assert all(len(documents) == 1 for role, documents in roles.items() if role != "nobody")
    return roles


ARN = wiring.agreed("prod")["module.sluice.module.table[0].aws_dynamodb_table.buckets"]["arn"]


def arn_of(table: str) -> str:
    return ARN.rsplit(":", 1)[0] + ":" + table


class Proxy(BaseHTTPRequestHandler):
    """IAM before the engine. `admin` may do everything."""

    protocol_version = "HTTP/1.1"
    engine: str
    roles: dict[str, list[dict]]
    connection_to_engine: http.client.HTTPConnection | None = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].split(".")[1]
        role = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))[1]
        reason = role != "admin" and self.refused(role, operation, json.loads(body))
        if reason:
            said = {"__type": "com.amazon.coral.service#AccessDeniedException", "Message": reason}
            self.answer(400, json.dumps(said).encode(), [("Content-Type", "application/x-amz-json-1.0")])
        else:
            self.forward(body)

    def refused(self, role: str, operation: str, body: dict) -> str | None:
        for call in iam.calls(operation, body, arn_of):
            why = iam.refusal(self.roles[role], call)
            if why:
                return (
                    f"User: {role} is not authorized to perform: {call.action} "
                    f"on resource: {call.resource} {why}"
                )
        return None

    def forward(self, body: bytes):
        if self.connection_to_engine is None:
            self.connection_to_engine = http.client.HTTPConnection(self.engine)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")
        }
        self.connection_to_engine.request("POST", "/", body, headers)
        reply = self.connection_to_engine.getresponse()
        kept = [
            (name, value)
            for name, value in reply.getheaders()
            if name.lower() not in ("content-length", "connection")
        ]
        self.answer(reply.status, reply.read(), kept)

    def finish(self):
        super().finish()
        if self.connection_to_engine:
            self.connection_to_engine.close()

    def answer(self, status: int, body: bytes, headers: list[tuple[str, str]]):
        self.send_response_only(status)
        for name, value in [*headers, ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Sandbox:
    """The embedded engine, and the proxy before it."""

    def __init__(self, folder: Path):
        (folder / "buckets.toml").write_text(BUCKETS)
        self.log = folder / "sandbox.log"
        command = [SLUICE, "sandbox", "--port", "0", "--buckets", folder / "buckets.toml"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 300  # it may have to be built
        while "Ctrl-C stops it." not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.05)
        engine = next(word for word in self.log.read_text().split() if word.startswith("http://"))
        proxy = type("OfThisTable", (Proxy,), {"engine": urlsplit(engine).netloc, "roles": policies()})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), proxy)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.process.terminate()
        self.process.wait(10)

    def ask(self, role: str, operation: str, **body) -> tuple[int, dict]:
        """A request of a role, and what it was answered."""
        connection = http.client.HTTPConnection(self.address)
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Date": "20260101T000000Z",
            "Authorization": f"AWS4-HMAC-SHA256 "
            f"Credential={role}/20260101/eu-central-1/dynamodb/aws4_request, "
            f"SignedHeaders=host, Signature=0",
        }
        connection.request("POST", "/", json.dumps(body), headers)
        reply = connection.getresponse()
        answer = reply.status, json.loads(reply.read() or b"{}")
        connection.close()
        return answer

    def rows(self) -> dict[str, dict]:
        status, reply = self.ask("admin", "Scan", TableName=TABLE, ConsistentRead=True)
        assert status == 200 and "LastEvaluatedKey" not in reply, reply
        return {row["vendor_dimension"]["S"]: row for row in reply["Items"]}

    def environment(self, role: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SLUICE_")) or name == "SLUICE_CLI"
        }
        own = {
            "SLUICE_ENV": "sandbox",
            "SLUICE_ENDPOINT_URL": f"http://{self.address}",
            # No scan, which no product may do; refusals are noted all the same.
            "SLUICE_HEAL_BUDGET": "0",
            "SLUICE_CALLER": role,
        }
        return kept | own | {"AWS_ACCESS_KEY_ID": role, "AWS_SECRET_ACCESS_KEY": "sandbox"}

    def begin(self, role: str, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            [SLUICE, *words],
            env=self.environment(role),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def sluice(self, role: str, *words: str) -> tuple[int, str]:
        done = self.begin(role, *words)
        out, err = done.communicate(timeout=60)
        return done.returncode, out + err


def key(name: str) -> dict:
    return {"vendor_dimension": {"S": name}}


def writes(row: str, own: str) -> dict[str, tuple[str, dict]]:
    """Every way to write a row, by name: an operation, and its body. The role may write the row `own`."""
    item = key(row) | {"cost": {"N": "1"}}
    update = {
        "UpdateExpression": "SET #n = :n",
        "ExpressionAttributeNames": {"#n": "tokens"},
        "ExpressionAttributeValues": {":n": {"N": "0"}},
    }
    remove = {"UpdateExpression": "REMOVE #n", "ExpressionAttributeNames": {"#n": "tokens"}}
    parts = {
        "put": {"Put": {"TableName": TABLE, "Item": item}},
        "update": {"Update": {"TableName": TABLE, "Key": key(row), **update}},
        "delete": {"Delete": {"TableName": TABLE, "Key": key(row)}},
    }
    beside = {"Update": {"TableName": TABLE, "Key": key(own), **update}}
    sql = {
        "insert": f"""INSERT INTO "{TABLE}" VALUE {{'vendor_dimension': '{row}', 'cost': 1}}""",
        "update": f"""UPDATE "{TABLE}" SET tokens = 0 WHERE vendor_dimension = '{row}'""",
        "delete": f"""DELETE FROM "{TABLE}" WHERE vendor_dimension = '{row}'""",
    }
    return {
        "PutItem": ("PutItem", {"TableName": TABLE, "Item": item}),
        "UpdateItem, set": ("UpdateItem", {"TableName": TABLE, "Key": key(row), **update}),
        "UpdateItem, remove": ("UpdateItem", {"TableName": TABLE, "Key": key(row), **remove}),
        "DeleteItem": ("DeleteItem", {"TableName": TABLE, "Key": key(row)}),
        "BatchWriteItem, put": (
            "BatchWriteItem",
            {"RequestItems": {TABLE: [{"PutRequest": {"Item": item}}]}},
        ),
        "BatchWriteItem, delete": (
            "BatchWriteItem",
            {"RequestItems": {TABLE: [{"DeleteRequest": {"Key": key(row)}}]}},
        ),
        **{
            f"TransactWriteItems, {name}": ("TransactWriteItems", {"TransactItems": [part]})
            for name, part in parts.items()
        },
        **{
            f"TransactWriteItems, own row and {name}": (
                "TransactWriteItems",
                {"TransactItems": [beside, part]},
            )
            for name, part in parts.items()
        },
        **{
            f"ExecuteStatement, {name}": ("ExecuteStatement", {"Statement": text})
            for name, text in sql.items()
        },
        **{
            f"ExecuteTransaction, {name}": (
                "ExecuteTransaction",
                {"TransactStatements": [{"Statement": text}]},
            )
            for name, text in sql.items()
        },
        **{
            f"BatchExecuteStatement, {name}": ("BatchExecuteStatement", {"Statements": [{"Statement": text}]})
            for name, text in sql.items()
        },
    }


# Of the table as a whole.
ON_THE_TABLE = {
    "DeleteTable": {},
    "UpdateTable": {"DeletionProtectionEnabled": False},
    "UpdateTimeToLive": {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"}},
    "UpdateContinuousBackups": {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": False}},
    "CreateTable": {},
    "PutResourcePolicy": {},
    "TagResource": {},
}


class Denial(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.sandbox = Sandbox(Path(cls.folder.name))
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.sandbox.stop)

    def works(self, role: str, *words: str) -> str:
        code, said = self.sandbox.sluice(role, *words)
        self.assertEqual(code, 0, f"{role}: sluice {' '.join(words)}\n{said}")
        return said

    def denied(self, role: str, *words: str) -> str:
        code, said = self.sandbox.sluice(role, *words)
        self.assertNotEqual(code, 0, f"{role}: sluice {' '.join(words)} was not refused\n{said}")
        self.assertRegex(said, r"AccessDenied|denied|not authorized|lacks the right")
        return said

    def test_every_write_on_another_vendors_rows_is_refused_and_own_work_goes_on(self):
        # What the other product has: buckets, the load of one, a lease that is held, a ticket; and a vendor
        # whose name begins alike.
        holder = self.sandbox.begin("voice", "acquire", "elevenlabs#concurrent", "--hold", "60s")
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.terminate)
        end = time.monotonic() + 20
        while not (leases := [row for row in self.sandbox.rows() if row.startswith("lease#elevenlabs#")]):
            self.assertLess(time.monotonic(), end, "no lease was written")
            time.sleep(0.1)
        ticket = {
            "TableName": TABLE,
            "Item": key("ticket#elevenlabs#0193") | {"purge_at": {"N": "4000000000"}},
        }
        load = {"TableName": TABLE, "Item": key("load#elevenlabs#concurrent") | {"refused": {"N": "1"}}}
        for item in (ticket, load):
            self.assertEqual(self.sandbox.ask("admin", "PutItem", **item)[0], 200)
        theirs = [
            "elevenlabs#rpm",
            "elevenlabs#concurrent",
            leases[0],
            "load#elevenlabs#concurrent",
            "ticket#elevenlabs#0193",
            "openai2#rpm",
        ]
        shared = ["load#heal", "load#sweeps", "load#directory"]
        new = [
            "elevenlabs#new",
            "lease#elevenlabs#rpm#1",
            "load#elevenlabs#rpm",
            "ticket#elevenlabs#1",
            "ticket#0193",
            "lease#openai2#rpm#1",
            "openai",
        ]
        before = self.sandbox.rows()
        self.assertEqual([row for row in theirs if row not in before], [])

        # Own work, all the while.
        loads = [
            self.sandbox.begin("chat", "stress", name, "--for", "6", "--json")
            for name in ("openai#rpm", "openai#concurrent")
        ]
        refused = 0
        for row in theirs + shared + new:
            for name, (operation, body) in writes(row, "openai#slow").items():
                status, said = self.sandbox.ask("chat", operation, **body)
                self.assertEqual(
                    (status, said.get("__type", "").split("#")[-1]),
                    (400, "AccessDeniedException"),
                    f"{name} of {row}: {said}",
                )
                refused += 1
        for operation, body in ON_THE_TABLE.items():
            status, said = self.sandbox.ask("chat", operation, TableName=TABLE, **body)
            self.assertIn(f"dynamodb:{operation}", said.get("Message", ""), said)
            refused += 1
        for process in loads:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out + err)
            self.assertGreater(json.loads(out.splitlines()[-1])["grants"], 50, out)
        after = self.sandbox.rows()
        self.assertEqual(
            {row: after.get(row) for row in theirs + new}, {row: before.get(row) for row in theirs + new}
        )
        self.assertEqual(
            after["openai#slow"], before["openai#slow"], "nor was a part of a transaction applied"
        )
        # Without the proxy's refusal each of these writes is accepted: the engine knows no rights.
        self.assertEqual(
            self.sandbox.ask(
                "admin", "UpdateItem", **writes("openai2#rpm", "openai#rpm")["UpdateItem, set"][1]
            )[0],
            200,
        )
        print(
            f"\n{refused} writes refused, {len(theirs)} rows of others as they were, and chat worked "
            f"all the while"
        )

    def test_what_a_product_is_refused_is_counted_without_a_scan(self):
        """Sweeps publish it, for the alarm caller-refusals."""
        free = int(
            next(row for key, row in self.sandbox.rows().items() if key == "elevenlabs#concurrent")["tokens"]["N"]
        )

        def refused() -> int:
            return int(self.sandbox.rows().get("load#elevenlabs#concurrent", {}).get("refused", {"N": "0"})["N"])

        before, ended = refused(), []
        words = ("acquire", f"elevenlabs#concurrent={free}", "--hold", "60s")
        holder = self.sandbox.begin("voice", *words)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.terminate)
        end = time.monotonic() + 20
        while self.sandbox.rows()["elevenlabs#concurrent"]["tokens"]["N"] != "0":
            self.assertLess(time.monotonic(), end, "the slots were not taken")
            time.sleep(0.1)
        for _ in range(2):
            ended.append(self.sandbox.sluice("voice", "acquire", "elevenlabs#concurrent"))
        self.assertTrue(all(code == 75 and "denied" not in said.lower() for code, said in ended), ended)
        self.assertEqual(refused(), before + 2, ended)

    def test_a_product_does_all_of_its_own_work(self):
        self.works("chat", "run", "openai#concurrent", "openai#rpm", "--", "true")
        self.works("voice", "run", "elevenlabs#concurrent", "elevenlabs#rpm", "--", "true")
        self.works("chat", "acquire", "openai#slow=4")
        code, booked = self.sandbox.sluice(
            "chat", "acquire", "openai#slow", "--ticket-within", "20s", "--json"
        )
        self.assertEqual(code, 75, booked)
        text = next(json.loads(line) for line in booked.splitlines() if line.startswith("{"))["ticket"]
        time.sleep(2.5)
        self.works("chat", "redeem", text)
        self.works("chat", "cool-down", "openai#rpm", "1ms")
        self.assertFalse(
            [row for row in self.sandbox.rows() if row.startswith("lease#openai#")],
            "every lease was given back",
        )

    def test_another_vendors_bucket_is_an_error_that_names_the_right(self):
        said = self.denied("chat", "run", "elevenlabs#concurrent", "--wait", "1s", "--", "true")
        self.assertIn("dynamodb:", said)
        self.denied("chat", "acquire", "elevenlabs#rpm")
        self.denied("chat", "penalize", "elevenlabs#rpm")
        self.denied("voice", "cool-down", "openai#rpm", "1h")
        # All or nothing: its own bucket, beside another's.
        before = self.sandbox.rows()["openai#concurrent"]["tokens"]
        self.denied("chat", "acquire", "openai#concurrent", "elevenlabs#concurrent")
        self.assertEqual(self.sandbox.rows()["openai#concurrent"]["tokens"], before)

    def test_limits_are_the_operators_and_reading_is_the_readers(self):
        # Another limit: as long as nothing changes, the command only reads.
        changed = Path(self.folder.name) / "changed.toml"
        changed.write_text(BUCKETS.replace("capacity = 5\n", "capacity = 6\n"))
        file = str(changed)
        for role in ("chat", "reader", "nobody"):
            self.denied(role, "buckets", "apply", file)
        self.works("operator", "buckets", "apply", file)
        for words in (("leases",), ("buckets", "list"), ("watch", "--once")):
            self.works("reader", *words)
            self.denied("chat", *words)
        # It has no problem of rights: it may write nothing, and is meant so.
        _, said = self.sandbox.sluice("reader", "doctor", "--vendor", "openai")
        self.assertIn("may read, and write nothing", said)
        self.assertNotIn("this role may not dynamodb:UpdateItem", said)
        self.denied("reader", "acquire", "openai#rpm")
        self.denied("operator", "acquire", "openai#concurrent")


if __name__ == "__main__":
    unittest.main()
