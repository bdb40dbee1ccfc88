# What an account may ask for: names, paths, boundaries, partitions, a table that is there already.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment  = "pre"
  region       = "eu-central-1"
  package_path = "versions.tf"
}

run "a_prefix_begins_every_name" {
  module {
    source = "./modules/sluice"
  }

  variables {
    name_prefix = "acme-"
    callers     = { chat = { vendors = ["openai"] } }
  }

  assert {
    condition = alltrue([
      for name in concat([output.table_name, output.reconciler_function_name, output.dashboard_name], output.alarm_names) :
      startswith(name, "acme-")
    ])
    error_message = "A name does not begin with the prefix: two installations would collide."
  }

  assert {
    condition = (
      output.settings.reconciler.environment == "acme-pre" && output.settings.alarms.environment == "acme-pre"
    )
    error_message = "Metrics of two installations must not be mixed: the prefix is in their dimension."
  }
}

run "a_prefix_is_optional" {
  module {
    source = "./modules/sluice"
  }

  assert {
    condition = (
      output.table_name == "ontopix-vendor-buckets-pre"
      && output.settings.reconciler.environment == "pre"
      && output.settings.alarms.environment == "pre"
    )
    error_message = "Without a prefix, names are those that clients derive from SLUICE_ENV."
  }
}

run "a_table_that_is_there_is_used_and_none_is_made" {
  module {
    source = "./modules/sluice"
  }

  variables {
    existing_table = { name = "theirs", arn = "arn:aws:dynamodb:eu-central-1:444455556666:table/theirs" }
  }

  assert {
    condition = (
      output.table_name == "theirs"
      && output.table_arn == "arn:aws:dynamodb:eu-central-1:444455556666:table/theirs"
      && output.settings.table == null
    )
    error_message = "Nothing is made where a table is given."
  }
}

run "paths_boundaries_tags_and_keys_arrive" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    table_name               = "the-table"
    table_arn                = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
    name_prefix              = "acme-"
    iam_path                 = "/sluice/"
    permissions_boundary_arn = "arn:aws:iam::111122223333:policy/the-boundary"
    kms_key_arn              = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
    tags                     = { Team = "platform" }
  }

  assert {
    condition = (
      aws_iam_role.reconciler.path == "/sluice/"
      && aws_iam_role.reconciler.permissions_boundary == "arn:aws:iam::111122223333:policy/the-boundary"
      && alltrue([
        for tags in [
          aws_iam_role.reconciler.tags,
          aws_lambda_function.reconciler.tags,
          aws_cloudwatch_log_group.reconciler.tags,
          aws_cloudwatch_event_rule.schedule.tags,
          aws_sqs_queue.dead_letters.tags,
        ] : tags == tomap({ Team = "platform" })
      ])
    )
    error_message = "The account's rules reach the role, and tags everything that takes them."
  }

  assert {
    condition = reverse(jsondecode(aws_iam_role_policy.reconciler.policy).Statement)[0] == jsondecode(jsonencode({
      Sid       = "Key"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
      Resource  = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
      Condition = { StringEquals = { "kms:ViaService" = "dynamodb.eu-central-1.amazonaws.com" } }
    }))
    error_message = "The function uses the table's key, through DynamoDB alone."
  }
}

run "another_partition_has_its_own_arns" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    region      = "cn-north-1"
    table_name  = "the-table"
    table_arn   = "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/the-table"
    kms_key_arn = "arn:aws-cn:kms:cn-north-1:111122223333:key/the-key"
  }

  override_data {
    target = data.aws_partition.current
    values = { partition = "aws-cn", dns_suffix = "amazonaws.com.cn" }
  }

  assert {
    condition = (
      aws_iam_role_policy_attachment.logs.policy_arn == "arn:aws-cn:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
      && strcontains(aws_iam_role_policy.reconciler.policy, "dynamodb.cn-north-1.amazonaws.com.cn")
    )
    error_message = "The partition is where the account is."
  }
}

run "with_metrics_for_alarms_the_dashboard_shows_no_others" {
  module {
    source = "./modules/dashboard"
  }

  variables {
    function_name          = "the-function"
    table_name             = "the-table"
    dead_letter_queue_name = "the-queue"
    alarm_arns             = []
    metrics                = "alarms"
  }

  assert {
    condition = toset(flatten([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets :
      [for m in w.properties.metrics : m[1] if try(m[0] == "Sluice", false)] if w.type == "metric"
      ])) == toset([
      "AlreadyCapped", "CallerRefusals", "ClockOffset", "DeadlineHit", "Drift", "Duration", "ExpiredButAlive", "LeakSuspected", "Left",
      "Pending", "Refused", "RestoredSlots", "Sweeps", "Unparsable", "UnreadableBuckets",
      # Of callers, whatever sweeps publish.
      "DynamoDbOut", "Refusals", "Shed", "Unavailable", "VendorRefusals",
    ])
    error_message = "The dashboard shows a metric that is not published, or leaves one out that is."
  }

  assert {
    condition = (
      !strcontains(aws_cloudwatch_dashboard.this.dashboard_body, "{Sluice,")
      && strcontains(aws_cloudwatch_dashboard.this.dashboard_body, "write / PERIOD(write)")
    )
    error_message = "Nothing is published by dimension; what DynamoDB publishes stays."
  }

  assert {
    condition = (
      alltrue([for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets :
        length(w.properties.metrics) > 0
      && w.x + w.width <= 24 if w.type == "metric"])
    )
    error_message = "A chart is empty, or stands beyond the 24 columns."
  }
}

# What `metrics = "alarms"` publishes is what alarms look at: a metric that only one of the two lists knows
# fails here.
run "alarms_need_no_more_than_is_published" {
  module {
    source = "./modules/alarms"
  }

  variables {
    function_name          = "the-function"
    table_name             = "the-table"
    dead_letter_queue_name = "the-queue"
    runbook_url            = "docs/operations.md"
  }

  assert {
    condition = setunion([for a in aws_cloudwatch_metric_alarm.this :
      a.metric_name if a.namespace == "Sluice"], ["Sweeps"]) == toset([
      "AlreadyCapped", "CallerRefusals", "ClockOffset", "DeadlineHit", "Drift", "ExpiredButAlive", "LeakSuspected", "Left", "Refused",
      "RestoredSlots", "SegmentsUnscanned", "Sweeps", "Unparsable", "UnreadableBuckets",
      # Callers print these, whatever sweeps publish.
      "Refusals", "Shed", "Unavailable", "VendorRefusals",
    ])
    error_message = "Of sweeps the alarms look at these fourteen; SLUICE_METRICS=alarms publishes them, and two more."
  }
}

run "a_prefix_with_a_slash_is_refused" {
  command = plan

  module {
    source = "./modules/sluice"
  }

  variables {
    name_prefix = "acme/"
  }

  expect_failures = [var.name_prefix]
}
