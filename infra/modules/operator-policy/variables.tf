variable "environment" {
  description = "sandbox, pre or prod: the last part of the policies' names."
  type        = string
}

variable "table_arn" {
  description = "ARN of the table that the policies are about."
  type        = string
}

variable "region" {
  description = "Region of the table: where a KMS key may be used through DynamoDB."
  type        = string
}

variable "kms_key_arn" {
  description = "KMS key of the table, or null for the key that DynamoDB owns."
  type        = string
  default     = null
}

variable "name_prefix" {
  description = "What the policies' names begin with, so that two installations fit into one account."
  type        = string
  default     = ""
}

variable "iam_path" {
  description = "IAM path of the policies."
  type        = string
  default     = "/"
}

variable "tags" {
  description = "Tags of the policies."
  type        = map(string)
  default     = {}
}
