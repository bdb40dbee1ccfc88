"""What a game day runs on: an engine behind a gate, the built function, callers, and the commands of the
runbook.
"""

import email.utils
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import denial_test
import deploy
import judged
import packages
from judged import Phase
from lab import LOCALSTACK, Failed, Lab, Table, embedded, expect

ROOT = Path(__file__).resolve().parent.parent.parent
MANUAL = (ROOT / "docs/operations.md").read_text()
TABLE = judged.planned("aws_dynamodb_table")["name"]
CALLER = Path(__file__).resolve().parent / "caller.py"
# Where .ci/python installs the binding.
BINDING = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "python/venv/bin/python"
PYTHON = os.environ.get("SLUICE_GAMEDAYS_PYTHON", str(BINDING))
AWS_CLI = "1.46.3"
FAILURES = {
    "throttled": (
        400,
        "com.amazonaws.dynamodb.v20120810#ThrottlingException",
        "Throughput exceeds the current capacity of your table",
    ),
    "failed": (500, "com.amazonaws.dynamodb.v20120810#InternalServerError", "Internal server error"),
    "denied": (400, "com.amazon.coral.service#AccessDeniedException", ""),
}


class Gate(denial_test.Proxy):
    """What stands between a process and DynamoDB: it takes rights away, throttles, fails, is silent or
    slow, or tells another time.
    """

    day: "Day"
    rights: list | None = None  # policy documents; None allows everything
    throttled: tuple[str, ...] = ()  # operations
    is_failing = False
    delay_secs = 0.0
    silent: threading.Event
    ahead = 0  # seconds by which DynamoDB's clock is ahead of this machine's

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].split(".")[1]
        time.sleep(self.delay_secs)
        if self.silent.is_set():
            while self.silent.is_set():
                time.sleep(0.05)
            self.close_connection = True
        elif operation in self.throttled:
            self.fail("throttled", operation)
        elif self.is_failing:
            self.fail("failed", operation)
        elif self.rights is not None and (why := self.refused("role", operation, json.loads(body))):
            self.fail("denied", operation, why)
        else:
            self.forward(body)

    @property
    def roles(self):
        return {"role": self.rights}

    def fail(self, how: str, operation: str, why: str = ""):
        status, kind, message = FAILURES[how]
        if how != "denied":
            self.day.line(judged.of_request(operation, how), 1)
        said = {"__type": kind, "message": why or message, "Message": why or message}
        self.answer(status, json.dumps(said).encode(), [("Content-Type", "application/x-amz-json-1.0")])

    def answer(self, status, body, headers):
        kept = [(name, value) for name, value in headers if name.lower() != "date"]
        date = email.utils.formatdate(time.time() + self.ahead, usegmt=True)
        super().answer(status, body, [*kept, ("Date", date)])


