variable "environment" {
  description = "sandbox, pre or prod: the last part of the policy's name."
  type        = string
}

variable "table_arn" {
  description = "ARN of the table that the policy is about."
  type        = string
}
