variable "region" {
  description = "Region of the table."
  type        = string
  default     = "eu-central-1"
}

variable "table_name" {
  description = "The table."
  type        = string
}

variable "package_path" {
  description = "Zip file with the reconciler's bootstrap."
  type        = string
}
