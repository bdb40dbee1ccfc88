#!/usr/bin/env python3
"""Deploys the built reconciler into a local AWS, and shows its log.

    deploy.py deploy ENDPOINT    the function, a rule that starts it every minute, and the rule's right to
    deploy.py log ENDPOINT       what it has logged
    deploy.py check [ARCH]       says so where the function is not built, for this machine or for ARCH

The names are those of infra/, for the environment `sandbox`.
"""

import json
import platform
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "target" / "lambda" / "sluice-reconciler" / "bootstrap.zip"
NAME = "sluice-reconciler-sandbox"
TABLE = "ontopix-vendor-buckets-sandbox"
REGION = "eu-central-1"
ACCOUNT = "000000000000"


@dataclass
class Aws:
    """The services of one endpoint."""

    endpoint: str

    def client(self, service: str):
        import boto3
        from botocore.config import Config

        # One attempt: an invocation that is sent again is two.
        config = Config(connect_timeout=5, read_timeout=90, retries={"total_max_attempts": 1}, max_pool_connections=16)
        keys = {"aws_access_key_id": "sandbox", "aws_secret_access_key": "sandbox"}
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, config=config, **keys)


def check(wanted: str | None = None) -> None:
    """Ends the program where there is no archive for this machine, or for the architecture that is wanted."""
    here = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    wanted = wanted or here
    build = f"build it with `task build:lambda ARCH={wanted}`"
    if not ARCHIVE.exists():
        sys.exit(f"there is no {ARCHIVE.relative_to(ROOT)}: {build}")
    with zipfile.ZipFile(ARCHIVE) as archive, archive.open("bootstrap") as bootstrap:
        header = bootstrap.read(20)
    # The machine's number in an ELF header.
    built_for = {62: "x86_64", 183: "arm64"}.get(int.from_bytes(header[18:20], "little"), "another machine")
    if built_for != wanted:
        sys.exit(f"{ARCHIVE.relative_to(ROOT)} was built for {built_for}, and {wanted} is wanted: {build}")


def deploy(aws: Aws, name: str, variables: dict[str, str], timeout_secs: int = 60) -> str:
    """Makes the function as infra/modules/reconciler does, from the archive of `task build:lambda`. Returns its ARN."""
    functions = aws.client("lambda")
    function = functions.create_function(
        FunctionName=name,
        Runtime="provided.al2023",
        Handler="bootstrap",
        Role=f"arn:aws:iam::{ACCOUNT}:role/{NAME}",
        Code={"ZipFile": ARCHIVE.read_bytes()},
        MemorySize=128,
        Timeout=timeout_secs,
        Environment={"Variables": {"SLUICE_ENV": "sandbox", "SLUICE_AWS_REGION": REGION, **variables}},
    )
    functions.get_waiter("function_active_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    return function["FunctionArn"]


def schedule(aws: Aws, name: str, function_arn: str, expression: str = "rate(1 minute)") -> None:
    """Makes the rule of the function's name, with the function as its target."""
    events = aws.client("events")
    rule = events.put_rule(Name=name, ScheduleExpression=expression, State="ENABLED")
    permission = {"StatementId": "schedule", "Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"}
    aws.client("lambda").add_permission(FunctionName=name, SourceArn=rule["RuleArn"], **permission)
    failed = events.put_targets(Rule=name, Targets=[{"Id": "reconciler", "Arn": function_arn}])
    assert failed["FailedEntryCount"] == 0, failed


def log(aws: Aws, name: str) -> list[str]:
    """The lines that the function has logged, oldest first."""
    logs = aws.client("logs")
    try:
        pages = list(logs.get_paginator("filter_log_events").paginate(logGroupName=f"/aws/lambda/{name}"))
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [event["message"] for page in pages for event in page["events"]]


def json_lines(lines: list[str]) -> list[dict]:
    """Those that are JSON; Lambda adds lines of its own."""
    return [json.loads(line) for line in lines if line.startswith("{")]


def main() -> None:
    match sys.argv[1:]:
        case ["check", *wanted] if len(wanted) < 2:
            check(*wanted)
        case ["deploy", endpoint]:
            check()
            packages.ensure()
            aws = Aws(endpoint)
            arn = deploy(aws, NAME, {"SLUICE_TABLE_NAME": TABLE, "SLUICE_ENDPOINT_URL": endpoint})
            schedule(aws, NAME, arn)
        case ["log", endpoint]:
            packages.ensure()
            lines = log(Aws(endpoint), NAME)
            print("\n".join(lines) or "nothing yet: the rule fires every minute, for the first time a minute after the start")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
