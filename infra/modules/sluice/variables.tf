variable "environment" {
  description = "Which environment this is. It ends the name of everything made here."
  type        = string

  validation {
    condition     = contains(["sandbox", "pre", "prod"], var.environment)
    error_message = "The environment must be one of sandbox, pre and prod."
  }
}

variable "region" {
  description = "AWS region of the table and of everything beside it."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "The region must look like eu-central-1."
  }
}

variable "existing_table" {
  description = "A table that is there already, by name and ARN. Null makes one. Never set it where this module has made a table: that one would be destroyed. Its partition key must be the string vendor_dimension, and its TTL must be on purge_at."
  type = object({
    name = string
    arn  = string
  })
  default = null
}

variable "deletion_protection" {
  description = "Whether DynamoDB refuses to delete the table. Only a sandbox may do without."
  type        = bool
  default     = true

  validation {
    condition     = var.deletion_protection || var.environment == "sandbox"
    error_message = "Deletion protection may be turned off in the sandbox alone."
  }
}

variable "kms_key_arn" {
  description = "KMS key for the table. With null, DynamoDB uses the key that it owns, which costs nothing."
  type        = string
  default     = null
}

variable "warm_throughput" {
  description = "Units a second that the table must take at once. Null leaves the 4,000 writes and 12,000 reads of a new on-demand table. The number can be raised, never lowered, and each raise is paid for."
  type = object({
    read_units_per_second  = number
    write_units_per_second = number
  })
  default = null
}

variable "find_hot_keys" {
  description = "Whether DynamoDB lists the keys that it throttles. Billed a month, and by the throttled requests that it sees."
  type        = bool
  default     = true
}

variable "callers" {
  description = "Products, each with the vendors whose rows it may touch: { chat = { vendors = [\"openai\"] } } makes the policy sluice-caller-{env}-chat. older_clients covers tickets without a vendor in their key."
  type = map(object({
    vendors       = set(string)
    older_clients = optional(bool, false)
  }))
  default = {}
}

variable "package_path" {
  description = "Zip file with the reconciler's bootstrap (`task build:lambda`, or the file of a release). Null with package_s3."
  type        = string
  default     = null
}

variable "package_s3" {
  description = "Zip file of a release in a bucket of the Region, in place of package_path: { bucket, key, version }. version is the object's, for a bucket with versions; without it, give each release a key of its own."
  type = object({
    bucket  = string
    key     = string
    version = optional(string)
  })
  default = null
}

variable "architecture" {
  description = "What the bootstrap in the zip file was built for: arm64 (cheaper) or x86_64."
  type        = string
  default     = "arm64"
}

variable "reserved_concurrency" {
  description = "Executions that Lambda keeps for the function, which is also the most that run at once. Null reserves none: a new account, whose quota is ten, may reserve nothing. Two sweeps at once do no harm."
  type        = number
  default     = null
}

variable "pin_version" {
  description = "Version of the function that the alias live stays at, as after a rollback. Null: each apply moves it to the version that it publishes."
  type        = string
  default     = null
}

variable "schedule_expression" {
  description = "When the reconciler runs. A shorter interval brings a crashed caller's slots back sooner and scans more often. Alarms follow it."
  type        = string
  default     = "rate(5 minutes)"
}

variable "longest_gap_minutes" {
  description = "Longest time between two runs of a cron() schedule, which the alarms wait for. A rate() says it itself."
  type        = number
  default     = null
}

variable "log_level" {
  description = "The reconciler's log level: TRACE, DEBUG, INFO, WARN or ERROR."
  type        = string
  default     = "INFO"
}

variable "log_retention_days" {
  description = "Days that the reconciler's logs are kept. CloudWatch takes certain numbers only."
  type        = number
  default     = 30
}

variable "slowest_call_seconds" {
  description = "The longest that a call may take. Sweeps count at least one release of each slot in that time as the drain rate, so that a bucket whose calls hang does not shed requests for ever; raise it for calls that last longer."
  type        = number
  default     = 900
}

variable "metrics" {
  description = "What sweeps publish: all, or alarms, which is what the alarms look at and a small dashboard shows. CloudWatch bills each metric (docs/cost.md)."
  type        = string
  default     = "all"
}

