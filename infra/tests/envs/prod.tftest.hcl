# Run with the environment's own values:
# terraform test -test-directory=tests/envs -filter=tests/envs/prod.tftest.hcl -var-file=envs/prod.tfvars -var package_path=versions.tf

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  critical_topic_arns = ["arn:aws:sns:eu-central-1:111122223333:now"]
  runbook_url         = "https://example.com/operations.md"
}

run "prod_is_made_as_agreed" {
  assert {
    condition = (
      output.table_name == "ontopix-vendor-buckets-prod"
      && output.reconciler_function_name == "sluice-reconciler-prod"
      && output.dashboard_name == "sluice-prod"
      && alltrue([for name in output.alarm_names : startswith(name, "sluice-prod-")])
    )
    error_message = "Everything is named after prod."
  }

  assert {
    condition = jsonencode(output.settings.table) == jsonencode({
      deletion_protection = true
      find_hot_keys       = true
      kms_key_arn         = null
      warm_writes         = null
    })
    error_message = "The table of prod is not as agreed."
  }

  assert {
    condition = jsonencode(output.settings.reconciler) == jsonencode({
      package              = "versions.tf"
      architecture         = "arm64"
      schedule_expression  = "rate(5 minutes)"
      log_level            = "INFO"
      log_retention_days   = 90
      region               = "eu-central-1"
      environment          = "prod"
      metrics              = "all"
      reserved_concurrency = null
      slowest_call_seconds = 900
    })
    error_message = "The reconciler of prod is not as agreed."
  }

  assert {
    condition = (
      output.settings.alarms.actions_enabled == true && output.settings.alarms.restored_slots_threshold == 10
    )
    error_message = "The alarms of prod are not as agreed."
  }
}

run "prod_is_refused_while_its_alarms_reach_nobody" {
  command = plan

  variables {
    critical_topic_arns = []
  }

  expect_failures = [var.critical_topic_arns]
}

run "prod_is_refused_while_its_alarms_are_off" {
  command = plan

  variables {
    alarm_actions_enabled = false
  }

  expect_failures = [var.alarm_actions_enabled]
}

run "prod_is_refused_without_a_runbook_that_people_can_open" {
  command = plan

  variables {
    runbook_url = "docs/operations.md"
  }

  expect_failures = [var.runbook_url]
}

run "that_nobody_is_paged_can_be_said" {
  command = plan

  variables {
    critical_topic_arns = []
    nobody_is_paged     = true
  }
}
