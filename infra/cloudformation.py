#!/usr/bin/env python3
"""infra/cloudformation/*.json, for accounts without Terraform, from what Terraform plans for prod (tests/planned/prod.json).

    cloudformation.py            fails if a template is not as generated
    cloudformation.py --write    writes them

sluice.json is one environment, product.json the policy of a product for one vendor. Alarms, policies and dashboard are taken over
from the plan; what holds them together stands here. tests/cloudformation_test.py reads the templates as CloudFormation would,
and compares the resources with the plan.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLANNED = json.loads((ROOT / "infra/tests/planned/prod.json").read_text())
RECORDER = (ROOT / "crates/sluice-table/src/emf/recorder.rs").read_text()
TABLE, FUNCTION = "ontopix-vendor-buckets-prod", "sluice-reconciler-prod"
# What an alarm names if no runbook is given: the file in the repository.
PAGE = "docs/operations.md"
RUNBOOK, REGION = "https://example.com/operations.md", "eu-central-1"

# What callers print names the environment by the table.
PRINTED = {*re.findall(r'Published \{ name: "(\w+)"', RECORDER), *re.findall(r'const OUT: &str = "(\w+)"', RECORDER)}

# The alarms whose threshold can be chosen, as in infra/variables.tf.
THRESHOLDS = {
    "restored-slots": "RestoredSlotsThreshold",
    "drift": "DriftThreshold",
    "leak": "LeakThreshold",
    "expired-but-alive": "ExpiredButAliveThreshold",
    "clock-offset": "ClockOffsetThresholdMs",
    "system-errors": "SystemErrorsThreshold",
    "refusals": "RefusalsThreshold",
    "caller-refusals": "RefusalsThreshold",
    "vendor-refusals": "VendorRefusalsThreshold",
    "shedding": "ShedThreshold",
}

ENVIRONMENT = {"Fn::Sub": "${NamePrefix}${Environment}"}
CALLERS = {"Fn::If": ["HasPrefix", {"Ref": "Table"}, {"Ref": "Environment"}]}
NOTHING = {"Ref": "AWS::NoValue"}


def of(kind: str, name: str = "") -> dict:
    """The one planned resource of a kind, with this at the end of its address."""
    found = [values for address, values in PLANNED.items() if f".{kind}." in address and address.endswith(name)]
    assert len(found) == 1, f"{len(found)} planned resources are {kind} {name}"
    return found[0]


def parameter(description: str, default=None, **more) -> dict:
    given = {} if default is None else {"Default": default}
    return {"Type": "Number" if isinstance(default, int) else "String", "Description": description, **given, **more}


def parameters() -> dict:
    environments = {"AllowedValues": ["sandbox", "pre", "prod"]}
    thresholds = {name: planned_threshold(alarm) for alarm, name in THRESHOLDS.items()}
    return {
        "Environment": parameter("Which environment this is. It ends every name.", **environments),
        "NamePrefix": parameter(
            "What every name begins with. Callers then set SLUICE_TABLE_NAME.", "", AllowedPattern="[A-Za-z0-9-]{0,20}"
        ),
        "PackageBucket": parameter("Bucket of this Region with the reconciler's zip file."),
        "PackageKey": parameter("Key of the zip file."),
        "PackageVersion": parameter("Version of the object, for a bucket with versions.", ""),
        "Release": parameter(
            "Names this deployment, as $(date +%y%m%d%H%M) does: with a new name, code and settings become a version, to which the alias points.",
            AllowedPattern="[A-Za-z0-9]{1,10}",
        ),
        "Architecture": parameter("What the zip file was built for.", "arm64", AllowedValues=["arm64", "x86_64"]),
        "CriticalTopicArn": parameter("SNS topic of urgent alarms (act now). Required in prod.", ""),
        "WarningTopicArn": parameter("SNS topic of all other alarms.", ""),
        "AlarmActionsEnabled": parameter("Whether alarms notify their topics.", "true", AllowedValues=["true", "false"]),
        "RunbookUrl": parameter(
            "Page that says what to do; the alarm's name is its anchor. Prod needs one (https).",
            PAGE,
            AllowedPattern=rf"https://[^ #]+|{re.escape(PAGE)}",
        ),
        "FirstSweepDue": parameter(
            "When no-sweep begins to count, in seconds since 1970: half an hour after the deployment.", 0
        ),
        "LogLevel": parameter(
            "SLUICE_LOG_LEVEL of the function.", "INFO", AllowedValues=["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]
        ),
        "LogRetentionDays": parameter("Days that the logs are kept.", 90),
        "Metrics": parameter("What sweeps publish.", "all", AllowedValues=["all", "alarms"]),
        "SlowestCallSeconds": parameter("The longest that a call may take.", 900),
        "ReservedConcurrency": parameter("Executions kept for the function; 0 keeps none. A new account can keep none.", 0),
        **{
            name: parameter("Threshold of an alarm, as in infra/variables.tf.", default) for name, default in thresholds.items()
        },
    }


def planned_threshold(alarm: str) -> int:
    return next(one["threshold"] for one in PLANNED.values() if one.get("alarm_name") == f"sluice-prod-{alarm}")


CONDITIONS = {
    "HasPrefix": {"Fn::Not": [{"Fn::Equals": [{"Ref": "NamePrefix"}, ""]}]},
    "HasVersion": {"Fn::Not": [{"Fn::Equals": [{"Ref": "PackageVersion"}, ""]}]},
    "HasCriticalTopic": {"Fn::Not": [{"Fn::Equals": [{"Ref": "CriticalTopicArn"}, ""]}]},
    "HasWarningTopic": {"Fn::Not": [{"Fn::Equals": [{"Ref": "WarningTopicArn"}, ""]}]},
    "IsSandbox": {"Fn::Equals": [{"Ref": "Environment"}, "sandbox"]},
    "IsVerbose": {"Fn::Or": [{"Fn::Equals": [{"Ref": "LogLevel"}, level]} for level in ("TRACE", "DEBUG")]},
    "ReservesNone": {"Fn::Equals": [{"Ref": "ReservedConcurrency"}, 0]},
}

RULES = {
    "SomebodyIsPaged": {
        "RuleCondition": {"Fn::Equals": [{"Ref": "Environment"}, "prod"]},
        "Assertions": [
            {
                "Assert": {"Fn::Not": [{"Fn::Equals": [{"Ref": "CriticalTopicArn"}, ""]}]},
                "AssertDescription": "prod needs CriticalTopicArn: an SNS topic that reaches whoever is on call.",
            },
            {
                "Assert": {"Fn::Not": [{"Fn::Equals": [{"Ref": "RunbookUrl"}, PAGE]}]},
                "AssertDescription": "prod needs RunbookUrl: where whoever is on call reads the runbook (https).",
            },
            {
                "Assert": {"Fn::Equals": [{"Ref": "AlarmActionsEnabled"}, "true"]},
                "AssertDescription": "prod needs AlarmActionsEnabled: alarms that are off notify nobody.",
            },
        ],
    }
}

# The first parts of other kinds of keys: a vendor of such a name would have the rows of all vendors.
NO_VENDORS = ["lease", "load", "ticket"]


def unless(condition: str, value, otherwise=None) -> dict:
    return {"Fn::If": [condition, NOTHING if otherwise is None else otherwise, value]}


def when(condition: str, value, otherwise=None) -> dict:
    return {"Fn::If": [condition, value, NOTHING if otherwise is None else otherwise]}


def named(name: str) -> dict | str:
    """A planned name, with the parameters in place of the environment and nothing."""
    return {"Fn::Sub": re.sub(r"^(/aws/lambda/)?(.*)-prod", r"\1${NamePrefix}\2-${Environment}", name)}


def wired(value):
    """A planned value with references to the resources that it names."""
    if isinstance(value, dict):
        return {key: wired(one) for key, one in value.items()}
    if isinstance(value, list):
        return [wired(one) for one in value]
    known = {
        of("aws_dynamodb_table")["arn"]: {"Fn::GetAtt": ["Table", "Arn"]},
        of("aws_sqs_queue")["arn"]: {"Fn::GetAtt": ["DeadLetters", "Arn"]},
        of("aws_cloudwatch_event_rule")["arn"]: {"Fn::GetAtt": ["Schedule", "Arn"]},
        of("aws_sqs_queue")["name"]: {"Fn::GetAtt": ["DeadLetters", "QueueName"]},
        TABLE: {"Ref": "Table"},
        FUNCTION: {"Ref": "Reconciler"},
    }
    return known.get(value, value) if isinstance(value, str) else value


def dimensions(metric: str, planned: dict) -> list[dict]:
    environment = CALLERS if metric in PRINTED else ENVIRONMENT
    return [{"Name": name, "Value": environment if name == "Environment" else wired(value)} for name, value in planned.items()]


def logical(alarm: dict) -> str:
    what = alarm["alarm_name"].removeprefix("sluice-prod-")
    return "Alarm" + "".join(part.capitalize() for part in what.split("-"))


def query(planned: dict) -> dict:
    """A metric, or an expression over others: the one that the alarm looks at."""
    made = {"Id": planned["id"]}
    if "expression" in planned:
        text = planned["expression"].replace("INSTALLED", "${FirstSweepDue}")
        return made | {"Expression": {"Fn::Sub": text} if "${" in text else text, "Label": planned["label"], "ReturnData": True}
    (metric,) = planned["metric"]
    looked_at = {"Namespace": metric["namespace"], "MetricName": metric["metric_name"]}
    looked_at["Dimensions"] = dimensions(metric["metric_name"], metric["dimensions"])
    return made | {"MetricStat": {"Metric": looked_at, "Period": metric["period"], "Stat": metric["stat"]}, "ReturnData": False}


def alarm(planned: dict) -> dict:
    what = planned["alarm_name"].removeprefix("sluice-prod-")
    critical = planned["alarm_actions"][0].endswith(":now")
    topic = when(
        "HasCriticalTopic" if critical else "HasWarningTopic", [{"Ref": "CriticalTopicArn" if critical else "WarningTopicArn"}]
    )
    text = planned["alarm_description"].replace(RUNBOOK, "${RunbookUrl}")
    if what in THRESHOLDS:
        text = re.sub(rf"\b{planned['threshold']}(?= times| or more)", f"${{{THRESHOLDS[what]}}}", text)
    properties = {
        "AlarmName": named(planned["alarm_name"]),
        "AlarmDescription": {"Fn::Sub": text},
        "ComparisonOperator": planned["comparison_operator"],
        "Threshold": {"Ref": THRESHOLDS[what]} if what in THRESHOLDS else planned["threshold"],
        "EvaluationPeriods": planned["evaluation_periods"],
        "DatapointsToAlarm": planned["datapoints_to_alarm"],
        "TreatMissingData": planned["treat_missing_data"],
        "ActionsEnabled": {"Ref": "AlarmActionsEnabled"},
        "AlarmActions": topic,
        "OKActions": topic,
    }
    if "metric_query" in planned:
        properties["Metrics"] = [query(one) for one in planned["metric_query"]]
    else:
        properties |= {"Namespace": planned["namespace"], "MetricName": planned["metric_name"]}
        properties |= {"Dimensions": dimensions(planned["metric_name"], planned["dimensions"])}
        properties |= {"Statistic": planned["statistic"], "Period": planned["period"]}
    return {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}


def dashboard() -> dict:
    alarms = {one["arn"]: "${%s.Arn}" % logical(one) for one in PLANNED.values() if "alarm_name" in one}

    def shown(value):
        if isinstance(value, dict):
            return {key: shown(one) for key, one in value.items()}
        if isinstance(value, list):
            is_printed = len(value) > 3 and value[0] == "Sluice" and value[1] in PRINTED
            return ["${Callers}" if is_printed and index == 3 else shown(one) for index, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        value = alarms.get(value, value)
        for planned, reference in (
            (FUNCTION + "-dead-letters", "${DeadLetters.QueueName}"),
            (FUNCTION, "${Reconciler}"),
            (TABLE, "${Table}"),
            (REGION, "${AWS::Region}"),
        ):
            value = value.replace(planned, reference)
        return re.sub(r"(?<![a-z])prod(?![a-z])", "${NamePrefix}${Environment}", value)

    body = json.dumps(shown(of("aws_cloudwatch_dashboard")["dashboard_body"]), separators=(",", ":"))
    properties = {"DashboardName": named("sluice-prod"), "DashboardBody": {"Fn::Sub": [body, {"Callers": CALLERS}]}}
    return {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}


def policy(planned: dict) -> dict:
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "ManagedPolicyName": named(planned["name"]),
            "Path": planned["path"],
            "Description": planned["description"],
            "PolicyDocument": wired(planned["policy"]),
        },
    }


def table() -> dict:
    planned = of("aws_dynamodb_table")
    (key,), (ttl,), (restore,) = planned["attribute"], planned["ttl"], planned["point_in_time_recovery"]
    insights = {
        "Enabled": unless("IsSandbox", True, False),
        "Mode": of("aws_dynamodb_contributor_insights", "hot_keys[0]")["mode"],
    }
    return {
        "Type": "AWS::DynamoDB::Table",
        # A first deployment that fails leaves no table in the way of the second.
        "DeletionPolicy": "RetainExceptOnCreate",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            "TableName": named(planned["name"]),
            "BillingMode": planned["billing_mode"],
            "AttributeDefinitions": [{"AttributeName": key["name"], "AttributeType": key["type"]}],
            "KeySchema": [{"AttributeName": planned["hash_key"], "KeyType": "HASH"}],
            "DeletionProtectionEnabled": unless("IsSandbox", planned["deletion_protection_enabled"], False),
            "TimeToLiveSpecification": {"AttributeName": ttl["attribute_name"], "Enabled": ttl["enabled"]},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": restore["enabled"]},
            "ContributorInsightsSpecification": insights,
        },
    }


def reconciler() -> dict:
    planned, runs = of("aws_lambda_function"), of("aws_lambda_function_event_invoke_config")
    variables = {
        "SLUICE_TABLE_NAME": {"Ref": "Table"},
        "SLUICE_ENV": ENVIRONMENT,
        "SLUICE_AWS_REGION": {"Ref": "AWS::Region"},
        "SLUICE_LOG_LEVEL": {"Ref": "LogLevel"},
        "SLUICE_SLOWEST_CALL": {"Ref": "SlowestCallSeconds"},
        "SLUICE_METRICS": {"Ref": "Metrics"},
    }
    (failed,) = runs["destination_config"][0]["on_failure"]
    return {
        "Type": "AWS::Serverless::Function",
        "Properties": {
            "FunctionName": named(planned["function_name"]),
            "Description": planned["description"],
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "CodeUri": {
                "Bucket": {"Ref": "PackageBucket"},
                "Key": {"Ref": "PackageKey"},
                "Version": when("HasVersion", {"Ref": "PackageVersion"}),
            },
            "Runtime": planned["runtime"],
            "Handler": planned["handler"],
            "Architectures": [{"Ref": "Architecture"}],
            "MemorySize": planned["memory_size"],
            "Timeout": planned["timeout"],
            "ReservedConcurrentExecutions": unless("ReservesNone", {"Ref": "ReservedConcurrency"}),
            "Environment": {"Variables": variables},
            "LoggingConfig": {
                "LogFormat": "JSON",
                "LogGroup": {"Ref": "Log"},
                "ApplicationLogLevel": when("IsVerbose", {"Ref": "LogLevel"}, "INFO"),
                "SystemLogLevel": "INFO",
            },
            # SAM sees a changed zip file, but no changed parameter in a variable of the environment: so whoever
            # deploys names what is a version. SAM takes the name for a hash, and adds it to the description.
            "AutoPublishAlias": of("aws_lambda_alias")["name"],
            "AutoPublishCodeSha256": {"Ref": "Release"},
            "VersionDescription": {"Ref": "Release"},
            "EventInvokeConfig": {
                "MaximumRetryAttempts": runs["maximum_retry_attempts"],
                "MaximumEventAgeInSeconds": runs["maximum_event_age_in_seconds"],
                "DestinationConfig": {"OnFailure": {"Type": "SQS", "Destination": wired(failed["destination"])}},
            },
        },
    }


def around() -> dict:
    """What the function runs as, what starts it, and where failures go."""
    role, rights, queue, rule, target = (
        of(kind)
        for kind in (
            "aws_iam_role",
            "aws_iam_role_policy",
            "aws_sqs_queue",
            "aws_cloudwatch_event_rule",
            "aws_cloudwatch_event_target",
        )
    )
    (retries,), permission, log = target["retry_policy"], of("aws_lambda_permission"), of("aws_cloudwatch_log_group")
    logs = of("aws_iam_role_policy_attachment")["policy_arn"].replace("arn:aws:", "arn:${AWS::Partition}:", 1)
    return {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": named(role["name"]),
                "Path": role["path"],
                "Description": role["description"],
                "AssumeRolePolicyDocument": role["assume_role_policy"],
                "ManagedPolicyArns": [{"Fn::Sub": logs}],
                "Policies": [{"PolicyName": named(rights["name"]), "PolicyDocument": wired(rights["policy"])}],
            },
        },
        "Log": {
            "Type": "AWS::Logs::LogGroup",
            "Properties": {"LogGroupName": named(log["name"]), "RetentionInDays": {"Ref": "LogRetentionDays"}},
        },
        "DeadLetters": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": named(queue["name"]),
                "MessageRetentionPeriod": queue["message_retention_seconds"],
                "SqsManagedSseEnabled": queue["sqs_managed_sse_enabled"],
            },
        },
        "DeadLettersPolicy": {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{"Ref": "DeadLetters"}],
                "PolicyDocument": wired(of("aws_sqs_queue_policy")["policy"]),
            },
        },
        "Schedule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "Name": named(rule["name"]),
                "Description": rule["description"],
                "ScheduleExpression": rule["schedule_expression"],
                "State": "ENABLED",
                "Targets": [
                    {
                        "Id": "reconciler",
                        "Arn": {"Ref": "Reconciler.Alias"},
                        "RetryPolicy": {
                            "MaximumRetryAttempts": retries["maximum_retry_attempts"],
                            "MaximumEventAgeInSeconds": retries["maximum_event_age_in_seconds"],
                        },
                        "DeadLetterConfig": {"Arn": wired(target["dead_letter_config"][0]["arn"])},
                    }
                ],
            },
        },
        "SchedulePermission": {
            "Type": "AWS::Lambda::Permission",
            "Properties": {
                "Action": permission["action"],
                "FunctionName": {"Ref": "Reconciler.Alias"},
                "Principal": permission["principal"],
                "SourceArn": wired(permission["source_arn"]),
            },
        },
    }


def sluice() -> dict:
    alarms = sorted((one for one in PLANNED.values() if "alarm_name" in one), key=lambda one: one["alarm_name"])
    policies = {
        "CallerPolicy": of("aws_iam_policy", "caller_policy.aws_iam_policy.caller"),
        "OperatorPolicy": of("aws_iam_policy", ".operator"),
        "ReaderPolicy": of("aws_iam_policy", ".reader"),
    }
    outputs = {
        "TableName": {"Ref": "Table"},
        "TableArn": {"Fn::GetAtt": ["Table", "Arn"]},
        "FunctionName": {"Ref": "Reconciler"},
        "AliasArn": {"Ref": "Reconciler.Alias"},
        "DeadLetterQueueUrl": {"Ref": "DeadLetters"},
        **{f"{name}Arn": {"Ref": name} for name in policies},
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Transform": "AWS::Serverless-2016-10-31",
        "Description": "Sluice: one environment. Generated by infra/cloudformation.py from what Terraform plans; docs/deploying.md.",
        # An empty PackageVersion is never used: HasVersion asks first.
        "Metadata": {"cfn-lint": {"config": {"ignore_checks": ["E3033"]}}},
        "Parameters": parameters(),
        "Rules": RULES,
        "Conditions": CONDITIONS,
        "Resources": {
            "Table": table(),
            "Reconciler": reconciler(),
            **around(),
            **{name: policy(planned) for name, planned in policies.items()},
            **{logical(one): alarm(one) for one in alarms},
            "Dashboard": dashboard(),
        },
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }


def product() -> dict:
    """From the policy of a product with one vendor."""
    planned = of("aws_iam_policy", 'product_policy["voice"].aws_iam_policy.caller')

    def of_vendor(value):
        if isinstance(value, dict):
            return {key: of_vendor(one) for key, one in value.items()}
        if isinstance(value, list):
            return [of_vendor(one) for one in value]
        if value == of("aws_dynamodb_table")["arn"]:
            return {"Ref": "TableArn"}
        return {"Fn::Sub": value.replace("elevenlabs", "${Vendor}")} if "elevenlabs" in value else value

    made = {
        "ManagedPolicyName": {"Fn::Sub": "${NamePrefix}sluice-caller-${Environment}-${Product}"},
        "Path": planned["path"],
        "Description": of_vendor(planned["description"]),
        "PolicyDocument": of_vendor(planned["policy"]),
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Sluice: what a product may do to the rows of one vendor. Generated by infra/cloudformation.py.",
        "Parameters": {
            "Environment": parameter("Which environment this is.", AllowedValues=["sandbox", "pre", "prod"]),
            "NamePrefix": parameter("What every name begins with.", "", AllowedPattern="[A-Za-z0-9-]{0,20}"),
            "TableArn": parameter("Output TableArn of the stack with the table."),
            "Product": parameter(
                "Ends the policy's name. A product with several vendors has a stack for each: chat-openai, chat-anthropic.",
                AllowedPattern="[A-Za-z0-9_.-]{1,64}",
            ),
            "Vendor": parameter("The vendor, as in the names of its buckets.", AllowedPattern="[A-Za-z0-9_.:/@-]+"),
        },
        "Rules": {
            "OneVendor": {
                "Assertions": [
                    {
                        "Assert": {"Fn::Not": [{"Fn::Contains": [NO_VENDORS, {"Ref": "Vendor"}]}]},
                        "AssertDescription": "Vendor is the first part of a bucket's name, and not lease, load or ticket.",
                    }
                ]
            }
        },
        "Resources": {"Policy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": made}},
        "Outputs": {"PolicyArn": {"Value": {"Ref": "Policy"}}},
    }


def main() -> None:
    wrong = []
    for name, template in (("sluice", sluice()), ("product", product())):
        file, wanted = ROOT / f"infra/cloudformation/{name}.json", json.dumps(template, indent=1) + "\n"
        if "--write" in sys.argv[1:]:
            file.parent.mkdir(exist_ok=True)
            file.write_text(wanted)
        if not file.exists() or file.read_text() != wanted:
            wrong.append(f"{file.relative_to(ROOT)} is not as generated: infra/cloudformation.py --write")
    print("\n".join(wrong) or "the templates of CloudFormation are as generated")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
