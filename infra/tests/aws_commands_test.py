#!/usr/bin/env python3
"""The `aws` commands of documents and scripts: operations and options are AWS's own, by botocore's model of its
API. And each command of the runbook is typed by a game day, or it is said why not.

Needs botocore. Version 2 of the AWS CLI, which is what the documents are written for, is not on PyPI: so game
days type what version 1 knows, too.
"""

import re
import unittest
from pathlib import Path

import botocore.session
from botocore import xform_name

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / "infra" / one for one in ("state", "rollback", "verify"))]
RUNBOOK, DAYS = ROOT / "docs/operations.md", ROOT / "tests/gamedays/days"

OF_EVERY_COMMAND = {"region", "query", "output", "cli-read-timeout", "profile"}
# Commands of the CLI that are no operation of an API.
OF_THE_CLI = {
    "configure": set(),
    "configure export-credentials": {"format"},
    "sso login": set(),
    "logs tail": {"since", "filter-pattern", "follow", "format"},
    "cloudformation deploy": {
        "stack-name",
        "template-file",
        "s3-bucket",
        "capabilities",
        "parameter-overrides",
        "tags",
    },
}
# Options to which the CLI gives another name than the API.
RENAMED = {"sns subscribe": {"notification-endpoint"}}
# A command of the runbook that no game day types, and why.
NOT_TYPED = {
    "aws logs tail": "version 2 of the AWS CLI alone has it",
    "export SLUICE_ENV": "day.py sets what the head of the runbook exports, for its own table",
    "unset SLUICE_ENDPOINT_URL": "the same",
    "export SLUICE_TABLE_NAME=": "the same",
    "table=ontopix": "the same",
    "sluice doctor": "typed in most days, as it is",
    "export REGION=": "a lost Region: infra/tests/state_test.py types it, with stand-ins for AWS and Terraform",
    "task infra:": "the same",
    "task buckets:apply": "the same",
    "sluice reconcile --once": "the same",
    "sluice buckets refill openai#rpm --to 100": "the day of a poisoned reply fills the bucket to its capacity",
}


def commands(text: str) -> list[tuple[str, list[str]]]:
    """`service operation` and options of each `aws` command."""
    text = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"(?<![\w/.-])aws ([a-z][a-z0-9-]*)((?: [a-z][a-z-]*)?)([^\n`|]*)", text)
    return [
        ((service + operation).strip(), re.findall(r"(?<=\s)--([a-z][a-z0-9-]+)", " " + rest))
        for service, operation, rest in found
    ]


class Commands(unittest.TestCase):
    def setUp(self):
        self.session = botocore.session.Session()

    def wrong(self, name: str, options: list[str]) -> str | None:
        options = {one for one in options if one not in OF_EVERY_COMMAND}
        if name in OF_THE_CLI:
            unknown = options - OF_THE_CLI[name]
            return f"aws {name} has no --{unknown.pop()}" if unknown else None
        service, _, operation = name.partition(" ")
        if service not in self.session.get_available_services() and service != "s3api":
            return f"there is no service {service}"
        model = self.session.get_service_model({"s3api": "s3"}.get(service, service))
        if operation.startswith("wait"):
            return None
        names = {xform_name(one, "-"): one for one in model.operation_names}
        if operation not in names:
            return f"there is no {name}"
        shape = model.operation_model(names[operation]).input_shape
        members = RENAMED.get(name, set()) | {xform_name(one, "-") for one in shape.members} if shape else set()
        unknown = {one for one in options if one not in members and one.removeprefix("no-") not in members}
        return f"aws {name} has no --{unknown.pop()}" if unknown else None

    def test_each_command_is_one_of_aws(self):
        count = 0
        for path in DOCUMENTS:
            for name, options in commands(path.read_text()):
                # `aws` as a word, as in "the `aws` commands that you run".
                if name in ("commands", "sts") or name.split(" ")[0] in ("and", "is", "says", "to"):
                    continue
                count += 1
                self.assertIsNone(self.wrong(name, options), path.name)
        self.assertGreater(count, 40)

    def test_a_command_that_is_none_is_found(self):
        for text in (
            "aws lambda get-concurrency --function-name f",
            "aws dynamodb get-item --table t",
            "aws events enable --name n",
            "aws logs tail g --from 1h",
        ):
            ((name, options),) = commands(text)
            self.assertIsNotNone(self.wrong(name, options), text)

    def test_a_person_types_the_whole_runbook_on_game_days(self):
        days = "".join(day.read_text() for day in sorted(DAYS.glob("*.py")))
        typed = [
            (section, word)
            for section, words in re.findall(
                r"of_runbook\(\s*[\"']([^\"']+)[\"'],((?:\s*[\"'][^\"']+[\"'],?)+)", days
            )
            for word in re.findall(r"[\"']([^\"']+)[\"']", words)
        ]
        self.assertGreater(len(typed), 10)
        manual = RUNBOOK.read_text()
        # Without the commands that deploy and destroy.
        manual = manual[: manual.index("\n## What is deployed")] + manual[manual.index("\n## After a disaster") :]
        missed, reasons = [], set()
        for section in re.finditer(r"\n#+ `?([^`\n]+)`?\n(.*?)(?=\n#+ |\Z)", manual, re.S):
            for block in re.findall(r"```sh\n(.*?)```", section[2], re.S):
                for line in map(str.strip, re.sub(r"\\\n\s*", " ", block).splitlines()):
                    if any(section[1] == of and word in line for of, word in typed):
                        continue
                    reason = [start for start in NOT_TYPED if line.startswith(start)]
                    reasons |= set(reason)
                    missed += [] if reason or not line else [f"{section[1]}: {line}"]
        self.assertEqual(missed, [], "no game day types this")
        self.assertEqual(reasons, set(NOT_TYPED), "these are typed now, or gone")


if __name__ == "__main__":
    unittest.main()
