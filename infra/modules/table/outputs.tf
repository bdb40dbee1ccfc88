output "name" {
  description = "Name of the table."
  value       = aws_dynamodb_table.buckets.name
}

output "arn" {
  description = "ARN of the table."
  value       = aws_dynamodb_table.buckets.arn
}

output "settings" {
  description = "What the environment chose, read back from the resources."
  value = {
    deletion_protection = aws_dynamodb_table.buckets.deletion_protection_enabled
    find_hot_keys       = length(aws_dynamodb_contributor_insights.hot_keys) == 1
    kms_key_arn         = aws_dynamodb_table.buckets.server_side_encryption[0].kms_key_arn
    warm_writes         = try(aws_dynamodb_table.buckets.warm_throughput[0].write_units_per_second, null)
  }
}
