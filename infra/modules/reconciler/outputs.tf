output "function_name" {
  description = "Name of the function."
  value       = aws_lambda_function.reconciler.function_name
}

output "alias_arn" {
  description = "ARN of the alias that the schedule starts."
  value       = aws_lambda_alias.live.arn
}

output "role_arn" {
  description = "ARN of the role that the function runs with."
  value       = aws_iam_role.reconciler.arn
}

output "dead_letter_queue_name" {
  description = "Name of the queue of dead letters."
  value       = aws_sqs_queue.dead_letters.name
}

output "dead_letter_queue_url" {
  description = "URL of the queue of dead letters."
  value       = aws_sqs_queue.dead_letters.url
}

output "sweep_interval_seconds" {
  description = "Longest time between two runs of the schedule."
  value       = local.interval_seconds

  precondition {
    condition     = local.interval_seconds <= 86400
    error_message = "The reconciler must run at least once a day: CloudWatch has no longer periods."
  }
}

output "settings" {
  description = "What the environment chose, read back from the resources."
  value = {
    package = coalesce(aws_lambda_function.reconciler.filename, join("/", compact([
      aws_lambda_function.reconciler.s3_bucket,
      aws_lambda_function.reconciler.s3_key,
      aws_lambda_function.reconciler.s3_object_version,
    ])))
    architecture         = one(aws_lambda_function.reconciler.architectures)
    environment          = aws_lambda_function.reconciler.environment[0].variables.SLUICE_ENV
    schedule_expression  = aws_cloudwatch_event_rule.schedule.schedule_expression
    log_level            = aws_lambda_function.reconciler.environment[0].variables.SLUICE_LOG_LEVEL
    log_retention_days   = aws_cloudwatch_log_group.reconciler.retention_in_days
    region               = aws_lambda_function.reconciler.environment[0].variables.SLUICE_AWS_REGION
    metrics              = aws_lambda_function.reconciler.environment[0].variables.SLUICE_METRICS
    reserved_concurrency = aws_lambda_function.reconciler.reserved_concurrent_executions
    slowest_call_seconds = tonumber(aws_lambda_function.reconciler.environment[0].variables.SLUICE_SLOWEST_CALL)
  }
}
