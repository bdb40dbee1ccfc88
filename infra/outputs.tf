output "table_name" {
  description = "The table, for SLUICE_TABLE_NAME."
  value       = module.table.name
}

output "table_arn" {
  description = "ARN of the table."
  value       = module.table.arn
}

output "reconciler_function_name" {
  description = "The Lambda function that sweeps."
  value       = module.reconciler.function_name
}

output "reconciler_role_arn" {
  description = "Role that the reconciler runs with."
  value       = module.reconciler.role_arn
}

output "dead_letter_queue_url" {
  description = "Queue that holds the events of runs that failed or never started."
  value       = module.reconciler.dead_letter_queue_url
}

output "caller_policy_arn" {
  description = "Policy to attach to the role of product code that acquires and releases."
  value       = module.caller_policy.caller_policy_arn
}

output "alarm_names" {
  description = "Every alarm, in alphabetical order."
  value       = module.alarms.names
}

output "dashboard_name" {
  description = "The CloudWatch dashboard."
  value       = module.dashboard.name
}
