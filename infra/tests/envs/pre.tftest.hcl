# Run with the environment's own values:
# terraform test -test-directory=tests/envs -filter=tests/envs/pre.tftest.hcl -var-file=envs/pre.tfvars -var package_path=versions.tf

mock_provider "aws" {
  source = "./tests/mocks"
}

run "pre_is_made_as_agreed" {
  assert {
    condition = (
      output.table_name == "ontopix-vendor-buckets-pre"
      && output.reconciler_function_name == "sluice-reconciler-pre"
      && output.dashboard_name == "sluice-pre"
      && alltrue([for name in output.alarm_names : startswith(name, "sluice-pre-")])
    )
    error_message = "Everything is named after pre."
  }

  assert {
    condition = jsonencode(output.settings.table) == jsonencode({
      deletion_protection = true
      find_hot_keys       = true
      kms_key_arn         = null
      warm_writes         = null
    })
    error_message = "The table of pre is not as agreed."
  }

  assert {
    condition = jsonencode(output.settings.reconciler) == jsonencode({
      package              = "versions.tf"
      architecture         = "arm64"
      schedule_expression  = "rate(5 minutes)"
      log_level            = "INFO"
      log_retention_days   = 30
      region               = "eu-central-1"
      environment          = "pre"
      metrics              = "all"
      reserved_concurrency = null
      slowest_call_seconds = 900
    })
    error_message = "The reconciler of pre is not as agreed."
  }

  assert {
    condition = (
      output.settings.alarms.actions_enabled == true && output.settings.alarms.restored_slots_threshold == 20
    )
    error_message = "The alarms of pre are not as agreed."
  }
}
