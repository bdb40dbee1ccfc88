mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "pre"
  region      = "eu-central-1"
  table_name  = "the-table"
  table_arn   = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"

  # Any file that is there: nothing is uploaded.
  package_path = "versions.tf"
}

run "the_function_is_a_small_one_that_runs_alone" {
  module {
    source = "./modules/reconciler"
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.runtime == "provided.al2023"
      && aws_lambda_function.reconciler.handler == "bootstrap"
      && aws_lambda_function.reconciler.architectures == tolist(["arm64"])
      && aws_lambda_function.reconciler.memory_size == 128
      && aws_lambda_function.reconciler.timeout == 60
    )
    error_message = "The function is bootstrap on provided.al2023, arm64, with 128 MB and 60 s."
  }

  assert {
    condition     = aws_lambda_function.reconciler.reserved_concurrent_executions == null
    error_message = "A new account, whose quota is ten, can reserve nothing: the first apply would fail."
  }

  assert {
    condition     = aws_lambda_function.reconciler.source_code_hash == filebase64sha256("versions.tf")
    error_message = "A new zip file must be seen as a change."
  }

  assert {
    condition = aws_lambda_function.reconciler.environment[0].variables == tomap({
      SLUICE_TABLE_NAME   = "the-table"
      SLUICE_ENV          = "pre"
      SLUICE_AWS_REGION   = "eu-central-1"
      SLUICE_LOG_LEVEL    = "INFO"
      SLUICE_SLOWEST_CALL = "900"
      SLUICE_METRICS      = "all"
    })
    error_message = "The function gets the table, the environment, the region, the log level, the longest call and what to publish."
  }
}

run "each_change_is_a_version_and_the_alias_points_to_it" {
  module {
    source = "./modules/reconciler"
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.publish
      && aws_lambda_alias.live.name == "live"
      && aws_lambda_alias.live.function_name == "sluice-reconciler-pre"
      && aws_lambda_alias.live.function_version == "7"
      && output.alias_arn == aws_lambda_alias.live.arn
    )
    error_message = "Without a published version there is nothing to go back to."
  }
}

# Else the next apply, of whatever it is, would undo a rollback.
run "a_pinned_version_stays" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    pin_version = "3"
  }

  assert {
    condition     = aws_lambda_function.reconciler.publish && aws_lambda_alias.live.function_version == "3"
    error_message = "The alias stays at the version that is pinned."
  }
}

run "a_pin_that_is_no_version_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    pin_version = "live"
  }

  expect_failures = [var.pin_version]
}

run "the_zip_file_may_lie_in_a_bucket" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    package_path = null
    package_s3   = { bucket = "artifacts", key = "sluice/reconciler-1.0.0-arm64.zip", version = "3sL4kqtJlcpXroDTDmJ" }
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.filename == null
      && aws_lambda_function.reconciler.s3_bucket == "artifacts"
      && aws_lambda_function.reconciler.s3_key == "sluice/reconciler-1.0.0-arm64.zip"
      && aws_lambda_function.reconciler.s3_object_version == "3sL4kqtJlcpXroDTDmJ"
      && output.settings.package == "artifacts/sluice/reconciler-1.0.0-arm64.zip/3sL4kqtJlcpXroDTDmJ"
    )
    error_message = "Bucket, key and version say which file is deployed."
  }
}

run "two_zip_files_are_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    package_s3 = { bucket = "artifacts", key = "reconciler.zip" }
  }

  expect_failures = [var.package_s3]
}

run "no_zip_file_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    package_path = null
  }

  expect_failures = [var.package_s3]
}

run "a_zip_file_that_is_not_there_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    package_path = "nowhere.zip"
  }

  expect_failures = [var.package_path]
}

