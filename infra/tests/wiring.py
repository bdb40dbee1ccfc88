#!/usr/bin/env python3
"""Compares what Terraform plans, value by value, with what was agreed: nothing is added or rewired unseen.

    wiring.py            plans sandbox, pre and prod, and compares
    wiring.py --write    writes planned/*.json again, to be read in the diff

The plan is made by the stand-in provider of .ci/terraform-offline, which makes up ARNs from names: so
policies and wiring can be read. planned/prod.json holds every value of prod; planned/others.json holds in
what pre and sandbox differ. Beside that, rules are checked that no new agreement may break: who may write
which rows, what starts the function, and what each alarm looks at.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import iam

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
ENVIRONMENTS = ("prod", "pre", "sandbox")
# Kinds of resources that an installation has. Another kind is a decision: who may use it, and who is paged.
KINDS = {
    "aws_cloudwatch_dashboard",
    "aws_cloudwatch_event_rule",
    "aws_cloudwatch_event_target",
    "aws_cloudwatch_log_group",
    "aws_cloudwatch_metric_alarm",
    "aws_dynamodb_contributor_insights",
    "aws_dynamodb_table",
    "aws_iam_policy",
    "aws_iam_role",
    "aws_iam_role_policy",
    "aws_iam_role_policy_attachment",
    "aws_lambda_alias",
    "aws_lambda_function",
    "aws_lambda_function_event_invoke_config",
    "aws_lambda_permission",
    "aws_sqs_queue",
    "aws_sqs_queue_policy",
    "terraform_data",
}
CRITICAL = ("no-sweep", "unreadable-buckets", "system-errors", "dynamodb-unavailable")

OVERRIDE = """
terraform {
  backend "local" {}
}

provider "aws" {
  access_key                  = "none"
  secret_key                  = "none"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
}
"""


class Workspace:
    """A copy of infra/ that can be planned without the provider registry, and changed."""

    def __init__(self, folder: Path, also: tuple[str, ...] = ()):
        """`also`: resources whose kinds may be added later."""
        self.infra = folder / "infra"
        shutil.copytree(
            ROOT / "infra",
            self.infra,
            ignore=shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "*.tfplan"),
        )
        (self.infra / "tests/also.tf").write_text("\n".join(also))
        prepare = subprocess.run(
            [ROOT / ".ci/terraform-offline/prepare", self.infra, folder / "offline"],
            capture_output=True,
            text=True,
        )
        if prepare.returncode:
            sys.exit(prepare.stderr)
        (self.infra / "ci_override.tf").write_text(OVERRIDE)
        exports = dict(pair.split("=", 1) for pair in prepare.stdout.split()[1:])
        quiet = {
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "CHECKPOINT_DISABLE": "1",
            "TF_CLI_ARGS": "-no-color",
            "STAND_IN_KNOWN": "1",
        }
        self.environment = {**os.environ, **exports, **quiet}
        self.terraform("init")

    def terraform(self, *arguments: str) -> str:
        command = ["terraform", f"-chdir={self.infra}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        if done.returncode:
            sys.exit(f"terraform {arguments[0]}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def planned(self, environment: str) -> dict[str, dict]:
        """The resources of an environment, by address, without what is not set."""
        files = [
            f"-var-file=envs/{environment}.tfvars",
            "-var-file=tests/planned/more.tfvars",
            "-var=package_path=versions.tf",
        ]
        self.terraform("plan", "-lock=false", "-out=this.tfplan", *files)
        plan = json.loads(self.terraform("show", "-json", "this.tfplan"))
        resources = {}

        def walk(module: dict) -> None:
            for resource in module.get("resources", []):
                if resource["mode"] == "managed":
                    resources[resource["address"]] = plain(resource["values"])
            for child in module.get("child_modules", []):
                walk(child)

        walk(plan["planned_values"]["root_module"])
        for address, first in depends_on(plan["configuration"]["root_module"]):
            for known in resources:
                if re.sub(r"\[[^]]*\]", "", known) == address:
                    resources[known]["depends_on"] = first
        return resources


def depends_on(module: dict, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Which resources are made after which others, where a line says so."""
    for resource in module.get("resources", []):
        if resource.get("depends_on"):
            yield path + resource["address"], resource["depends_on"]
    for name, call in module.get("module_calls", {}).items():
        yield from depends_on(call["module"], f"{path}module.{name}.")


