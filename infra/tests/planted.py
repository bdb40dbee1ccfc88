#!/usr/bin/env python3
"""Plants faults in copies of infra/, each a plan that Terraform accepts, and shows that a rule of wiring.py
finds each. The comparison with planned/*.json finds every change, also one that --write would agree to; so it
does not count.

planted.py              all of them
planted.py WORD..       those whose name has one of the words
planted.py --share N    an N-th of them, another each day, for 60 s at most
"""

import datetime
import sys
import tempfile
import time
from pathlib import Path

from wiring import Workspace, broken_rules, compared

# How long a share may take.
SHARE_SECS = 60

ALARMS, CALLERS, DASHBOARD, OPERATORS = (
    f"modules/{one}/main.tf" for one in ("alarms", "caller-policy", "dashboard", "operator-policy")
)
RECONCILER, RIGHTS, SCHEDULE = (f"modules/reconciler/{one}.tf" for one in ("main", "rights", "schedule"))
SLUICE, TABLE = "modules/sluice/main.tf", "modules/table/main.tf"

FULL_ACCESS = """
resource "aws_iam_role_policy_attachment" "more" {
  role       = aws_iam_role.reconciler.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess"
}
"""
SECOND_RULE = """
resource "aws_cloudwatch_event_rule" "second" {
  name                = "${local.name}-second"
  schedule_expression = "rate(1 minute)"
}
"""
SECOND_POLICY = """
resource "aws_iam_role_policy" "more" {
  name   = "more"
  role   = aws_iam_role.reconciler.name
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["dynamodb:PutItem"], Resource = var.table_arn }]
  })
}
"""
PUBLIC_TABLE = """
resource "aws_dynamodb_resource_policy" "open" {
  resource_arn = aws_dynamodb_table.buckets.arn
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Principal = "*", Action = ["dynamodb:GetItem"], Resource = "*" }]
  })
}
"""

