# One environment, with this project's state and provider. What is made stands in modules/sluice, which other
# configurations can call too.

module "sluice" {
  source = "./modules/sluice"

  environment                 = var.environment
  region                      = var.region
  deletion_protection         = var.deletion_protection
  kms_key_arn                 = var.kms_key_arn
  warm_throughput             = var.warm_throughput
  find_hot_keys               = var.find_hot_keys
  callers                     = var.callers
  package_path                = var.package_s3 == null ? var.package_path : null
  package_s3                  = var.package_s3
  architecture                = var.architecture
  reserved_concurrency        = var.reserved_concurrency
  pin_version                 = var.pin_version
  schedule_expression         = var.schedule_expression
  longest_gap_minutes         = var.longest_gap_minutes
  log_level                   = var.log_level
  log_retention_days          = var.log_retention_days
  slowest_call_seconds        = var.slowest_call_seconds
  metrics                     = var.metrics
  critical_topic_arns         = var.critical_topic_arns
  warning_topic_arns          = var.warning_topic_arns
  nobody_is_paged             = var.nobody_is_paged
  runbook_url                 = var.runbook_url
  alarm_actions_enabled       = var.alarm_actions_enabled
  restored_slots_threshold    = var.restored_slots_threshold
  drift_threshold             = var.drift_threshold
  leak_threshold              = var.leak_threshold
  expired_but_alive_threshold = var.expired_but_alive_threshold
  clock_offset_threshold_ms   = var.clock_offset_threshold_ms
  system_errors_threshold     = var.system_errors_threshold
  refusals_threshold          = var.refusals_threshold
  vendor_refusals_threshold   = var.vendor_refusals_threshold
  shed_threshold              = var.shed_threshold
  name_prefix                 = var.name_prefix
  iam_path                    = var.iam_path
  permissions_boundary_arn    = var.permissions_boundary_arn
  tags                        = var.tags
}

# What this state is of, as it was at the first apply. A plan with another prefix would replace everything, the
# table first; each prefix has a state of its own (infra/state).
resource "terraform_data" "installation" {
  input = "${var.name_prefix}${var.environment}"

  lifecycle {
    ignore_changes = [input]

    postcondition {
      condition     = self.output == "${var.name_prefix}${var.environment}"
      error_message = "This state is of ${self.output}, and the variables name ${var.name_prefix}${var.environment}: set name_prefix and environment as they were, or use another state (infra/state)."
    }
  }
}

check "the_newest_version_runs" {
  assert {
    condition     = var.pin_version == null
    error_message = "pin_version keeps the reconciler at version ${coalesce(var.pin_version, "-")}: what an apply publishes does not run until it is taken out."
  }
}

# Where earlier versions kept the parts.
moved {
  from = module.table
  to   = module.sluice.module.table[0]
}

moved {
  from = module.reconciler
  to   = module.sluice.module.reconciler
}

moved {
  from = module.caller_policy
  to   = module.sluice.module.caller_policy
}

moved {
  from = module.alarms
  to   = module.sluice.module.alarms
}

moved {
  from = module.dashboard
  to   = module.sluice.module.dashboard
}