class Day:
    """A table behind a gate, the function on it, and what both publish; by phase, as it happens."""

    def __init__(self, lab: Lab, name: str, in_ministack: bool = False, timeout_secs: int = 60):
        """The table is in ministack, or in an embedded engine of its own."""
        self.lab = lab
        self.engine = None if in_ministack else embedded(lab.folder)
        endpoint = lab.aws.endpoint if in_ministack else self.engine.endpoint
        about = {"engine": urlsplit(endpoint).netloc, "silent": threading.Event(), "day": self}
        self.gate = type("GateOfThisDay", (Gate,), about)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.gate)
        self.server.daemon_threads = True
        # Clients that no longer wait for an answer.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.db = deploy.Aws(endpoint).client("dynamodb")
        self.table = Table(self.db, TABLE).create()
        # The variables of prod, but for the endpoint.
        variables = judged.planned("aws_lambda_function")["environment"][0]["variables"]
        self.function = lab.function(
            name, TABLE, timeout_secs, **(variables | {"SLUICE_ENDPOINT_URL": self.address})
        )
        self.read = 0
        self.phases: dict[str, Phase] = {}
        self.callers: list[subprocess.Popen] = []
        self.began: dict[str, float] = {}
        self.begin("healthy")

    def begin(self, name: str) -> None:
        """`healthy`, `broken`, `mended`: what is published from now on belongs to this phase."""
        self.end()
        self.phases[name], self.began[name] = Phase(), time.time()

    def end(self) -> None:
        if self.phases:
            name = list(self.phases)[-1]
            self.phases[name].seconds = time.time() - self.began[name]

    def line(self, of: judged.Metric, value: float, when: float | None = None) -> None:
        when = when or time.time()
        name = next((name for name, began in reversed(self.began.items()) if when >= began), "healthy")
        self.phases[name].lines.append((max(0.0, when - self.began[name]), of, value))

    def stop(self):
        self.gate.silent.clear()
        for caller in self.callers:
            if caller.poll() is None:
                caller.kill()
        self.server.shutdown()
        self.server.server_close()
        if self.engine:
            self.engine.stop()
        else:
            self.db.delete_table(TableName=TABLE)

    # The function.

    def sweep(self) -> dict:
        """A run of the function that works; its report."""
        report = self.lab.invoke(self.function)
        self.ran({})
        return report

    def failing_sweep(self) -> str:
        """A run of the function that fails; its error."""
        said = self.lab.invoke_in_vain(self.function)
        self.ran(judged.run_failed())
        return said

    def try_sweep(self) -> str:
        """A run of the function that may fail; how it ended."""
        try:
            return self.failing_sweep()
        except Failed:
            self.ran({})
            return "it worked"

    def ran(self, more: dict) -> None:
        lines = deploy.json_lines(deploy.log(self.lab.aws, self.function))
        new, self.read = lines[self.read :], len(lines)
        published = {of: value for line in new for of, value in judged.printed(line).items()}
        list(self.phases.values())[-1].runs.append(published | more)

    # People and callers.

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SLUICE_")) or name == "SLUICE_CLI"
        }
        # What the head of the runbook exports, for this table; `aws` goes to the local AWS.
        keys = {
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_DEFAULT_REGION": deploy.REGION,
            "AWS_PAGER": "",
        }
        region = {"AWS_REGION": deploy.REGION, "SLUICE_AWS_REGION": deploy.REGION, "SLUICE_ENV": "prod"}
        urls = {
            "SLUICE_ENDPOINT_URL": self.address,
            "AWS_ENDPOINT_URL": self.lab.aws.endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": self.address,
        }
        names = {"table": self.table.name, "name": self.function, "SLUICE_TABLE_NAME": self.table.name}
        path = {"PATH": f"{LOCALSTACK}:{os.environ['PATH']}:{aws_cli()}"}
        return kept | keys | region | urls | names | path | more

    def shell(self, script: str, fails: bool | None = False, **more: str) -> str:
        """What a person types; `fails` None accepts both."""
        done = subprocess.run(
            ["bash", "-c", script], env=self.environment(**more), capture_output=True, text=True, timeout=120
        )
        said = done.stdout + done.stderr
        expect(
            fails is None or (done.returncode != 0) == fails, f"`{script}` ended with {done.returncode}", said
        )
        return said

    def caller(self, what: str, bucket: str, how_much: float, **more: str) -> subprocess.Popen:
        """A product that prints its metrics, by the Python binding; `heard` waits for its end."""
        environment = self.environment(
            **({"SLUICE_METRICS": "emf", "SLUICE_CALLER": what, "SLUICE_SELF_HEAL": "off"} | more)
        )
        command = [PYTHON, CALLER, what, bucket, str(how_much)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.callers.append(process)
        return process

    def heard(self, process: subprocess.Popen) -> dict:
        """What a caller counted, at its end; its metrics belong to the phases in which it printed them."""
        out, err = process.communicate(timeout=90)
        expect(process.returncode == 0, "the caller failed", err[-1_500:])
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        for line in lines:
            for of, value in judged.printed(line).items():
                self.line(of, value, line["_aws"]["Timestamp"] / 1_000)
        return next(line["counts"] for line in lines if "counts" in line)

    def total(self, name: str) -> float:
        """The sum of a metric of the environment, over the day."""
        lines = [one for phase in self.phases.values() for one in phase.lines]
        return sum(value for _, (_, of, dimensions), value in lines if of == name and len(dimensions) == 1)


@contextmanager
def day(lab: Lab, name: str, **more):
    this = Day(lab, name, **more)
    try:
        yield this
        this.end()
    finally:
        this.stop()


def aws_cli() -> Path:
    """A folder with `aws`, for machines that have none: it comes last on PATH."""
    folder = packages.CACHE / f"awscli-{AWS_CLI}"
    if not (folder / "bin/aws").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [
            folder / "bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"awscli=={AWS_CLI}",
        ]
        subprocess.run(install, check=True)
    return folder / "bin"


def of_runbook(section: str, *words: str, changed: dict[str, str] | None = None) -> str:
    """The commands of a section of the runbook that have one of the words, as written, but for the names of
    its example.
    """
    found = re.search(rf"\n#+ `?{re.escape(section)}`?\n(.*?)(?=\n#+ |\Z)", MANUAL, re.S)
    expect(found is not None, f"the runbook has no section {section}")
    blocks = re.findall(r"```sh\n(.*?)```", found[1], re.S)
    lines = re.sub(r"\\\n", " ", "\n".join(blocks)).splitlines()
    chosen = [line for line in lines if any(word in line for word in words)]
    expect(len(chosen) >= len(words), f"the section {section} has no command with {words}", blocks)
    text = "\n".join(chosen)
    for old, new in (changed or {}).items():
        expect(old in text, f"the section {section} does not name {old}", text)
        text = text.replace(old, new)
    return text


def key(name: str) -> dict:
    return {"vendor_dimension": {"S": name}}


def rate(dimension: str, a_minute: int) -> dict:
    """A rate bucket."""
    numbers = {
        "capacity": a_minute,
        "tokens": a_minute,
        "last_refill_at": int(time.time()),
        "cost_per_call": 1,
        "version": 1,
    }
    texts = {"vendor_dimension": {"S": dimension}, "limit_type": {"S": "requests"}}
    return (
        {name: {"N": str(value)} for name, value in numbers.items()}
        | {"refill_rate": {"N": f"{a_minute / 60:.6f}"}}
        | texts
    )


def first_line(said: str) -> str:
    return (said.strip().splitlines() or ["nothing"])[0][:90]
