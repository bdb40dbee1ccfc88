# One environment: the table, what sweeps it, what callers may do to it, and what watches it.

module "table" {
  source = "./modules/table"

  environment         = var.environment
  deletion_protection = var.deletion_protection
  kms_key_arn         = var.kms_key_arn
  warm_throughput     = var.warm_throughput
  find_hot_keys       = var.find_hot_keys
}

module "reconciler" {
  source = "./modules/reconciler"

  environment          = var.environment
  region               = var.region
  table_name           = module.table.name
  table_arn            = module.table.arn
  package_path         = var.package_path
  architecture         = var.architecture
  schedule_expression  = var.schedule_expression
  longest_gap_minutes  = var.longest_gap_minutes
  log_level            = var.log_level
  log_retention_days   = var.log_retention_days
  slowest_call_seconds = var.slowest_call_seconds
}

# For roles that serve every vendor, and for people on call, who sweep by hand.
module "caller_policy" {
  source = "./modules/caller-policy"

  environment = var.environment
  region      = var.region
  table_arn   = module.table.arn
  kms_key_arn = var.kms_key_arn
}

# One for each product: it can harm the rows of its own vendors alone.
module "product_policy" {
  source   = "./modules/caller-policy"
  for_each = var.callers

  environment   = var.environment
  region        = var.region
  product       = each.key
  vendors       = each.value.vendors
  older_clients = each.value.older_clients
  table_arn     = module.table.arn
  kms_key_arn   = var.kms_key_arn
}

module "operator_policy" {
  source = "./modules/operator-policy"

  environment = var.environment
  region      = var.region
  table_arn   = module.table.arn
  kms_key_arn = var.kms_key_arn
}

module "alarms" {
  source = "./modules/alarms"

  environment                 = var.environment
  function_name               = module.reconciler.function_name
  table_name                  = module.table.name
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
}

module "dashboard" {
  source = "./modules/dashboard"

  environment            = var.environment
  region                 = var.region
  function_name          = module.reconciler.function_name
  table_name             = module.table.name
  dead_letter_queue_name = module.reconciler.dead_letter_queue_name
  alarm_arns             = module.alarms.arns
}
