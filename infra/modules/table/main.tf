# Bucket rows are not declared here, though Terraform could: a row holds the live level beside the limit, and an apply that wrote
# it would hand every caller a full bucket. `sluice buckets apply` changes limits and keeps levels.
resource "aws_dynamodb_table" "buckets" {
  name         = "${var.name_prefix}ontopix-vendor-buckets-${var.environment}"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "vendor_dimension"

  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  attribute {
    name = "vendor_dimension"
    type = "S"
  }

  # Never `ttl`, which is when a lease ends: DynamoDB could then delete the only trace of a held slot before a sweep has given the
  # slot back. `purge_at` comes seven days later.
  ttl {
    attribute_name = "purge_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  # Without a key of its own the table is still encrypted, with the key that DynamoDB owns. That key has no request quota, and
  # every acquire goes through it.
  server_side_encryption {
    enabled     = var.kms_key_arn != null
    kms_key_arn = var.kms_key_arn
  }

  dynamic "warm_throughput" {
    for_each = var.warm_throughput[*]

    content {
      read_units_per_second  = warm_throughput.value.read_units_per_second
      write_units_per_second = warm_throughput.value.write_units_per_second
    }
  }
}

# A bucket is one key, and one key takes 1,000 write units a second whatever the table takes. CloudWatch's metrics say that some
# key was too hot; this says which. Throttled keys alone, since listing every access would be billed for every acquire.
resource "aws_dynamodb_contributor_insights" "hot_keys" {
  count = var.find_hot_keys ? 1 : 0

  table_name = aws_dynamodb_table.buckets.name
  mode       = "THROTTLED_KEYS"
}
