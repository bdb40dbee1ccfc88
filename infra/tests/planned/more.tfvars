# What wiring.py adds to envs/*.tfvars: topics that differ, and products with a vendor each.
critical_topic_arns = ["arn:aws:sns:eu-central-1:111122223333:now"]
warning_topic_arns  = ["arn:aws:sns:eu-central-1:111122223333:tomorrow"]
runbook_url         = "https://example.com/operations.md"

callers = {
  chat  = { vendors = ["openai", "anthropic"] }
  voice = { vendors = ["elevenlabs"] }
}
