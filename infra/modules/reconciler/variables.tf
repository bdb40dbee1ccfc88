variable "environment" {
  description = "sandbox, pre or prod: the last part of every name here, and with the prefix the dimension of the metrics."
  type        = string
}

variable "region" {
  description = "Region of the table."
  type        = string
}

variable "table_name" {
  description = "The table to sweep."
  type        = string
}

variable "table_arn" {
  description = "ARN of the table, for the role's rights."
  type        = string
}

variable "package_path" {
  description = "Zip file with the bootstrap, on this machine. Null with package_s3."
  type        = string
  default     = null

  validation {
    condition     = try(var.package_path == null || fileexists(var.package_path), true)
    error_message = "There is no zip file at package_path. Build the reconciler first, or name a file that is there: a plan that nobody applies, and a destroy, take any."
  }
}

variable "package_s3" {
  description = "Zip file with the bootstrap, in a bucket of the function's Region: { bucket, key, version }. version is the object's, for a bucket with versions; without it, give each release a key of its own."
  type = object({
    bucket  = string
    key     = string
    version = optional(string)
  })
  default = null

  validation {
    condition     = (var.package_s3 == null) != (var.package_path == null)
    error_message = "Give either package_path, a zip file on this machine, or package_s3, one in a bucket."
  }
}

variable "architecture" {
  description = "What the bootstrap was built for. The wrong one is accepted here, and fails at the first run."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "The architecture must be arm64 or x86_64."
  }
}

variable "pin_version" {
  description = "Version of the function that the alias live stays at, as after a rollback. Null: each apply moves it to the version that it publishes."
  type        = string
  default     = null

  validation {
    condition     = var.pin_version == null || can(regex("^[1-9][0-9]*$", var.pin_version))
    error_message = "pin_version is the number of a version: `task infra:rollback` lists them."
  }
}

variable "schedule_expression" {
  description = "When to run, as EventBridge writes it."
  type        = string
  default     = "rate(5 minutes)"

  validation {
    condition = can(regex(
      "^(rate\\((1 (minute|hour|day)|([2-9]|[1-9][0-9]+) (minutes|hours|days))\\)|cron\\([^ ()]+( [^ ()]+){5}\\))$",
      var.schedule_expression,
    ))
    error_message = "The schedule must be rate(1 minute), rate(5 minutes) and the like, or cron() with six fields."
  }
}

variable "longest_gap_minutes" {
  description = "Longest time between two runs of a cron() schedule, which the alarms wait for. A rate() says it itself."
  type        = number
  default     = null

  validation {
    condition     = var.longest_gap_minutes != null || startswith(var.schedule_expression, "rate(")
    error_message = "With a cron() schedule, longest_gap_minutes must say how long its longest gap is: the alarms wait that long."
  }

  validation {
    condition     = var.longest_gap_minutes == null || try(var.longest_gap_minutes >= 1 && var.longest_gap_minutes <= 1440 && floor(var.longest_gap_minutes) == var.longest_gap_minutes, false)
    error_message = "The longest gap must be whole minutes, from one minute to a day."
  }
}

variable "log_level" {
  description = "SLUICE_LOG_LEVEL of the function."
  type        = string
  default     = "INFO"

  validation {
    condition     = contains(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"], var.log_level)
    error_message = "The log level must be TRACE, DEBUG, INFO, WARN or ERROR."
  }
}

variable "log_retention_days" {
  description = "Days that the logs are kept."
  type        = number
  default     = 30

  validation {
    condition = contains(
      [1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653],
      var.log_retention_days,
    )
    error_message = "CloudWatch keeps logs for 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653 days."
  }
}

variable "slowest_call_seconds" {
  description = "SLUICE_SLOWEST_CALL of the function."
  type        = number
  default     = 900

  validation {
    condition     = var.slowest_call_seconds >= 1 && var.slowest_call_seconds <= 31536000
    error_message = "The longest call must take from 1 second to a year."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the table, or null for the key that DynamoDB owns."
  type        = string
  default     = null
}

variable "metrics" {
  description = "What sweeps publish, SLUICE_METRICS of the function: all, or alarms, which is what the alarms look at and a small dashboard shows. CloudWatch bills each metric."
  type        = string
  default     = "all"

  validation {
    condition     = contains(["all", "alarms"], var.metrics)
    error_message = "The metrics must be all or alarms."
  }
}

variable "reserved_concurrency" {
  description = "Executions that Lambda keeps for the function, which is also the most that run at once. Null reserves none: a new account, whose quota is ten, may reserve nothing. Two sweeps at once do no harm."
  type        = number
  default     = null
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the function's role, where the account wants one."
  type        = string
  default     = null
}

variable "iam_path" {
  description = "IAM path of roles and policies."
  type        = string
  default     = "/"

  validation {
    condition     = can(regex("^/([!-~]+/)?$", var.iam_path))
    error_message = "The path must begin and end with a slash."
  }
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
