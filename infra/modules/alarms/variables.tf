variable "environment" {
  description = "sandbox, pre or prod: part of every alarm's name, and the dimension of the reconciler's metrics."
  type        = string
}

variable "function_name" {
  description = "The reconciler's Lambda function."
  type        = string
}

variable "table_name" {
  description = "The table."
  type        = string
}

variable "dead_letter_queue_name" {
  description = "The queue that holds the reconciler's dead letters."
  type        = string
}

variable "critical_topic_arns" {
  description = "SNS topics of urgent alarms (act now): notified of each alarm and of its end."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.critical_topic_arns : can(regex("^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "Each topic must be given by its ARN, arn:aws:sns:REGION:ACCOUNT:NAME."
  }
}

variable "warning_topic_arns" {
  description = "SNS topics of the other alarms (they can wait): notified of each alarm and of its end."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.warning_topic_arns : can(regex("^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "Each topic must be given by its ARN, arn:aws:sns:REGION:ACCOUNT:NAME."
  }
}

variable "runbook_url" {
  description = "Page that says what to do; the alarm's name is its anchor."
  type        = string

  validation {
    condition     = can(regex("^[^ #]+$", var.runbook_url))
    error_message = "The runbook must be a URL or a path without a #: each alarm adds its own anchor."
  }
}

variable "sweep_interval_seconds" {
  description = "Longest time between two runs of the schedule. Periods of the alarms follow it."
  type        = number
  default     = 300

  validation {
    condition     = var.sweep_interval_seconds >= 60 && var.sweep_interval_seconds <= 86400 && var.sweep_interval_seconds % 60 == 0
    error_message = "The interval must be whole minutes, from one minute to a day: CloudWatch has no longer periods."
  }
}

variable "installed_at" {
  description = "When the reconciler was installed (UTC, as 2026-03-01T00:30:00Z), which `no-sweep` waits for. Null for the time of the first plan, which the state keeps."
  type        = string
  default     = null

  # The seconds since 1970 are computed from what stands there, without an offset.
  validation {
    condition     = var.installed_at == null || can(regex("^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", var.installed_at))
    error_message = "installed_at must be in UTC and end in Z, as 2026-03-01T00:30:00Z."
  }
}

variable "name_prefix" {
  description = "What the alarms' names begin with, so that two installations fit into one account."
  type        = string
  default     = ""
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
}

variable "system_errors_threshold" {
  description = "Requests a minute that DynamoDB fails by its own fault, in five of eight minutes, from which it is an alarm. A busy table meets a few at any time."
  type        = number
  default     = 10

  validation {
    condition     = var.system_errors_threshold >= 1
    error_message = "The threshold must be one request or more: with less the alarm would never end."
  }
}

variable "actions_enabled" {
  description = "Whether alarms notify the topics."
  type        = bool
  default     = true
}

variable "restored_slots_threshold" {
  description = "Slots restored in 15 minutes, four times running, from which callers count as leaking."
  type        = number
  default     = 10

  validation {
    condition     = var.restored_slots_threshold >= 1
    error_message = "The threshold must be one slot or more: with less the alarm would never end."
  }
}

variable "drift_threshold" {
  description = "Lost or minted slots that one sweep may find without an alarm. With zero each is an alarm; more tolerates clients that are known to restore twice."
  type        = number
  default     = 0

  validation {
    condition     = var.drift_threshold >= 0
    error_message = "The threshold must be zero slots or more: below, the alarm would never end."
  }
}

variable "leak_threshold" {
  description = "Slots that may stay taken for 15 minutes with nothing granted or given back, without an alarm. With zero each is an alarm; more tolerates calls that are meant to last longer."
  type        = number
  default     = 0

  validation {
    condition     = var.leak_threshold >= 0
    error_message = "The threshold must be zero slots or more: below, the alarm would never end."
  }
}

variable "expired_but_alive_threshold" {
  description = "Holders that outlive their leases in 15 minutes, from which it is an alarm. With one each is an alarm; more tolerates callers that are stopped now and then."
  type        = number
  default     = 1

  validation {
    condition     = var.expired_but_alive_threshold >= 1
    error_message = "The threshold must be one holder or more: with less the alarm would never end."
  }
}

variable "clock_offset_threshold_ms" {
  description = "Milliseconds between the reconciler's clock and DynamoDB's, above which it is an alarm. Sweeps allow for 2,000."
  type        = number
  default     = 1000

  validation {
    condition     = var.clock_offset_threshold_ms > 0 && var.clock_offset_threshold_ms <= 2000
    error_message = "The threshold must be above zero and at most 2,000 ms, which is what sweeps allow for."
  }
}

variable "refusals_threshold" {
  description = "Refusals in a quarter of an hour, four times running, from which callers count as asking for too much."
  type        = number
  default     = 1000

  validation {
    condition     = var.refusals_threshold >= 1
    error_message = "The threshold must be one refusal or more: with less the alarm would never end."
  }
}

variable "vendor_refusals_threshold" {
  description = "Granted calls that vendors may refuse in a quarter of an hour without an alarm."
  type        = number
  default     = 10

  validation {
    condition     = var.vendor_refusals_threshold >= 0
    error_message = "The threshold must be zero refusals or more: below, the alarm would never end."
  }
}

variable "shed_threshold" {
  description = "Requests shed in five minutes, three times running, from which it is an alarm. Higher tolerates requests that cannot wait."
  type        = number
  default     = 1

  validation {
    condition     = var.shed_threshold >= 1
    error_message = "The threshold must be one request or more: with less the alarm would never end."
  }
}
