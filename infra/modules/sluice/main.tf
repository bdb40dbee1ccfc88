# One environment: the table, what sweeps it, what callers may do to it, and what watches it. Names no
# provider and no state: it is yours to call.

locals {
  table = var.existing_table != null ? var.existing_table : { name = module.table[0].name, arn = module.table[0].arn }
}

module "table" {
  source = "../table"
  count  = var.existing_table == null ? 1 : 0

  environment         = var.environment
  name_prefix         = var.name_prefix
  tags                = var.tags
  deletion_protection = var.deletion_protection
  kms_key_arn         = var.kms_key_arn
  warm_throughput     = var.warm_throughput
  find_hot_keys       = var.find_hot_keys
}

module "reconciler" {
  source = "../reconciler"

  environment = var.environment
  name_prefix = var.name_prefix
  iam_path    = var.iam_path
  tags        = var.tags

  permissions_boundary_arn = var.permissions_boundary_arn
  reserved_concurrency     = var.reserved_concurrency

  kms_key_arn          = var.kms_key_arn
  metrics              = var.metrics
  region               = var.region
  table_name           = local.table.name
  table_arn            = local.table.arn
  package_path         = var.package_path
  package_s3           = var.package_s3
  architecture         = var.architecture
  pin_version          = var.pin_version
  schedule_expression  = var.schedule_expression
  longest_gap_minutes  = var.longest_gap_minutes
  log_level            = var.log_level
  log_retention_days   = var.log_retention_days
  slowest_call_seconds = var.slowest_call_seconds
}

# For roles that serve every vendor, and for people on call, who sweep by hand.
module "caller_policy" {
  source = "../caller-policy"

  environment = var.environment
  region      = var.region
  table_arn   = local.table.arn
  kms_key_arn = var.kms_key_arn
  name_prefix = var.name_prefix
  iam_path    = var.iam_path
  tags        = var.tags
}

# One for each product: it can harm the rows of its own vendors alone.
module "product_policy" {
  source   = "../caller-policy"
  for_each = var.callers

  environment   = var.environment
  region        = var.region
  product       = each.key
  vendors       = each.value.vendors
  older_clients = each.value.older_clients
  table_arn     = local.table.arn
  kms_key_arn   = var.kms_key_arn
  name_prefix   = var.name_prefix
  iam_path      = var.iam_path
  tags          = var.tags
}

module "operator_policy" {
  source = "../operator-policy"

  environment = var.environment
  region      = var.region
  table_arn   = local.table.arn
  kms_key_arn = var.kms_key_arn
  name_prefix = var.name_prefix
  iam_path    = var.iam_path
  tags        = var.tags
}

module "alarms" {
  source = "../alarms"

  environment                 = var.environment
  function_name               = module.reconciler.function_name
  table_name                  = local.table.name
  dead_letter_queue_name      = module.reconciler.dead_letter_queue_name
  critical_topic_arns         = var.critical_topic_arns
  warning_topic_arns          = var.warning_topic_arns
  runbook_url                 = var.runbook_url
  sweep_interval_seconds      = module.reconciler.sweep_interval_seconds
  actions_enabled             = var.alarm_actions_enabled
  restored_slots_threshold    = var.restored_slots_threshold
  drift_threshold             = var.drift_threshold
  leak_threshold              = var.leak_threshold
  expired_but_alive_threshold = var.expired_but_alive_threshold
  clock_offset_threshold_ms   = var.clock_offset_threshold_ms
  system_errors_threshold     = var.system_errors_threshold
  refusals_threshold          = var.refusals_threshold
  vendor_refusals_threshold   = var.vendor_refusals_threshold
  shed_threshold              = var.shed_threshold
  installed_at                = var.installed_at
  name_prefix                 = var.name_prefix
  tags                        = var.tags
}

module "dashboard" {
  source = "../dashboard"

  environment            = var.environment
  region                 = var.region
  function_name          = module.reconciler.function_name
  table_name             = local.table.name
  dead_letter_queue_name = module.reconciler.dead_letter_queue_name
  alarm_arns             = module.alarms.arns
  metrics                = var.metrics
  schedule_expression    = var.schedule_expression
  name_prefix            = var.name_prefix
}
