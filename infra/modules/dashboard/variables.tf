variable "environment" {
  description = "sandbox, pre or prod: the last part of the dashboard's name, and the dimension of the reconciler's metrics."
  type        = string
}

variable "region" {
  description = "Region that the metrics are in."
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

variable "alarm_arns" {
  description = "Alarms to show."
  type        = list(string)
}

variable "name_prefix" {
  description = "What the dashboard's name begins with, so that two installations fit into one account."
  type        = string
  default     = ""
}

variable "metrics" {
  description = "What sweeps publish: all, or alarms. Charts of what is not published are left out."
  type        = string
  default     = "all"
}

variable "schedule_expression" {
  description = "When the reconciler runs, for the note at the top."
  type        = string
  default     = "rate(5 minutes)"
}