def plain(value):
    """A value without nulls and empty lists, with documents read, and with the time of the plan left out."""
    if isinstance(value, dict):
        kept = {
            name: plain(one) for name, one in value.items() if name not in ("tags_all", "source_code_hash")
        }
        return {name: one for name, one in kept.items() if one not in (None, [], {})}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        if re.match(r'^\{"', value):
            return plain(json.loads(value))
        value = re.sub(r"(EPOCH\(TIME_SERIES\(1\)\) < )\d+", r"\1INSTALLED", value)
        return re.sub(r"^20\d\d-\d\d-\d\dT.*Z$", "INSTALLED", value)
    return value


def flat(value, path: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {
            key: one for name, inner in value.items() for key, one in flat(inner, f"{path} {name}").items()
        }
    if isinstance(value, list):
        return {
            key: one
            for index, inner in enumerate(value)
            for key, one in flat(inner, f"{path} {index}").items()
        }
    return {path.strip(): value}


def differences(old: dict, new: dict) -> list[str]:
    before, now = flat(old), flat(new)
    lines = [f"- {key}: {before[key]!r}" for key in before.keys() - now.keys()]
    lines += [f"+ {key}: {now[key]!r}" for key in now.keys() - before.keys()]
    lines += [
        f"! {key}: {before[key]!r} -> {now[key]!r}"
        for key in before.keys() & now.keys()
        if before[key] != now[key]
    ]
    return sorted(lines, key=lambda line: line[2:])


def without_name(environment: str, resources: dict) -> dict:
    """The resources as if every environment had one name."""
    return json.loads(re.sub(rf"(?<![a-z]){environment}(?![a-z])", "ENV", json.dumps(resources)))


def allows(document: dict, action: str, resource: str, key: str | None = None) -> bool:
    context = {} if key is None else {"dynamodb:LeadingKeys": (key,)}
    return iam.refusal([document], iam.Call(f"dynamodb:{action}", resource, context)) is None


WRITES = ("PutItem", "UpdateItem", "DeleteItem")


def rows_of(vendor: str) -> list[str]:
    bucket = f"{vendor}#rpm"
    return [bucket, f"lease#{bucket}#0193", f"load#{bucket}", f"ticket#{vendor}#0193"]


def broken_rules(resources: dict[str, dict]) -> list[str]:
    """Rules that hold whatever planned/prod.json says."""
    broken = []

    def rule(holds: bool, text: str) -> None:
        if not holds:
            broken.append(text)

    def of(kind: str) -> dict[str, dict]:
        return {
            address: values for address, values in resources.items() if re.search(rf"(^|\.){kind}\.", address)
        }

    def only(kind: str) -> dict:
        found = list(of(kind).values())
        rule(len(found) == 1, f"there is one {kind}, not {len(found)}")
        return found[0] if found else {}

    table, function, role, queue, event = (
        only(kind)
        for kind in (
            "aws_dynamodb_table",
            "aws_lambda_function",
            "aws_iam_role",
            "aws_sqs_queue",
            "aws_cloudwatch_event_rule",
        )
    )
    target, permission, log, live = (
        only(kind)
        for kind in (
            "aws_cloudwatch_event_target",
            "aws_lambda_permission",
            "aws_cloudwatch_log_group",
            "aws_lambda_alias",
        )
    )

    kinds = {re.sub(r"\[[^]]*\]", "", address).split(".")[-2] for address in resources if "." in address}
    rule(kinds <= KINDS, f"kinds of resources that no rule knows: {sorted(kinds - KINDS)}")
    only("aws_iam_role_policy")

    # The function, its role, its table.
    rule(function.get("role") == role.get("arn"), "the function runs with the role made for it")
    variables = function.get("environment", [{}])[0].get("variables", {})
    rule(variables.get("SLUICE_TABLE_NAME") == table.get("name"), "the function sweeps the table")
    attached = only("aws_iam_role_policy_attachment")
    rule(
        attached.get("policy_arn") == "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole",
        "the role has AWS's policy for logs, and no other of AWS",
    )
    rule(attached.get("role") == role.get("name"), "the policy for logs is attached to the role")
    trusted = role.get("assume_role_policy", {}).get("Statement", [{}])
    rule(
        [one.get("Principal") for one in trusted] == [{"Service": "lambda.amazonaws.com"}],
        "Lambda alone takes the role",
    )
    rule(
        function.get("logging_config", [{}])[0].get("log_group") == log.get("name"),
        "the function logs to its group",
    )

    # What starts it, and where failures go.
    rule(event.get("state", "ENABLED") == "ENABLED", "the schedule is enabled")
    rule(function.get("publish") is True, "each change is a version to go back to")
    rule(live.get("function_name") == function.get("function_name"), "the alias is the function's")
    rule(
        "function_version" not in live,
        "the alias points to the version that is published, which no plan knows",
    )
    rule(
        target.get("rule") == event.get("name") and target.get("arn") == live.get("arn"),
        "the schedule starts the alias",
    )
    started = (permission.get("function_name"), permission.get("qualifier"))
    rule(
        permission.get("source_arn") == event.get("arn")
        and started == (function.get("function_name"), live.get("name")),
        "the schedule alone may start the alias",
    )
    rule(
        "aws_lambda_permission.schedule" in target.get("depends_on", []),
        "the schedule begins after it may start the function",
    )
    rule(
        target.get("dead_letter_config", [{}])[0].get("arn") == queue.get("arn"),
        "events that are not delivered go to the queue",
    )
    runs = only("aws_lambda_function_event_invoke_config")
    failed = runs.get("destination_config", [{}])[0].get("on_failure", [{}])[0]
    rule(failed.get("destination") == queue.get("arn"), "events of failed runs go to the queue")
    rule(runs.get("qualifier") == live.get("name"), "what becomes of failed runs is said of the alias")
    writers = only("aws_sqs_queue_policy").get("policy", {}).get("Statement", [])
    rule(
        [one.get("Condition", {}).get("ArnEquals", {}).get("aws:SourceArn") for one in writers]
        == [event.get("arn")],
        "the schedule alone writes to the queue",
    )

    # Policies: this table, no wildcard except for KMS, and no product reaches rows of another vendor.
    arn = table.get("arn", "")
    policies = {
        address: values["policy"]
        for kind in ("aws_iam_policy", "aws_iam_role_policy")
        for address, values in of(kind).items()
    }
    for address, document in policies.items():
        for statement in document["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            rule(not any("*" in action for action in actions), f"{address}: an action has a wildcard")
            wanted = queue.get("arn") if actions == ["sqs:SendMessage"] else arn
            rule(
                statement["Resource"] == wanted,
                f"{address}: {statement.get('Sid')} is about {statement['Resource']}",
            )
    vendors = {"chat": ["openai", "anthropic"], "voice": ["elevenlabs"]}
    for product, own in vendors.items():
        document = next(
            (one for address, one in policies.items() if f'product_policy["{product}"]' in address),
            {"Statement": []},
        )
        for vendor in [one for all_of in vendors.values() for one in all_of] + ["openai2"]:
            bucket, lease, load, ticket = rows_of(vendor)
            work = [("GetItem", bucket), ("BatchGetItem", load), ("UpdateItem", bucket), ("UpdateItem", load)]
            work += [
                ("PutItem", lease),
                ("UpdateItem", lease),
                ("DeleteItem", lease),
                ("PutItem", ticket),
                ("UpdateItem", ticket),
            ]
            for action, key in work:
                may = allows(document, action, arn, key)
                rule(may == (vendor in own), f"{product} {'may' if may else 'may not'} {action} {key}")
            if vendor not in own:
                for action in WRITES:
                    for key in rows_of(vendor):
                        rule(not allows(document, action, arn, key), f"{product} may {action} {key}")
        for key in ("load#directory", "load#heal", "load#sweeps"):
            rule(
                not any(allows(document, action, arn, key) for action in WRITES), f"{product} may write {key}"
            )
        rule(
            allows(document, "GetItem", arn, "load#directory"),
            f"{product} may read the directory, which tells the time",
        )
        rule(not allows(document, "PutItem", arn, rows_of(own[0])[0]), f"{product} may not replace a bucket")
        rule(
            not allows(document, "DeleteItem", arn, rows_of(own[0])[0]), f"{product} may not remove a bucket"
        )
        rule(
            not any(
                allows(document, action, arn)
                for action in ("Scan", "Query", "DeleteTable", "UpdateTable", *WRITES)
            ),
            f"{product} needs a key",
        )
    for part, may_limit in (("operator", True), ("reader", False)):
        document = next(
            (one for address, one in policies.items() if address.endswith(f"aws_iam_policy.{part}")),
            {"Statement": []},
        )
        for action in ("PutItem", "UpdateItem", "DeleteItem"):
            rule(allows(document, action, arn, "openai#rpm") == may_limit, f"{part}: {action} of a bucket")
            rule(not allows(document, action, arn, "lease#openai#rpm#0193"), f"{part}: {action} of a lease")
            rule(not allows(document, action, arn, "load#directory"), f"{part}: {action} of the directory")
        rule(allows(document, "Scan", arn) != may_limit, f"{part}: Scan")

    # Alarms look at what is made here, and notify the right topic.
    known = {
        "FunctionName": function.get("function_name"),
        "QueueName": queue.get("name"),
        "TableName": table.get("name"),
    }
    for address, alarm in of("aws_cloudwatch_metric_alarm").items():
        looked_at = [alarm.get("dimensions", {})] + [
            one.get("dimensions", {})
            for query in alarm.get("metric_query", [])
            for one in query.get("metric", [])
        ]
        for dimensions in looked_at:
            for name, value in dimensions.items():
                if name != "Operation":
                    wanted = known.get(name, variables.get("SLUICE_ENV"))
                    rule(value == wanted, f"{address} looks at {name} {value}")
        formula = next((one["expression"] for one in alarm.get("metric_query", []) if "expression" in one), "")
        spaces = {alarm.get("namespace")} | {
            one["namespace"] for query in alarm.get("metric_query", []) for one in query.get("metric", [])
        }
        rule(
            "AWS/DynamoDB" not in spaces or "FILL" in formula,
            f"{address}: CloudWatch ignores missing data of AWS/DynamoDB, so it would never end",
        )
        counts_events = alarm["comparison_operator"].startswith("GreaterThan")
        rule(
            not (counts_events and "FILL" in formula)
            or alarm["datapoints_to_alarm"] < alarm["evaluation_periods"],
            f"{address}: FILL makes a zero of the newest period, which is late: it could never go off",
        )
        name = alarm["alarm_name"].split("prod-")[-1]
        rule(
            name == "no-sweep" or alarm["treat_missing_data"] != "breaching",
            f"{address}: silence is an alarm for no-sweep alone",
        )
        rule(
            name != "no-sweep" or "FILL(sweeps, 0)" in formula,
            f"{address}: without FILL, CloudWatch looks further back for a sweep, and pages late",
        )
        rule(
            alarm.get("statistic") != "Minimum" or alarm["datapoints_to_alarm"] > 1,
            f"{address}: the minimum of a single period may be a single sweep's",
        )
        names = {one["metric_name"] for query in alarm.get("metric_query", []) for one in query.get("metric", [])}
        rule(
            name != "dynamodb-unavailable" or names == {"Unavailable", "DynamoDbOut"},
            f"{address}: calls without DynamoDB and processes that only probe are an outage, not {names}",
        )
        now = [name in alarm["alarm_name"] for name in CRITICAL]
        topic = f"arn:aws:sns:eu-central-1:111122223333:{'now' if any(now) else 'tomorrow'}"
        rule(
            alarm.get("alarm_actions") == [topic] == alarm.get("ok_actions"),
            f"{address} tells {alarm.get('alarm_actions')}",
        )
        rule(
            f"https://example.com/operations.md#{alarm['alarm_name'].split('prod-')[-1]}"
            in alarm["alarm_description"],
            f"{address} has no address in the runbook",
        )
    shown = [
        one
        for widget in only("aws_cloudwatch_dashboard").get("dashboard_body", {}).get("widgets", [])
        if widget["type"] == "alarm"
        for one in widget["properties"].get("alarms", [])
    ]
    rule(
        sorted(shown) == sorted(alarm.get("arn") for alarm in of("aws_cloudwatch_metric_alarm").values()),
        "the dashboard shows every alarm",
    )

    # The table is not lost by accident.
    rule(table.get("deletion_protection_enabled") is True, "the table is protected from deletion")
    rule(table.get("ttl", [{}])[0].get("attribute_name") == "purge_at", "rows expire by purge_at")
    rule(table.get("point_in_time_recovery", [{}])[0].get("enabled") is True, "the table can be restored")
    return broken


def agreed(name: str) -> dict:
    return json.loads((TESTS / "planned" / f"{name}.json").read_text())


def compared(
    workspace: Workspace, environments: tuple[str, ...] = ENVIRONMENTS, write: bool = False
) -> list[str]:
    """What differs from what was agreed."""
    prod = workspace.planned("prod")
    found = [f"rule broken: {text}" for text in broken_rules(prod)]
    others = {}
    for environment in environments[1:]:
        others[environment] = differences(
            without_name("prod", prod), without_name(environment, workspace.planned(environment))
        )
    if write:
        for name, value in (("prod", prod), ("others", others)):
            (TESTS / "planned" / f"{name}.json").write_text(
                json.dumps(value, indent=1, sort_keys=True) + "\n"
            )
    found += differences(agreed("prod"), prod)
    for environment, lines in others.items():
        found += [
            f"{environment}: {line}" for line in sorted(set(lines) ^ set(agreed("others")[environment]))
        ]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = compared(Workspace(Path(folder)), write="--write" in sys.argv[1:])
    if found:
        print("\n".join(found))
        sys.exit(
            "the plan is not as agreed; if it is meant so: infra/tests/wiring.py --write, and read the diff"
        )
    print(
        f"{len(agreed('prod'))} resources of prod, and what differs in pre and sandbox, are planned as agreed"
    )


if __name__ == "__main__":
    main()
