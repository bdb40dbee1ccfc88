variable "region" {
  description = "Region of the table and of everything beside it."
  type        = string
  default     = "eu-central-1"
}

variable "package_path" {
  description = "Zip file with the reconciler's bootstrap."
  type        = string
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary that the account wants, or null."
  type        = string
  default     = null
}

variable "chat_role_name" {
  description = "Role that the chat service runs with."
  type        = string
}
