variable "environment" {
  description = "sandbox, pre or prod: a part of the policy's name."
  type        = string
}

variable "product" {
  description = "Whose policy it is: the last part of its name. Null for the policy that names no product."
  type        = string
  default     = null

  validation {
    condition     = var.product == null || can(regex("^[A-Za-z0-9_.-]{1,64}$", var.product))
    error_message = "A product is named by at most 64 letters, digits, dots, underscores and hyphens."
  }
}

variable "table_arn" {
  description = "ARN of the table that the policy is about."
  type        = string
}

variable "region" {
  description = "Region of the table: where a KMS key may be used through DynamoDB."
  type        = string
}

variable "vendors" {
  description = "Vendors whose rows the policy covers, such as openai: the first part of a bucket's name. Null covers every vendor."
  type        = set(string)
  default     = null

  # A wildcard would reach other vendors, and a # other kinds of rows.
  validation {
    condition = var.vendors == null || try(length(var.vendors) > 0 && alltrue([
      for vendor in var.vendors : can(regex("^[A-Za-z0-9_.:/@-]+$", vendor)) && !contains(["lease", "load", "ticket"], vendor)
    ]), false)
    error_message = "Name at least one vendor, each by the first part of its buckets' names: no wildcard and no #, and not lease, load or ticket."
  }
}

variable "self_heal" {
  description = "Whether a process may scan the table for leases of crashed holders. Only in the policy of every vendor: healing gives back leases of all vendors. Processes with a product's policy leave that to the reconciler."
  type        = bool
  default     = true
}

variable "older_clients" {
  description = "Whether the policy of some vendors covers every ticket: for clients whose tickets do not have their vendor in the key."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "KMS key of the table, or null for the key that DynamoDB owns."
  type        = string
  default     = null
}

variable "name_prefix" {
  description = "What the policy's name begins with, so that two installations fit into one account."
  type        = string
  default     = ""
}

variable "iam_path" {
  description = "IAM path of the policy."
  type        = string
  default     = "/"
}

variable "tags" {
  description = "Tags of the policy."
  type        = map(string)
  default     = {}
}
