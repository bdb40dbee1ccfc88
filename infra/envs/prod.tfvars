environment = "prod"

deletion_protection = true
find_hot_keys       = true
log_level           = "INFO"
log_retention_days  = 90

# Prod is refused without critical_topic_arns and runbook_url: name here the SNS topic that reaches whoever is on
# call (docs/deploying.md), the URL where they read docs/operations.md, and in warning_topic_arns the topic for
# what can wait.
restored_slots_threshold = 10
alarm_actions_enabled    = true
