# Run with the environment's own values:
# terraform test -test-directory=tests/envs -filter=tests/envs/sandbox.tftest.hcl -var-file=envs/sandbox.tfvars -var package_path=versions.tf

mock_provider "aws" {
  source = "./tests/mocks"
}

run "sandbox_is_made_as_agreed" {
  assert {
    condition = (
      output.table_name == "ontopix-vendor-buckets-sandbox"
      && output.reconciler_function_name == "sluice-reconciler-sandbox"
      && output.dashboard_name == "sluice-sandbox"
      && alltrue([for name in output.alarm_names : startswith(name, "sluice-sandbox-")])
    )
    error_message = "Everything is named after sandbox."
  }

  assert {
    condition = jsonencode(output.settings.table) == jsonencode({
      deletion_protection = false
      find_hot_keys       = false
      kms_key_arn         = null
      warm_writes         = null
    })
    error_message = "The table of sandbox is not as agreed."
  }

  assert {
    condition = jsonencode(output.settings.reconciler) == jsonencode({
      package              = "versions.tf"
      architecture         = "arm64"
      schedule_expression  = "rate(5 minutes)"
      log_level            = "DEBUG"
      log_retention_days   = 7
      region               = "eu-central-1"
      environment          = "sandbox"
      metrics              = "all"
      reserved_concurrency = null
      slowest_call_seconds = 900
    })
    error_message = "The reconciler of sandbox is not as agreed."
  }

  assert {
    condition = (
      output.settings.alarms.actions_enabled == false
      && output.settings.alarms.restored_slots_threshold == 100
    )
    error_message = "The alarms of sandbox are not as agreed."
  }
}
