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

variable "topic_arns" {
  description = "SNS topics that hear of each alarm and of its end."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.topic_arns : can(regex("^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "Each topic must be given by its ARN, arn:aws:sns:REGION:ACCOUNT:NAME."
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
