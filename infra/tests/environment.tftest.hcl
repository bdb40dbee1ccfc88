# The parts together. What each environment's file sets is in tests/envs.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment  = "pre"
  package_path = "versions.tf"
}

run "the_parts_know_each_other" {
  assert {
    condition = (
      output.table_name == "ontopix-vendor-buckets-pre"
      && output.reconciler_function_name == "sluice-reconciler-pre"
      && output.dashboard_name == "sluice-pre"
      && length(output.alarm_names) == 24
    )
    error_message = "Everything is named after the environment."
  }

}

run "what_can_be_chosen_arrives" {
  variables {
    region                   = "eu-west-1"
    package_s3               = { bucket = "artifacts", key = "reconciler.zip" }
    architecture             = "x86_64"
    schedule_expression      = "rate(10 minutes)"
    log_level                = "WARN"
    log_retention_days       = 14
    slowest_call_seconds     = 1800
    metrics                  = "alarms"
    reserved_concurrency     = 2
    find_hot_keys            = false
    kms_key_arn              = "arn:aws:kms:eu-west-1:111122223333:key/the-key"
    warm_throughput          = { read_units_per_second = 12000, write_units_per_second = 8000 }
    critical_topic_arns      = ["arn:aws:sns:eu-west-1:111122223333:now"]
    warning_topic_arns       = ["arn:aws:sns:eu-west-1:111122223333:tomorrow"]
    system_errors_threshold  = 20
    alarm_actions_enabled    = false
    restored_slots_threshold = 3

    drift_threshold             = 4
    leak_threshold              = 5
    expired_but_alive_threshold = 6
    clock_offset_threshold_ms   = 700
    refusals_threshold          = 8
    vendor_refusals_threshold   = 9
    shed_threshold              = 11
  }

  assert {
    condition = output.settings.table == {
      deletion_protection = true
      find_hot_keys       = false
      kms_key_arn         = "arn:aws:kms:eu-west-1:111122223333:key/the-key"
      warm_writes         = 8000
    }
    error_message = "A variable does not reach the table."
  }

  assert {
    condition = output.settings.reconciler == {
      package              = "artifacts/reconciler.zip"
      architecture         = "x86_64"
      schedule_expression  = "rate(10 minutes)"
      log_level            = "WARN"
      log_retention_days   = 14
      region               = "eu-west-1"
      environment          = "pre"
      metrics              = "alarms"
      reserved_concurrency = 2
      slowest_call_seconds = 1800
    }
    error_message = "A variable does not reach the reconciler."
  }

  assert {
    condition = output.settings.alarms == {
      environment                 = "pre"
      environment_of_callers      = "pre"
      actions_enabled             = false
      critical_topic_arns         = toset(["arn:aws:sns:eu-west-1:111122223333:now"])
      warning_topic_arns          = toset(["arn:aws:sns:eu-west-1:111122223333:tomorrow"])
      sweep_interval_seconds      = 600
      system_errors_threshold     = 20
      restored_slots_threshold    = 3
      drift_threshold             = 4
      leak_threshold              = 5
      expired_but_alive_threshold = 6
      clock_offset_threshold_ms   = 700
      refusals_threshold          = 8
      vendor_refusals_threshold   = 9
      shed_threshold              = 11
    }
    error_message = "A variable does not reach the alarms."
  }
}

# A second installation that is planned on the state of the first would replace its table.
run "a_state_of_another_prefix_is_refused" {
  command = plan

  variables {
    name_prefix = "acme-"
  }

  expect_failures = [terraform_data.installation]
}

run "that_a_version_is_pinned_is_said_at_each_plan" {
  command = plan

  variables {
    pin_version = "3"
  }

  expect_failures = [check.the_newest_version_runs]
}

run "topics_of_another_region_are_refused" {
  command = plan

  variables {
    critical_topic_arns = ["arn:aws:sns:eu-west-1:111122223333:now"]
    warning_topic_arns  = ["arn:aws:sns:us-east-1:111122223333:tomorrow"]
  }

  expect_failures = [var.critical_topic_arns, var.warning_topic_arns]
}

run "an_unknown_environment_is_refused" {
  command = plan

  variables {
    environment = "production"
  }

  expect_failures = [var.environment]
}

run "a_region_that_is_none_is_refused" {
  command = plan

  variables {
    region = "Frankfurt"
  }

  expect_failures = [var.region]
}

run "only_a_sandbox_goes_unprotected" {
  command = plan

  variables {
    deletion_protection = false
  }

  expect_failures = [var.deletion_protection]
}
