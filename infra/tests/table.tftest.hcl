mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "pre"
}

run "the_table_is_what_clients_in_any_language_expect" {
  module {
    source = "./modules/table"
  }

  assert {
    condition     = aws_dynamodb_table.buckets.name == "ontopix-vendor-buckets-pre"
    error_message = "Clients derive the table's name from SLUICE_ENV."
  }

  assert {
    condition = (
      aws_dynamodb_table.buckets.hash_key == "vendor_dimension"
      && aws_dynamodb_table.buckets.range_key == null
      && [for a in aws_dynamodb_table.buckets.attribute : "${a.name} ${a.type}"] == ["vendor_dimension S"]
    )
    error_message = "The key is the string vendor_dimension, and there is no sort key."
  }

  assert {
    condition     = aws_dynamodb_table.buckets.billing_mode == "PAY_PER_REQUEST"
    error_message = "The table is on demand."
  }

  assert {
    condition = (
      length(aws_dynamodb_table.buckets.global_secondary_index) == 0
      && length(aws_dynamodb_table.buckets.local_secondary_index) == 0
    )
    error_message = "An index would be paid for at every acquire."
  }
}

run "rows_expire_by_purge_at_and_never_by_ttl" {
  module {
    source = "./modules/table"
  }

  assert {
    condition = (
      aws_dynamodb_table.buckets.ttl[0].attribute_name == "purge_at"
      && aws_dynamodb_table.buckets.ttl[0].enabled
    )
    error_message = "TTL must be on purge_at: on ttl, DynamoDB could delete a lease before its slot is given back."
  }
}

run "the_table_is_protected_unless_told_otherwise" {
  module {
    source = "./modules/table"
  }

  assert {
    condition     = aws_dynamodb_table.buckets.deletion_protection_enabled
    error_message = "Deletion protection is on by default."
  }

  assert {
    condition     = aws_dynamodb_table.buckets.point_in_time_recovery[0].enabled
    error_message = "Point-in-time recovery is on."
  }

  assert {
    condition = (
      !aws_dynamodb_table.buckets.server_side_encryption[0].enabled
      && length(aws_dynamodb_table.buckets.warm_throughput) == 0
    )
    error_message = "By default the key is DynamoDB's own, and no throughput is paid for ahead."
  }

  assert {
    condition     = aws_dynamodb_contributor_insights.hot_keys[0].mode == "THROTTLED_KEYS"
    error_message = "Contributor Insights lists throttled keys, and no others."
  }
}

run "what_can_be_chosen_arrives" {
  module {
    source = "./modules/table"
  }

  variables {
    deletion_protection = false
    find_hot_keys       = false
    kms_key_arn         = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
    warm_throughput     = { read_units_per_second = 12000, write_units_per_second = 8000 }
  }

  assert {
    condition = (
      !aws_dynamodb_table.buckets.deletion_protection_enabled
      && length(aws_dynamodb_contributor_insights.hot_keys) == 0
      && aws_dynamodb_table.buckets.server_side_encryption[0].enabled
      && aws_dynamodb_table.buckets.server_side_encryption[0].kms_key_arn == "arn:aws:kms:eu-central-1:111122223333:key/the-key"
      && aws_dynamodb_table.buckets.warm_throughput[0].read_units_per_second == 12000
      && aws_dynamodb_table.buckets.warm_throughput[0].write_units_per_second == 8000
    )
    error_message = "A variable of the module does not reach its resource."
  }
}

run "a_key_that_is_no_arn_is_refused" {
  command = plan

  module {
    source = "./modules/table"
  }

  variables {
    kms_key_arn = "alias/the-key"
  }

  expect_failures = [var.kms_key_arn]
}

run "warm_throughput_below_what_is_free_is_refused" {
  command = plan

  module {
    source = "./modules/table"
  }

  variables {
    warm_throughput = { read_units_per_second = 12000, write_units_per_second = 1000 }
  }

  expect_failures = [var.warm_throughput]
}
