locals {
  every_alarm = concat(values(aws_cloudwatch_metric_alarm.this), [
    aws_cloudwatch_metric_alarm.no_sweep,
    aws_cloudwatch_metric_alarm.throttles,
    aws_cloudwatch_metric_alarm.hot_key,
    aws_cloudwatch_metric_alarm.system_errors,
    aws_cloudwatch_metric_alarm.dynamodb_unavailable,
  ])
}

output "names" {
  description = "Name of every alarm, in alphabetical order."
  value       = sort(local.every_alarm[*].alarm_name)
}

output "arns" {
  description = "ARN of every alarm."
  value       = local.every_alarm[*].arn
}

output "settings" {
  description = "What the environment chose, read back from the resources."
  value = {
    environment            = aws_cloudwatch_metric_alarm.this["drift"].dimensions.Environment
    environment_of_callers = aws_cloudwatch_metric_alarm.this["refusals"].dimensions.Environment
    actions_enabled        = aws_cloudwatch_metric_alarm.throttles.actions_enabled
    critical_topic_arns    = aws_cloudwatch_metric_alarm.no_sweep.alarm_actions
    warning_topic_arns     = aws_cloudwatch_metric_alarm.throttles.alarm_actions
    sweep_interval_seconds = one([
      for query in aws_cloudwatch_metric_alarm.no_sweep.metric_query : one(query.metric).period if query.id == "sweeps"
    ])
    system_errors_threshold     = aws_cloudwatch_metric_alarm.system_errors.threshold
    restored_slots_threshold    = aws_cloudwatch_metric_alarm.this["restored-slots"].threshold
    drift_threshold             = aws_cloudwatch_metric_alarm.this["drift"].threshold
    leak_threshold              = aws_cloudwatch_metric_alarm.this["leak"].threshold
    expired_but_alive_threshold = aws_cloudwatch_metric_alarm.this["expired-but-alive"].threshold
    clock_offset_threshold_ms   = aws_cloudwatch_metric_alarm.this["clock-offset"].threshold
    refusals_threshold          = aws_cloudwatch_metric_alarm.this["refusals"].threshold
    vendor_refusals_threshold   = aws_cloudwatch_metric_alarm.this["vendor-refusals"].threshold
    shed_threshold              = aws_cloudwatch_metric_alarm.this["shedding"].threshold
  }
}