run "function_role_and_rule_have_one_name" {
  module {
    source = "./modules/reconciler"
  }

  assert {
    condition = toset([
      aws_lambda_function.reconciler.function_name,
      aws_iam_role.reconciler.name,
      aws_cloudwatch_event_rule.schedule.name,
    ]) == toset(["sluice-reconciler-pre"])
    error_message = "Function, role and rule are sluice-reconciler-{env}."
  }

  assert {
    condition = (
      aws_cloudwatch_log_group.reconciler.name == "/aws/lambda/sluice-reconciler-pre"
      && aws_cloudwatch_log_group.reconciler.retention_in_days == 30
    )
    error_message = "The log group is the function's, and forgets."
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.logging_config[0].log_format == "JSON"
      && aws_lambda_function.reconciler.logging_config[0].log_group == "/aws/lambda/sluice-reconciler-pre"
    )
    error_message = "The function logs JSON to that group."
  }
}

run "it_runs_every_five_minutes_and_nothing_is_tried_again" {
  module {
    source = "./modules/reconciler"
  }

  assert {
    condition     = aws_cloudwatch_event_rule.schedule.schedule_expression == "rate(5 minutes)"
    error_message = "The schedule is rate(5 minutes)."
  }

  assert {
    condition = (
      aws_cloudwatch_event_target.reconciler.rule == aws_cloudwatch_event_rule.schedule.name
      && aws_cloudwatch_event_target.reconciler.arn == aws_lambda_alias.live.arn
      && aws_lambda_permission.schedule.principal == "events.amazonaws.com"
      && aws_lambda_permission.schedule.action == "lambda:InvokeFunction"
      && aws_lambda_permission.schedule.function_name == "sluice-reconciler-pre"
      && aws_lambda_permission.schedule.qualifier == "live"
      && aws_lambda_permission.schedule.source_arn == aws_cloudwatch_event_rule.schedule.arn
    )
    error_message = "The rule starts the function's alias, and no other rule may."
  }

  assert {
    condition = (
      aws_cloudwatch_event_target.reconciler.retry_policy[0].maximum_retry_attempts == 0
      && aws_cloudwatch_event_target.reconciler.retry_policy[0].maximum_event_age_in_seconds == 300
      && aws_lambda_function_event_invoke_config.reconciler.maximum_retry_attempts == 0
      && aws_lambda_function_event_invoke_config.reconciler.maximum_event_age_in_seconds == 300
    )
    error_message = "Neither EventBridge nor Lambda tries again, and neither keeps an event for longer than 300 s."
  }
}