# Name, file, what is replaced once (nothing: added at the end), by what.
FAULTS = [
    # Wiring.
    (
        "the rule is disabled",
        SCHEDULE,
        "  schedule_expression = var.schedule_expression\n",
        '  schedule_expression = var.schedule_expression\n  state               = "DISABLED"\n',
    ),
    ("full access is attached to the role", RIGHTS, "", FULL_ACCESS),
    (
        "alarms look at another function",
        SLUICE,
        "  function_name               = module.reconciler.function_name",
        '  function_name               = "another"',
    ),
    (
        "alarms look at another queue",
        SLUICE,
        "  dead_letter_queue_name      = module.reconciler.dead_letter_queue_name",
        '  dead_letter_queue_name      = "another"',
    ),
    (
        "the callers' policy is about another table",
        SLUICE,
        "  table_arn   = local.table.arn",
        '  table_arn   = "arn:aws:dynamodb:eu-central-1:111122223333:table/another"',
    ),
    (
        "the reconciler sweeps another table",
        SLUICE,
        "  table_name           = local.table.name",
        '  table_name           = "another"',
    ),
    (
        "the role may reach another table",
        SLUICE,
        "  table_arn            = local.table.arn",
        '  table_arn            = "arn:aws:dynamodb:eu-central-1:111122223333:table/another"',
    ),
    (
        "the schedule starts another function",
        SCHEDULE,
        "arn  = aws_lambda_alias.live.arn",
        'arn  = "arn:aws:lambda:eu-central-1:111122223333:function:another"',
    ),
    (
        "the schedule starts what was uploaded last, not the alias",
        SCHEDULE,
        "arn  = aws_lambda_alias.live.arn",
        "arn  = aws_lambda_function.reconciler.arn",
    ),
    (
        "the schedule begins before it may start the function",
        SCHEDULE,
        "  depends_on = [aws_lambda_permission.schedule]\n",
        "",
    ),
    ("the schedule may not start the alias", SCHEDULE, "  qualifier     = aws_lambda_alias.live.name\n", ""),
    (
        "failed runs of the alias are tried again, and lost",
        RECONCILER,
        "  qualifier                    = aws_lambda_alias.live.name\n",
        "",
    ),
    ("no version is published", RECONCILER, "  publish = true\n", ""),
    (
        "the alias stays at what was uploaded last",
        RECONCILER,
        "function_version = coalesce(var.pin_version, aws_lambda_function.reconciler.version)",
        'function_version = "$LATEST"',
    ),
    (
        "the alias is another function's",
        RECONCILER,
        "  function_name    = aws_lambda_function.reconciler.function_name",
        '  function_name    = "another"',
    ),
    (
        "anyone may take the role",
        RIGHTS,
        'Principal = { Service = "lambda.amazonaws.com" }',
        'Principal = "*"',
    ),
    # Policies, and what is added.
    (
        "the products' policy is about another table",
        SLUICE,
        "  table_arn     = local.table.arn",
        '  table_arn     = "arn:aws:dynamodb:eu-central-1:111122223333:table/another"',
    ),
    ("a product may touch leases of every vendor", CALLERS, '"lease#${vendor}#*"', '"lease#*"'),
    ("a vendor's pattern has no end", CALLERS, '"${vendor}#*"', '"${vendor}*"'),
    ("a product may put buckets", CALLERS, "keys = concat(local.leases, local.tickets)", "keys = local.own"),
    (
        "an operator may change leases",
        OPERATORS,
        '["lease#*", "load#*", "ticket#*"]',
        '["load#*", "ticket#*"]',
    ),
    (
        "a reader may write",
        OPERATORS,
        '    "dynamodb:DescribeContinuousBackups",\n',
        '    "dynamodb:DescribeContinuousBackups",\n    "dynamodb:UpdateItem",\n',
    ),
    (
        "an urgent alarm notifies the wrong topic",
        ALARMS,
        '      severity    = "critical"',
        '      severity    = "warning"',
    ),
    (
        "alarms of callers look at another name of the environment",
        ALARMS,
        "of_callers = { Environment = try(",
        'of_callers = { Environment = "another" == var.table_name ? "" : "another", Not = try(',
    ),
    (
        "callers that fall silent are an alarm",
        ALARMS,
        "      period      = 300\n      periods     = 3\n      datapoints  = 3\n      missing     = "
        '"notBreaching"',
        "      period      = 300\n      periods     = 3\n      datapoints  = 3\n      missing     = "
        '"breaching"',
    ),
    (
        "an outage counts failed calls alone",
        ALARMS,
        '"DynamoDbOut"',
        '"Unavailable"',
    ),
    (
        "the alarm of a hot key never ends, because CloudWatch ignores silence of DynamoDB",
        ALARMS,
        '"FILL(key, 0)"',
        '"key"',
    ),
    (
        "the alarm of DynamoDB's failures never goes off, because its newest minute is late",
        ALARMS,
        "  evaluation_periods  = 8\n",
        "  evaluation_periods  = 5\n",
    ),
    (
        "one sweep is an alarm of every sweep of an hour",
        ALARMS,
        "      period      = local.recent\n      periods     = 4\n      datapoints  = 4\n",
        "      period      = 3600\n      periods     = 1\n      datapoints  = 1\n",
    ),
    (
        "a reconciler that stands still pages late",
        ALARMS,
        "FILL(sweeps, 0)",
        "sweeps",
    ),
    (
        "an alarm ends without a word",
        ALARMS,
        "  ok_actions      = local.topics.critical",
        "  ok_actions      = []",
    ),
    (
        "alarms look at metrics of another installation",
        ALARMS,
        '"${var.name_prefix}${var.environment}" }',
        '"another" }',
    ),
    (
        "dead letters of failed runs are lost",
        RECONCILER,
        "destination = aws_sqs_queue.dead_letters.arn",
        'destination = "arn:aws:sqs:eu-central-1:111122223333:another"',
    ),
    (
        "anybody may write to the queue",
        SCHEDULE,
        '      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.schedule.arn } }\n',
        "",
    ),
    ("a second rule starts nothing", SCHEDULE, "", SECOND_RULE),
    ("the role has a second policy", RIGHTS, "", SECOND_POLICY),
    ("the table is open to everyone", TABLE, "", PUBLIC_TABLE),
    ("rows expire by ttl", TABLE, 'attribute_name = "purge_at"', 'attribute_name = "ttl"'),
    (
        "the table cannot be restored",
        TABLE,
        "  point_in_time_recovery {\n    enabled = true",
        "  point_in_time_recovery {\n    enabled = false",
    ),
    (
        "the dashboard shows no alarms",
        SLUICE,
        "alarm_arns             = module.alarms.arns",
        "alarm_arns             = []",
    ),
]


def share(words: list[str]) -> list:
    """Those that the words choose."""
    if words[:1] != ["--share"]:
        return [fault for fault in FAULTS if not words or any(word in fault[0] for word in words)]
    parts = int(words[1])
    return FAULTS[datetime.date.today().toordinal() % parts :: parts]


def main() -> None:
    words, began = sys.argv[1:], time.monotonic()
    chosen, planted, missed = share(words), 0, []
    if not chosen:
        sys.exit(f"no fault has {' or '.join(words)} in its name")
    with tempfile.TemporaryDirectory() as folder:
        # Before the copy is prepared: the provider knows the resources that are named in it.
        workspace = Workspace(Path(folder), also=(PUBLIC_TABLE,))
        assert not compared(workspace, ("prod",)), "without a fault, the plan is not as agreed"
        for name, file, old, new in chosen:
            if words[:1] == ["--share"] and planted and time.monotonic() - began > SHARE_SECS:
                break
            path = workspace.infra / file
            text = path.read_text()
            assert old in text, f"{name}: {file} has no {old!r}"
            path.write_text(text.replace(old, new, 1) if old else text + new)
            rules = broken_rules(workspace.planned("prod"))
            path.write_text(text)
            print(f"found: {name}: {rules[0][:140]}" if rules else f"MISSED: {name}", flush=True)
            planted += 1
            missed += [] if rules else [name]
    if missed:
        sys.exit(f"no rule finds {len(missed)} of {planted} faults")
    print(f"{planted} planted faults of {len(FAULTS)} were found by rules")


if __name__ == "__main__":
    main()
