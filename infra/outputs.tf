output "table_name" {
  description = "The table, for SLUICE_TABLE_NAME."
  value       = module.sluice.table_name
}

output "table_arn" {
  description = "ARN of the table."
  value       = module.sluice.table_arn
}

output "reconciler_function_name" {
  description = "The Lambda function that sweeps."
  value       = module.sluice.reconciler_function_name
}

output "reconciler_role_arn" {
  description = "Role that the reconciler runs with."
  value       = module.sluice.reconciler_role_arn
}

output "dead_letter_queue_url" {
  description = "Queue that holds the events of runs that failed or never started."
  value       = module.sluice.dead_letter_queue_url
}

output "caller_policy_arn" {
  description = "Policy for roles that serve every vendor, and for people on call. For products: product_policy_arns."
  value       = module.sluice.caller_policy_arn
}

output "product_policy_arns" {
  description = "The policy of each product of `callers`: it may touch the rows of its own vendors alone."
  value       = module.sluice.product_policy_arns
}

output "operator_policy_arn" {
  description = "Policy for a pipeline or a person that applies limits."
  value       = module.sluice.operator_policy_arn
}

output "reader_policy_arn" {
  description = "Policy for roles that only read: watch, dashboard, metrics, doctor."
  value       = module.sluice.reader_policy_arn
}

output "alarm_names" {
  description = "Every alarm, in alphabetical order."
  value       = module.sluice.alarm_names
}

output "dashboard_name" {
  description = "The CloudWatch dashboard."
  value       = module.sluice.dashboard_name
}

output "settings" {
  description = "What the environment chose, read back from the resources."
  value       = module.sluice.settings
}