run "what_failed_is_kept_as_a_dead_letter" {
  module {
    source = "./modules/reconciler"
  }

  assert {
    condition = (
      aws_cloudwatch_event_target.reconciler.dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn
      && aws_lambda_function_event_invoke_config.reconciler.destination_config[0].on_failure[0].destination == aws_sqs_queue.dead_letters.arn
      && aws_lambda_function_event_invoke_config.reconciler.function_name == "sluice-reconciler-pre"
      && aws_lambda_function_event_invoke_config.reconciler.qualifier == "live"
    )
    error_message = "Undelivered events and failed runs go to the same queue."
  }

  assert {
    condition = (
      aws_sqs_queue.dead_letters.name == "sluice-reconciler-pre-dead-letters"
      && aws_sqs_queue.dead_letters.message_retention_seconds == 1209600
      && aws_sqs_queue.dead_letters.sqs_managed_sse_enabled
    )
    error_message = "The queue is encrypted, and keeps its messages for 14 days."
  }

  assert {
    condition = jsondecode(aws_sqs_queue_policy.dead_letters.policy).Statement == jsondecode(jsonencode([{
      Sid       = "UndeliveredEvents"
      Effect    = "Allow"
      Principal = { Service = "events.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.dead_letters.arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.schedule.arn } }
    }]))
    error_message = "EventBridge may write to the queue on behalf of this rule, and nobody else may."
  }
}

run "the_role_may_sweep_and_nothing_more" {
  module {
    source = "./modules/reconciler"
  }

  # The whole document, so that nothing can be added unseen.
  assert {
    condition = jsondecode(aws_iam_role_policy.reconciler.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = [
        {
          Sid      = "Table"
          Effect   = "Allow"
          Action   = ["dynamodb:Scan", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
        },
        {
          Sid      = "Leases"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "DeadLetters"
          Effect   = "Allow"
          Action   = ["sqs:SendMessage"]
          Resource = "arn:aws:sqs:eu-central-1:111122223333:the-queue"
        },
      ]
    }))
    error_message = "The reconciler's rights are not the ones that were agreed."
  }

  assert {
    condition = (
      aws_iam_role_policy.reconciler.role == aws_iam_role.reconciler.name
      && aws_iam_role_policy_attachment.logs.role == aws_iam_role.reconciler.name
      && aws_iam_role_policy_attachment.logs.policy_arn == "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    )
    error_message = "Beside that, the role may write logs."
  }

  assert {
    condition = jsondecode(aws_iam_role.reconciler.assume_role_policy).Statement == jsondecode(jsonencode([{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]))
    error_message = "Lambda alone may take the role."
  }
}

run "what_can_be_chosen_arrives" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    architecture         = "x86_64"
    schedule_expression  = "cron(0/10 * * * ? *)"
    longest_gap_minutes  = 10
    log_level            = "DEBUG"
    log_retention_days   = 7
    slowest_call_seconds = 3600
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.architectures == tolist(["x86_64"])
      && aws_cloudwatch_event_rule.schedule.schedule_expression == "cron(0/10 * * * ? *)"
      && aws_lambda_function.reconciler.environment[0].variables.SLUICE_LOG_LEVEL == "DEBUG"
      && aws_lambda_function.reconciler.logging_config[0].application_log_level == "DEBUG"
      && aws_cloudwatch_log_group.reconciler.retention_in_days == 7
      && aws_lambda_function.reconciler.environment[0].variables.SLUICE_SLOWEST_CALL == "3600"
    )
    error_message = "A variable of the module does not reach its resource."
  }
}

run "a_quiet_log_still_carries_the_metrics" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    log_level = "ERROR"
  }

  assert {
    condition = (
      aws_lambda_function.reconciler.environment[0].variables.SLUICE_LOG_LEVEL == "ERROR"
      && aws_lambda_function.reconciler.logging_config[0].application_log_level == "INFO"
    )
    error_message = "Lambda must not drop lines at INFO: the metrics are among them."
  }
}

run "an_unknown_architecture_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    architecture = "amd64"
  }

  expect_failures = [var.architecture]
}

run "a_retention_that_cloudwatch_does_not_take_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    log_retention_days = 10
  }

  expect_failures = [var.log_retention_days]
}

run "calls_of_no_length_are_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    slowest_call_seconds = 0
  }

  expect_failures = [var.slowest_call_seconds]
}

run "an_unknown_log_level_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    log_level = "verbose"
  }

  expect_failures = [var.log_level]
}

run "a_rate_with_the_wrong_number_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "rate(5 minute)"
  }

  expect_failures = [var.schedule_expression]
}

run "a_cron_with_five_fields_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "cron(*/5 * * * *)"
  }

  expect_failures = [var.schedule_expression]
}

run "the_alarms_learn_the_interval_of_a_rate" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "rate(1 hour)"
  }

  assert {
    condition     = output.sweep_interval_seconds == 3600
    error_message = "An hour has 3,600 seconds."
  }
}

run "a_cron_says_how_long_its_longest_gap_is" {
  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "cron(0/10 8-18 * * ? *)"
    longest_gap_minutes = 850
  }

  assert {
    condition     = output.sweep_interval_seconds == 51000
    error_message = "The alarms wait for the longest gap."
  }
}

run "a_cron_without_its_longest_gap_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "cron(0/10 8-18 * * ? *)"
  }

  expect_failures = [var.longest_gap_minutes]
}

run "a_schedule_slower_than_a_day_is_refused" {
  command = plan

  module {
    source = "./modules/reconciler"
  }

  variables {
    schedule_expression = "rate(2 days)"
  }

  expect_failures = [output.sweep_interval_seconds]
}
