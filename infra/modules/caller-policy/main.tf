# What product code may do to the table. Attach one of the two to the role of the function, task or instance that links the SDK.
#
# IAM checks a transaction by its parts: the UpdateItem, PutItem and DeleteItem in it each need their own right, and there is no
# action TransactWriteItems to grant.
locals {
  # On any row. UpdateItem would make a row that is not there; the SDK's conditions refuse that, IAM cannot.
  caller_actions = [
    "dynamodb:GetItem",
    "dynamodb:UpdateItem",
  ]

  # On lease and ticket rows alone, so that product code can neither replace a bucket nor remove one.
  lease_actions = [
    "dynamodb:PutItem",
    "dynamodb:DeleteItem",
  ]

  # On the whole table: a sweep looks for leases that have ended, and reads the buckets that they belong to.
  sweep_actions = [
    "dynamodb:Scan",
    "dynamodb:BatchGetItem",
  ]

  # ForAllValues also holds for a request without any key; the Null test closes that gap.
  on_leases = {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*"] }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  }

  caller_statements = [
    { Sid = "Buckets", Effect = "Allow", Action = local.caller_actions, Resource = var.table_arn },
    { Sid = "Leases", Effect = "Allow", Action = local.lease_actions, Resource = var.table_arn, Condition = local.on_leases },
  ]

  sweep_statements = [
    { Sid = "Sweep", Effect = "Allow", Action = local.sweep_actions, Resource = var.table_arn },
  ]
}

resource "aws_iam_policy" "caller" {
  name        = "sluice-caller-${var.environment}"
  description = "Acquire, renew and release through Sluice."

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = local.caller_statements
  })
}

resource "aws_iam_policy" "sweeping_caller" {
  name        = "sluice-sweeping-caller-${var.environment}"
  description = "Acquire, renew and release through Sluice, and give back what crashed callers held."

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat(local.caller_statements, local.sweep_statements)
  })
}
