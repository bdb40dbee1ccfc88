environment = "prod"

deletion_protection = true
find_hot_keys       = true
log_level           = "INFO"
log_retention_days  = 90

# Prod is refused without critical_topic_arns: name here the SNS topic that reaches whoever is on call
# (docs/deploying.md), and in warning_topic_arns the one for what can wait.
restored_slots_threshold = 10
alarm_actions_enabled    = true
