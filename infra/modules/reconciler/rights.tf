# IAM checks a transaction by its parts: the UpdateItem and the DeleteItem in it each need their own right, and there is no action
# TransactWriteItems to grant. Tests run a sweep with what these lists allow, and nothing else.
locals {
  # On any row: find leases that have ended, read buckets, restore slots, write down what was measured.
  table_actions = [
    "dynamodb:Scan",
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:UpdateItem",
  ]

  # On lease rows alone, so that no mistake of a sweep can remove a bucket.
  lease_actions = [
    "dynamodb:DeleteItem",
  ]
}

resource "aws_iam_role" "reconciler" {
  name        = local.name
  description = "What the Sluice reconciler runs as."

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "reconciler" {
  name = local.name
  role = aws_iam_role.reconciler.name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Table"
        Effect   = "Allow"
        Action   = local.table_actions
        Resource = var.table_arn
      },
      {
        Sid      = "Leases"
        Effect   = "Allow"
        Action   = local.lease_actions
        Resource = var.table_arn

        # ForAllValues also holds for a request without any key; the Null test closes that gap.
        Condition = {
          "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*"] }
          Null                      = { "dynamodb:LeadingKeys" = "false" }
        }
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = ["sqs:SendMessage"]
        Resource = aws_sqs_queue.dead_letters.arn
      },
    ]
  })
}

# Logs, and nothing else. Metrics are lines of the log, so publishing them takes no right of its own.
resource "aws_iam_role_policy_attachment" "logs" {
  role       = aws_iam_role.reconciler.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}
