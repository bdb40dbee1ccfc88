variable "region" {
  description = "Region of the table."
  type        = string
  default     = "eu-central-1"
}

variable "package_path" {
  description = "Zip file with the reconciler's bootstrap."
  type        = string
}

variable "critical_topic_arn" {
  description = "SNS topic that reaches whoever is on call."
  type        = string
}

variable "products" {
  description = "Products, each with its vendors, the role that it runs with in its own account, and a text that both accounts know."
  type = map(object({
    vendors     = set(string)
    role_arn    = string
    external_id = string
  }))
}
