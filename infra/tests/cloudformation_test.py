#!/usr/bin/env python3
"""The templates of infra/cloudformation against the same assertions as Terraform: what CloudFormation would
make of them for prod is compared, value by value, with planned/prod.json, and obeys the rules of wiring.py.
Then faults are planted in the template.

The transform of SAM is AWS's own (aws-sam-translator); the functions of a template are resolved here. Needs
aws-sam-translator.
"""

import copy
import json
import logging
import os
import re
import unittest
from pathlib import Path

import wiring

REGION = "eu-central-1"
os.environ["AWS_DEFAULT_REGION"] = REGION
logging.disable(logging.WARNING)  # that usage was counted, and is not published
from samtranslator.translator.transform import transform  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATES = ROOT / "infra/cloudformation"
ACCOUNT = "111122223333"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:"
PROD = {
    "Environment": "prod",
    "PackageBucket": "artifacts",
    "PackageKey": "reconciler.zip",
    "Release": "2611260500",
    "CriticalTopicArn": TOPIC + "now",
    "WarningTopicArn": TOPIC + "tomorrow",
    "RunbookUrl": "https://example.com/operations.md",
    "FirstSweepDue": 1772326800,
}

# Terraform's name of each type, and the property that names a resource.
TYPES = {
    "AWS::DynamoDB::Table": ("aws_dynamodb_table", "TableName"),
    "AWS::Lambda::Function": ("aws_lambda_function", "FunctionName"),
    "AWS::Lambda::Alias": ("aws_lambda_alias", "Name"),
    "AWS::Lambda::EventInvokeConfig": ("aws_lambda_function_event_invoke_config", "FunctionName"),
    "AWS::Lambda::Permission": ("aws_lambda_permission", "FunctionName"),
    "AWS::IAM::Role": ("aws_iam_role", "RoleName"),
    "AWS::IAM::ManagedPolicy": ("aws_iam_policy", "ManagedPolicyName"),
    "AWS::Logs::LogGroup": ("aws_cloudwatch_log_group", "LogGroupName"),
    "AWS::SQS::Queue": ("aws_sqs_queue", "QueueName"),
    "AWS::SQS::QueuePolicy": ("aws_sqs_queue_policy", None),
    "AWS::Events::Rule": ("aws_cloudwatch_event_rule", "Name"),
    "AWS::CloudWatch::Alarm": ("aws_cloudwatch_metric_alarm", "AlarmName"),
    "AWS::CloudWatch::Dashboard": ("aws_cloudwatch_dashboard", "DashboardName"),
}
BY_ADDRESS = {
    "aws_iam_policy": {
        "sluice-caller-prod": "module.sluice.module.caller_policy.aws_iam_policy.caller",
        "sluice-operator-prod": "module.sluice.module.operator_policy.aws_iam_policy.operator",
        "sluice-reader-prod": "module.sluice.module.operator_policy.aws_iam_policy.reader",
    }
}


