output "table_name" {
  description = "The table, for SLUICE_TABLE_NAME of callers: with a prefix SLUICE_ENV does not name it."
  value       = module.sluice.table_name
}
