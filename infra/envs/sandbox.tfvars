environment = "sandbox"

# People make and throw away sandboxes, and want to see every decision while they do.
deletion_protection = false
find_hot_keys       = false
log_level           = "DEBUG"
log_retention_days  = 7

# Demos kill callers on purpose. The alarms show on the dashboard and wake nobody.
restored_slots_threshold = 100
alarm_actions_enabled    = false