class Stack:
    """A template as CloudFormation would read it, with these parameters."""

    def __init__(self, template: dict, parameters: dict):
        self.parameters = {
            name: parameters.get(name, one.get("Default")) for name, one in template["Parameters"].items()
        }
        missing = [name for name, value in self.parameters.items() if value is None]
        assert not missing, f"parameters without a value: {missing}"
        self.unfit = [
            name
            for name, one in template["Parameters"].items()
            if "AllowedPattern" in one and not re.fullmatch(one["AllowedPattern"], str(self.parameters[name]))
        ]
        self.rules = template.get("Rules", {})
        if "Transform" in template:
            template = transform(copy.deepcopy(template), self.parameters, {}, None)
        self.conditions = template.get("Conditions", {})
        self.resources = template["Resources"]

    def broken(self) -> list[str]:
        """Of the rules, what is not as asserted; and each parameter that its pattern does not allow."""
        meant = [rule for rule in self.rules.values() if self.holds(rule.get("RuleCondition", True))]
        asserted = [one for rule in meant for one in rule["Assertions"]]
        return self.unfit + [one["AssertDescription"] for one in asserted if not self.holds(one["Assert"])]

    def holds(self, condition) -> bool:
        if isinstance(condition, bool):
            return condition
        if isinstance(condition, str):
            return self.holds(self.conditions[condition])
        ((function, of),) = condition.items()
        match function:
            case "Fn::Equals":
                return str(self.value(of[0])) == str(self.value(of[1]))
            case "Fn::Contains":
                return self.value(of[1]) in self.value(of[0])
            case "Fn::Not":
                return not self.holds(of[0])
            case "Fn::Or":
                return any(self.holds(one) for one in of)
            case "Condition":
                return self.holds(of)
        raise AssertionError(f"the condition {function} is not known here")

    NOTHING = object()

    def value(self, value):
        if isinstance(value, list):
            return [one for one in map(self.value, value) if one is not self.NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((function, of),) = value.items()
            match function:
                case "Ref":
                    return self.ref(of)
                case "Fn::GetAtt":
                    return self.attribute(*(of if isinstance(of, list) else of.split(".", 1)))
                case "Fn::If":
                    return self.value(of[1] if self.holds(of[0]) else of[2])
                case "Fn::Sub":
                    text, own = (of, {}) if isinstance(of, str) else of
                    return re.sub(r"\$\{([\w:.]+)\}", lambda one: str(self.named(one[1], own)), text)
            assert not function.startswith("Fn::"), f"{function} is not known here"
        resolved = {name: self.value(one) for name, one in value.items()}
        return {name: one for name, one in resolved.items() if one is not self.NOTHING}

    def named(self, name: str, own: dict):
        if name in own:
            return self.value(own[name])
        return self.attribute(*name.split(".", 1)) if "." in name else self.ref(name)

    def ref(self, name: str):
        pseudo = {
            "AWS::NoValue": self.NOTHING,
            "AWS::Region": REGION,
            "AWS::Partition": "aws",
            "AWS::AccountId": ACCOUNT,
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.parameters:
            return self.parameters[name]
        kind, own = self.name_of(name)
        # What a reference to a resource gives: of an alias and a policy the ARN, of a queue its URL.
        if kind in ("aws_lambda_alias", "aws_iam_policy"):
            return self.attribute(name, "Arn")
        return f"{kind}/{own}" if kind == "aws_sqs_queue" else own

    def name_of(self, logical: str) -> tuple[str, str]:
        resource = self.resources[logical]
        kind, property_ = TYPES[resource["Type"]]
        return kind, self.value(resource["Properties"][property_])

    def attribute(self, logical: str, attribute: str):
        kind, name = ("aws_lambda_version", logical) if "Version" in logical else self.name_of(logical)
        match attribute:
            # As the stand-in provider of .ci/terraform-offline makes them up.
            case "Arn":
                return f"arn:aws:{kind}:{REGION}:{ACCOUNT}:{name}"
            case "QueueName":
                return name
            case "Version":
                return f"published {name}"
        raise AssertionError(f"the attribute {attribute} is not known here")


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def snaked(properties: dict, *but: str) -> dict:
    return {snake(name): value for name, value in properties.items() if name not in but}


def boolean(value) -> bool:
    return value if isinstance(value, bool) else {"true": True, "false": False}[value]


# What each type is in Terraform: attributes, and further resources that Terraform keeps apart.


def table(given: dict) -> tuple[dict, list]:
    ((key,), (schema,)) = given.pop("AttributeDefinitions"), given.pop("KeySchema")
    assert schema["KeyType"] == "HASH"
    ttl, restore = given.pop("TimeToLiveSpecification"), given.pop("PointInTimeRecoverySpecification")
    insights = given.pop("ContributorInsightsSpecification")
    more = [
        ("aws_dynamodb_contributor_insights", {"mode": insights["Mode"], "table_name": given["TableName"]})
    ]
    return {
        "name": given.pop("TableName"),
        "attribute": [{"name": key["AttributeName"], "type": key["AttributeType"]}],
        "hash_key": schema["AttributeName"],
        "deletion_protection_enabled": given.pop("DeletionProtectionEnabled"),
        "ttl": [snaked(ttl)],
        "point_in_time_recovery": [{"enabled": restore["PointInTimeRecoveryEnabled"]}],
        # CloudFormation encrypts with DynamoDB's own key if nothing is said.
        "server_side_encryption": [{"enabled": False}],
        **snaked(given),
    }, more if insights["Enabled"] else []


def function(given: dict) -> tuple[dict, list]:
    given.pop("Code")
    assert given.pop("Tags") == [{"Key": "lambda:createdBy", "Value": "SAM"}]
    given["Description"] = given["Description"].removesuffix(" " + PROD["Release"])
    variables = {name: str(value) for name, value in given.pop("Environment")["Variables"].items()}
    return {
        "environment": [{"variables": variables}],
        "logging_config": [snaked(given.pop("LoggingConfig"))],
        **snaked(given),
    }, []


def role(given: dict) -> tuple[dict, list]:
    name, more = given.pop("RoleName"), []
    more += [
        ("aws_iam_role_policy_attachment", {"policy_arn": arn, "role": name})
        for arn in given.pop("ManagedPolicyArns")
    ]
    for policy in given.pop("Policies"):
        more.append(
            (
                "aws_iam_role_policy",
                {"name": policy["PolicyName"], "policy": policy["PolicyDocument"], "role": name},
            )
        )
    return {"name": name, "assume_role_policy": given.pop("AssumeRolePolicyDocument"), **snaked(given)}, more


def rule(given: dict) -> tuple[dict, list]:
    more = []
    for target in given.pop("Targets"):
        retries, dead = target["RetryPolicy"], target["DeadLetterConfig"]
        retries = {snake(name).replace("_event_age", "_event_age"): value for name, value in retries.items()}
        made = {
            "arn": target["Arn"],
            "rule": given["Name"],
            "retry_policy": [retries],
            "dead_letter_config": [snaked(dead)],
        }
        more.append(("aws_cloudwatch_event_target", made))
    # Enabled is what Terraform says by saying nothing.
    if given["State"] == "ENABLED":
        given.pop("State")
    return snaked(given), more


def alarm(given: dict) -> tuple[dict, list]:
    def dimensions(of: list) -> dict:
        return {one["Name"]: one["Value"] for one in of}

    def query(one: dict) -> dict:
        made = {name: value for name, value in snaked(one, "MetricStat").items() if value is not False}
        if "MetricStat" in one:
            stat = one["MetricStat"]
            metric = snaked(stat["Metric"], "Dimensions") | {
                "dimensions": dimensions(stat["Metric"]["Dimensions"])
            }
            made["metric"] = [metric | {"period": stat["Period"], "stat": stat["Stat"]}]
        return made

    made = snaked(given, "Dimensions", "Metrics", "OKActions", "ActionsEnabled")
    made |= {"ok_actions": given.get("OKActions", []), "actions_enabled": boolean(given["ActionsEnabled"])}
    if "Dimensions" in given:
        made["dimensions"] = dimensions(given["Dimensions"])
    if "Metrics" in given:
        made["metric_query"] = [query(one) for one in given["Metrics"]]
    return made, []


def permission(given: dict) -> tuple[dict, list]:
    # Given by the alias' ARN, the permission is on the alias. The function's name is not in the made-up ARN.
    name, qualifier = given.pop("FunctionName"), None
    if ":aws_lambda_alias:" in name:
        name, qualifier = "sluice-reconciler-prod", name.rsplit(":", 1)[1]
    return {"function_name": name, "qualifier": qualifier, "statement_id": "schedule", **snaked(given)}, []


def renamed(**names: str):
    """Attributes of a type that has another name for a few of them."""

    def made(given: dict) -> tuple[dict, list]:
        return {names.get(snake(name), snake(name)): value for name, value in given.items()}, []

    return made


def runs(given: dict) -> tuple[dict, list]:
    failed = given.pop("DestinationConfig")["OnFailure"]
    return {"destination_config": [{"on_failure": [snaked(failed)]}], **snaked(given)}, []


def queue_policy(given: dict) -> tuple[dict, list]:
    (queue,) = given["Queues"]
    return {"queue_url": queue, "policy": given["PolicyDocument"]}, []


def live(given: dict) -> tuple[dict, list]:
    # The version that is published, which no plan of Terraform knows.
    if re.fullmatch(r"published ReconcilerVersion\w+", given["FunctionVersion"]):
        given.pop("FunctionVersion")
    return {"description": "The version that the schedule starts.", **snaked(given)}, []


MADE = {
    "AWS::DynamoDB::Table": table,
    "AWS::Lambda::Function": function,
    "AWS::Lambda::Alias": live,
    "AWS::Lambda::EventInvokeConfig": runs,
    "AWS::Lambda::Permission": permission,
    "AWS::IAM::Role": role,
    "AWS::IAM::ManagedPolicy": renamed(managed_policy_name="name", policy_document="policy"),
    "AWS::Logs::LogGroup": renamed(log_group_name="name"),
    "AWS::SQS::Queue": renamed(queue_name="name", message_retention_period="message_retention_seconds"),
    "AWS::SQS::QueuePolicy": queue_policy,
    "AWS::Events::Rule": rule,
    "AWS::CloudWatch::Alarm": alarm,
    "AWS::CloudWatch::Dashboard": lambda given: (
        {"dashboard_name": given["DashboardName"], "dashboard_body": json.loads(given["DashboardBody"])},
        [],
    ),
}


def addressed(kind: str, values: dict, planned: dict) -> str:
    """Terraform's address of what has this kind and name; another one if nothing is planned so."""
    of_kind = {address: one for address, one in planned.items() if re.search(rf"(^|\.){kind}\.", address)}
    named = BY_ADDRESS.get(kind, {}).get(values.get("name"))
    same = [address for address, one in of_kind.items() if one.get("alarm_name") == values.get("alarm_name")]
    return named or (
        same[0] if len(same) == 1 else f"{kind} {values.get('name') or values.get('alarm_name')}"
    )


def without(values: dict, *names: str) -> dict:
    return {name: value for name, value in values.items() if name not in names}


def in_terms_of_terraform(template: dict, parameters: dict, planned: dict) -> dict[str, dict]:
    stack, made = Stack(template, parameters), {}
    assert not stack.broken(), stack.broken()
    for logical, resource in stack.resources.items():
        kind = resource["Type"]
        if kind == "AWS::Lambda::Version":
            assert resource["DeletionPolicy"] == "Retain", "the version to go back to is deleted"
            made["published"] = True
            continue
        values, more = MADE[kind](stack.value(copy.deepcopy(resource["Properties"])))
        if kind == "AWS::Lambda::Function":
            values["publish"] = True
        if "arn" in planned.get(addressed(TYPES[kind][0], values, planned), {}):
            values["arn"] = stack.attribute(logical, "Arn")
        for one, of in [(TYPES[kind][0], values), *more]:
            address = addressed(one, of, planned)
            while address in made:
                address += " again"
            made[address] = wiring.plain(of)
    assert made.pop("published"), "no version is published"
    return made


# Not in the template: docs/deploying.md says so.
LEFT_OUT = (
    'module.sluice.module.product_policy["chat"].aws_iam_policy.caller',
    'module.sluice.module.product_policy["voice"].aws_iam_policy.caller',
    "module.sluice.module.alarms.terraform_data.installed",
    "terraform_data.installation",
)


def compared(template: dict, parameters: dict) -> list[str]:
    agreed = wiring.agreed("prod")
    # CloudFormation orders resources by their references. A rule there holds its target, and comes before its
    # permission.
    wanted = {
        address: without(values, "id", "url", "filename", "depends_on")
        for address, values in agreed.items()
        if address not in LEFT_OUT
    }
    made = in_terms_of_terraform(template, parameters, agreed)
    found = wiring.differences(wanted, made)
    # The rules want the products' policies, which are a template of their own.
    whole = made | {address: agreed[address] for address in LEFT_OUT}
    for address, values in agreed.items():
        if "depends_on" in values and address in made:
            whole[address] = made[address] | {"depends_on": values["depends_on"]}
    return found + [f"rule broken: {text}" for text in wiring.broken_rules(whole)]


def template(name: str) -> dict:
    return json.loads((TEMPLATES / f"{name}.json").read_text())


class CloudFormation(unittest.TestCase):
    maxDiff = None

    def test_the_template_makes_what_terraform_plans(self):
        self.assertEqual(compared(template("sluice"), PROD), [])

    def test_the_policy_of_a_product_is_the_one_that_terraform_makes(self):
        planned = wiring.agreed("prod")['module.sluice.module.product_policy["voice"].aws_iam_policy.caller']
        arn = wiring.agreed("prod")["module.sluice.module.table[0].aws_dynamodb_table.buckets"]["arn"]
        given = {"Environment": "prod", "TableArn": arn, "Product": "voice", "Vendor": "elevenlabs"}
        stack = Stack(template("product"), given)
        made = stack.value(stack.resources["Policy"]["Properties"])
        self.assertEqual(made["PolicyDocument"], planned["policy"])
        self.assertEqual(
            (made["ManagedPolicyName"], made["Description"]), (planned["name"], planned["description"])
        )

    def test_a_product_has_the_rows_of_one_vendor_and_no_other(self):
        def broken(**changed):
            given = {"Environment": "prod", "TableArn": "arn", "Product": "voice", "Vendor": "elevenlabs"}
            return Stack(template("product"), given | changed).broken()

        self.assertEqual(broken(), [])
        # `lease#*` would be the leases of every vendor.
        for vendor in ("lease", "load", "ticket", "*", "open*", "openai#", "open?i", ""):
            self.assertTrue(broken(Vendor=vendor), vendor)
        for product in ("", "voice*", "voice/../x", "a b", "x" * 65):
            self.assertEqual(broken(Product=product), ["Product"], product)

    def test_a_first_deployment_that_fails_leaves_no_table_in_the_way(self):
        table = template("sluice")["Resources"]["Table"]
        kept = (table["DeletionPolicy"], table["UpdateReplacePolicy"])
        self.assertEqual(kept, ("RetainExceptOnCreate", "Retain"))

    def test_prod_is_refused_without_a_runbook_that_people_can_open(self):
        for url, is_refused in (("docs/operations.md", True), ("http://example.com", True), ("https://a/b", False)):
            self.assertEqual(bool(Stack(template("sluice"), PROD | {"RunbookUrl": url}).broken()), is_refused, url)

    def test_prod_is_refused_while_its_alarms_are_off(self):
        for env, is_refused in (("prod", True), ("pre", False)):
            given = PROD | {"Environment": env, "AlarmActionsEnabled": "false"}
            self.assertEqual(bool(Stack(template("sluice"), given).broken()), is_refused, env)

    def test_prod_is_refused_while_its_alarms_reach_nobody(self):
        broken = Stack(template("sluice"), without(PROD, "CriticalTopicArn")).broken()
        self.assertEqual(len(broken), 1)
        self.assertEqual(
            Stack(template("sluice"), without(PROD, "CriticalTopicArn") | {"Environment": "pre"}).broken(), []
        )

    def test_each_release_is_a_version_of_its_own_and_the_one_before_stays(self):
        def version(**changed):
            resources = Stack(template("sluice"), PROD | changed).resources
            ((name, one),) = [
                (name, one) for name, one in resources.items() if one["Type"] == "AWS::Lambda::Version"
            ]
            self.assertEqual(
                (one["DeletionPolicy"], resources["ReconcilerAliaslive"]["Properties"]["FunctionVersion"]),
                ("Retain", {"Fn::GetAtt": [name, "Version"]}),
            )
            return name

        self.assertEqual(
            (version(), version(Release="b")), ("ReconcilerVersion2611260500", "ReconcilerVersionb")
        )

    def test_a_prefix_begins_every_name_and_callers_are_looked_for_by_their_table(self):
        stack = Stack(template("sluice"), PROD | {"NamePrefix": "acme-"})
        for logical, resource in stack.resources.items():
            kind, name = TYPES.get(resource["Type"], (None, None))
            if name and kind != "aws_lambda_alias":
                shown = stack.name_of(logical)[1]
                self.assertTrue(
                    shown.removeprefix("/aws/lambda/")
                    .removeprefix("arn:aws:")
                    .split(":")[-1]
                    .startswith(("acme-", "live")),
                    shown,
                )
        (looked_at,) = stack.value(stack.resources["AlarmRefusals"]["Properties"]["Dimensions"])
        self.assertEqual(looked_at["Value"], "acme-ontopix-vendor-buckets-prod")
        (looked_at,) = stack.value(stack.resources["AlarmDrift"]["Properties"]["Dimensions"])
        self.assertEqual(looked_at["Value"], "acme-prod")

    def test_a_sandbox_is_unprotected_and_without_topics_nobody_is_told(self):
        stack = Stack(
            template("sluice"),
            {"Environment": "sandbox", "PackageBucket": "a", "PackageKey": "b", "Release": "c"},
        )
        self.assertIs(stack.value(stack.resources["Table"]["Properties"])["DeletionProtectionEnabled"], False)
        self.assertNotIn("AlarmActions", stack.value(stack.resources["AlarmDrift"]["Properties"]))
        self.assertNotIn("Version", stack.value(stack.resources["Reconciler"]["Properties"]["Code"]))

    def test_a_fault_in_the_template_is_found(self):
        def set_at(*path):
            *way, last, value = path

            def change(resources):
                for step in way:
                    resources = resources[step]
                resources[last] = value

            return change

        def add(name, kind, **properties):
            return lambda resources: resources.update({name: {"Type": kind, "Properties": properties}})

        properties = "Properties"
        open_policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": ["dynamodb:*"], "Resource": "*"}],
        }
        faults = {
            "the rule is disabled": set_at("Schedule", properties, "State", "DISABLED"),
            "the schedule starts what was uploaded last": set_at(
                "Schedule", properties, "Targets", 0, "Arn", {"Fn::GetAtt": ["Reconciler", "Arn"]}
            ),
            "the schedule may not start the alias": set_at(
                "SchedulePermission", properties, "FunctionName", {"Ref": "Reconciler"}
            ),
            "full access": lambda resources: resources["Role"][properties]["ManagedPolicyArns"].append(
                "arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess"
            ),
            "a second policy": lambda resources: resources["Role"][properties]["Policies"].append(
                {"PolicyName": "more", "PolicyDocument": open_policy}
            ),
            "an alarm of another function": set_at(
                "AlarmReconcilerErrors", properties, "Dimensions", 0, "Value", "another"
            ),
            "an urgent alarm at the wrong topic": set_at(
                "AlarmNoSweep", properties, "AlarmActions", [{"Ref": "WarningTopicArn"}]
            ),
            "another table": set_at(
                "Reconciler", properties, "Environment", "Variables", "SLUICE_TABLE_NAME", "another"
            ),
            "anybody takes the role": set_at(
                "Role", properties, "AssumeRolePolicyDocument", "Statement", 0, "Principal", "*"
            ),
            "rows expire by ttl": set_at(
                "Table", properties, "TimeToLiveSpecification", "AttributeName", "ttl"
            ),
            "a rule more": add(
                "Second",
                "AWS::Events::Rule",
                Name="second",
                ScheduleExpression="rate(1 minute)",
                State="ENABLED",
                Targets=[],
            ),
            "a policy more": add(
                "Second",
                "AWS::IAM::ManagedPolicy",
                ManagedPolicyName="second",
                Path="/",
                PolicyDocument=open_policy,
            ),
            "no restore": set_at(
                "Table", properties, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled", False
            ),
            "the dashboard shows another table": lambda resources: resources["Dashboard"][properties][
                "DashboardBody"
            ].update(
                {
                    "Fn::Sub": resources["Dashboard"][properties]["DashboardBody"]["Fn::Sub"][0]
                    .replace("${Table}", "another")
                    .replace("${Callers}", "prod")
                }
            ),
        }
        for name, plant in faults.items():
            changed = template("sluice")
            plant(changed["Resources"])
            self.assertTrue(compared(changed, PROD), f"{name}: not found")


if __name__ == "__main__":
    unittest.main()
