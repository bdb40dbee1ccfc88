variable "environment" {
  description = "sandbox, pre or prod: the last part of the policies' names."
  type        = string
}

variable "table_arn" {
  description = "ARN of the table that the policies are about."
  type        = string
}
