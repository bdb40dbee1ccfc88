variable "environment" {
  description = "sandbox, pre or prod: the last part of the table's name."
  type        = string
}

variable "deletion_protection" {
  description = "Whether DynamoDB refuses to delete the table."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "KMS key to encrypt with, or null for the key that DynamoDB owns. The key's policy must let the callers and the reconciler use it through DynamoDB (kms:ViaService)."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "The KMS key must be given by the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID."
  }
}

variable "warm_throughput" {
  description = "Units a second that the table must take at once, or null for what a new on-demand table takes."
  type = object({
    read_units_per_second  = number
    write_units_per_second = number
  })
  default = null

  validation {
    condition = var.warm_throughput == null || try(
      var.warm_throughput.read_units_per_second >= 12000 && var.warm_throughput.write_units_per_second >= 4000, false
    )
    error_message = "Warm throughput starts at 12,000 read and 4,000 write units a second, what an on-demand table takes anyway."
  }
}

variable "find_hot_keys" {
  description = "Whether Contributor Insights lists the keys that are throttled."
  type        = bool
  default     = true
}

variable "name_prefix" {
  description = "What every name begins with, so that two installations fit into one account."
  type        = string
  default     = ""
}

variable "tags" {
  description = "Tags of everything that takes them."
  type        = map(string)
  default     = {}
}
