output "table_name" {
  description = "The table, for SLUICE_TABLE_NAME."
  value       = local.table.name
}

output "table_arn" {
  description = "ARN of the table."
  value       = local.table.arn
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
  description = "Policy for roles that serve every vendor, and for people on call. For products: product_policy_arns."
  value       = module.caller_policy.caller_policy_arn
}

output "product_policy_arns" {
  description = "The policy of each product of `callers`: it may touch the rows of its own vendors alone."
  value       = { for product, policy in module.product_policy : product => policy.caller_policy_arn }
}

output "operator_policy_arn" {
  description = "Policy for a pipeline or a person that applies limits."
  value       = module.operator_policy.operator_policy_arn
}

output "reader_policy_arn" {
  description = "Policy for roles that only read: watch, dashboard, metrics, doctor."
  value       = module.operator_policy.reader_policy_arn
}

output "alarm_names" {
  description = "Every alarm, in alphabetical order."
  value       = module.alarms.names
}

output "dashboard_name" {
  description = "The CloudWatch dashboard."
  value       = module.dashboard.name
}

output "settings" {
  description = "What was chosen, read back from the resources."
  value = {
    table      = one(module.table[*].settings)
    reconciler = module.reconciler.settings
    alarms     = module.alarms.settings
  }
}
