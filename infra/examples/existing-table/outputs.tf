output "reconciler_function_name" {
  description = "The function that sweeps the table."
  value       = module.sluice.reconciler_function_name
}