variable "critical_topic_arns" {
  description = "SNS topics of urgent alarms (act now): no-sweep, unreadable-buckets, system-errors, dynamodb-unavailable. Required in prod."
  type        = list(string)
  default     = []

  validation {
    condition     = var.environment != "prod" || length(var.critical_topic_arns) > 0 || var.nobody_is_paged
    error_message = "prod needs critical_topic_arns: SNS topics that reach whoever is on call. Without one, nobody is notified when Sluice stops. To deploy without one, set nobody_is_paged = true."
  }

  validation {
    condition     = alltrue([for arn in var.critical_topic_arns : try(split(":", arn)[3], "") == var.region])
    error_message = "Each topic must be in ${var.region}: CloudWatch notifies topics of its own Region alone."
  }
}

variable "warning_topic_arns" {
  description = "SNS topics of all other alarms (they can wait). Without any, these alarms show on the dashboard only."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.warning_topic_arns : try(split(":", arn)[3], "") == var.region])
    error_message = "Each topic must be in ${var.region}: CloudWatch notifies topics of its own Region alone."
  }
}

variable "nobody_is_paged" {
  description = "Confirms that alarms of prod shall notify nobody: prod is refused without critical_topic_arns otherwise."
  type        = bool
  default     = false
}

variable "runbook_url" {
  description = "Page that says what to do about an alarm; the alarm's name is its anchor. Each alarm has it in its description. The default is the file in the repository; prod needs the URL (https) under which your people read it."
  type        = string
  default     = "docs/operations.md"

  validation {
    condition     = var.environment != "prod" || startswith(var.runbook_url, "https://")
    error_message = "prod needs runbook_url: the URL (https://...) of docs/operations.md where whoever is on call can open it."
  }
}

variable "installed_at" {
  description = "When the reconciler was installed (UTC, as 2026-03-01T00:30:00Z), which the alarm no-sweep waits for. Null for the time of the first plan, which the state keeps."
  type        = string
  default     = null
}

variable "alarm_actions_enabled" {
  description = "Whether alarms notify their topics."
  type        = bool
  default     = true

  validation {
    condition     = var.environment != "prod" || var.alarm_actions_enabled || var.nobody_is_paged
    error_message = "prod needs alarm_actions_enabled: alarms that are off notify nobody when Sluice stops. To deploy so, set nobody_is_paged = true."
  }
}

variable "restored_slots_threshold" {
  description = "Slots restored in 15 minutes from which callers count as leaking, when it goes on for an hour. Lower finds small leaks, higher tolerates callers that are killed in the ordinary way."
  type        = number
  default     = 10
}

variable "drift_threshold" {
  description = "Lost or minted slots that one sweep may find without an alarm. With zero each is an alarm; more tolerates clients that are known to restore twice."
  type        = number
  default     = 0
}

variable "leak_threshold" {
  description = "Slots that may stay taken for 15 minutes with nothing granted or given back, without an alarm. With zero each is an alarm; more tolerates calls that are meant to last longer."
  type        = number
  default     = 0
}

variable "expired_but_alive_threshold" {
  description = "Holders that outlive their leases in 15 minutes, from which it is an alarm. With one each is an alarm; more tolerates callers that are stopped now and then."
  type        = number
  default     = 1
}

variable "clock_offset_threshold_ms" {
  description = "Milliseconds between the reconciler's clock and DynamoDB's, above which it is an alarm. Sweeps allow for 2,000."
  type        = number
  default     = 1000
}

variable "system_errors_threshold" {
  description = "Requests a minute that DynamoDB fails by its own fault, in five of eight minutes, from which it is an alarm. A busy table meets a few at any time."
  type        = number
  default     = 10
}

variable "refusals_threshold" {
  description = "Refusals in a quarter of an hour, four times running, from which callers count as asking for too much."
  type        = number
  default     = 1000
}

variable "vendor_refusals_threshold" {
  description = "Granted calls that vendors may refuse in a quarter of an hour without an alarm."
  type        = number
  default     = 10
}

variable "shed_threshold" {
  description = "Requests shed in five minutes, three times running, from which it is an alarm. Higher tolerates requests that cannot wait."
  type        = number
  default     = 1
}

variable "name_prefix" {
  description = "What every name begins with, so that two Regions or two installations fit into one account: roles, policies and dashboards have one name in all Regions. Callers of a table with a prefix set SLUICE_TABLE_NAME."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^[A-Za-z0-9-]{0,20}$", var.name_prefix))
    error_message = "The prefix must be at most 20 letters, digits and hyphens."
  }
}

variable "iam_path" {
  description = "IAM path of roles and policies."
  type        = string
  default     = "/"
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the function's role, where the account wants one."
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags of everything that takes them."
  type        = map(string)
  default     = {}
}
