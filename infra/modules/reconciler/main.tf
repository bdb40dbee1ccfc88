# The Lambda function that gives back what crashed callers held, and what starts it.

locals {
  name = "${var.name_prefix}sluice-reconciler-${var.environment}"
}

resource "aws_lambda_function" "reconciler" {
  function_name = local.name
  description   = "Finds leases that have ended and restores their slots."
  role          = aws_iam_role.reconciler.arn

  # A file of this machine, or an object of a bucket in the same Region.
  filename          = var.package_path
  source_code_hash  = var.package_path == null ? null : filebase64sha256(var.package_path)
  s3_bucket         = try(var.package_s3.bucket, null)
  s3_key            = try(var.package_s3.key, null)
  s3_object_version = try(var.package_s3.version, null)

  # Each change of code or settings is a version of its own, which never changes: there is one to go back to.
  publish = true

  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  memory_size   = 128
  timeout       = 60
  tags          = var.tags

  # By default none: an account whose quota is ten may reserve nothing. Two sweeps at once do no harm, since every
  # write of theirs is conditional.
  reserved_concurrent_executions = var.reserved_concurrency

  environment {
    variables = {
      SLUICE_TABLE_NAME   = var.table_name
      SLUICE_ENV          = "${var.name_prefix}${var.environment}" # the dimension of its metrics; the table is named above
      SLUICE_AWS_REGION   = var.region
      SLUICE_LOG_LEVEL    = var.log_level
      SLUICE_SLOWEST_CALL = tostring(var.slowest_call_seconds)
      SLUICE_METRICS      = var.metrics
    }
  }

  # Lambda drops lines below its own level, and takes a line that names none for INFO, as the line that carries the metrics may.
  # So that level is never above INFO: what to leave out is decided in the process, by SLUICE_LOG_LEVEL.
  logging_config {
    log_format            = "JSON"
    log_group             = aws_cloudwatch_log_group.reconciler.name
    application_log_level = contains(["TRACE", "DEBUG"], var.log_level) ? var.log_level : "INFO"
    system_log_level      = "INFO"
  }
}

# What the schedule starts. An apply moves it to the version that the apply published; `task infra:rollback` moves
# it back, and pin_version keeps it there.
resource "aws_lambda_alias" "live" {
  name             = "live"
  description      = "The version that the schedule starts."
  function_name    = aws_lambda_function.reconciler.function_name
  function_version = coalesce(var.pin_version, aws_lambda_function.reconciler.version)
}

resource "aws_cloudwatch_log_group" "reconciler" {
  name              = "/aws/lambda/${local.name}"
  retention_in_days = var.log_retention_days
  tags              = var.tags
}

# A run that fails or comes too late is not worth repeating: the next one does its work. Lambda keeps this by
# alias: runs of an alias without it would be tried again, and their failures lost.
resource "aws_lambda_function_event_invoke_config" "reconciler" {
  function_name                = aws_lambda_function.reconciler.function_name
  qualifier                    = aws_lambda_alias.live.name
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 300

  destination_config {
    on_failure {
      destination = aws_sqs_queue.dead_letters.arn
    }
  }

  # Lambda refuses a destination that the function's role may not write to.
  depends_on = [aws_iam_role_policy.reconciler]
}
