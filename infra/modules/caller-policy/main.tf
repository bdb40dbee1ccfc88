# What product code may do to the table. Attach it to the role of the function, task or instance that links the SDK.
#
# IAM checks a transaction by its parts: the UpdateItem, PutItem and DeleteItem in it each need their own right, and there is no
# action TransactWriteItems to grant.
locals {
  # On any row. UpdateItem would make a row that is not there; the SDK's conditions refuse that, IAM cannot. (It does make load
  # rows.) BatchGetItem is admission's, and a sweep's.
  caller_actions = [
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:UpdateItem",
  ]

  # On lease and ticket rows alone, so that product code cannot replace a bucket.
  make_actions = [
    "dynamodb:PutItem",
  ]

  # On lease rows alone, so that it cannot remove one. A ticket's row stays: the TTL of DynamoDB removes it.
  remove_actions = [
    "dynamodb:DeleteItem",
  ]

  # On the whole table: a process that a full bucket refuses scans for leases that have ended, and gives back what they hold. (The mark of
  # the scan, load#heal, is a load row like the others.)
  heal_actions = [
    "dynamodb:Scan",
  ]

  # ForAllValues also holds for a request without any key; the Null test closes that gap.
  on_made = {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*"] }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  }
  on_removed = {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*"] }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  }

  caller_statements = [
    { Sid = "Buckets", Effect = "Allow", Action = local.caller_actions, Resource = var.table_arn },
    { Sid = "Make", Effect = "Allow", Action = local.make_actions, Resource = var.table_arn, Condition = local.on_made },
    { Sid = "Remove", Effect = "Allow", Action = local.remove_actions, Resource = var.table_arn, Condition = local.on_removed },
    { Sid = "Heal", Effect = "Allow", Action = local.heal_actions, Resource = var.table_arn },
  ]
}

resource "aws_iam_policy" "caller" {
  name        = "sluice-caller-${var.environment}"
  description = "Acquire, renew and release through Sluice, and give back what crashed callers held."

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = local.caller_statements
  })
}
