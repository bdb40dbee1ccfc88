environment = "prod"

deletion_protection = true
find_hot_keys       = true
log_level           = "INFO"
log_retention_days  = 90

# Add alarm_topic_arns here once the account has a topic that reaches whoever is on call: a plan warns until then.
restored_slots_threshold = 10
alarm_actions_enabled    = true
