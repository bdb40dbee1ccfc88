environment = "pre"

deletion_protection = true
find_hot_keys       = true
log_level           = "INFO"
log_retention_days  = 30

restored_slots_threshold = 20
alarm_actions_enabled    = true
