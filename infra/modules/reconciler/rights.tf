# IAM checks a transaction by its parts: the UpdateItem and the DeleteItem in it each need their own right, and there is no action
# TransactWriteItems to grant. Tests run a sweep with what these lists allow, and nothing else.
data "aws_partition" "current" {}

locals {
  # On any row: find leases that have ended, read buckets, restore slots, give shares the slots that came back, write down what was
  # measured.
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
  path        = var.iam_path
  description = "What the Sluice reconciler runs as."
  tags        = var.tags

  permissions_boundary = var.permissions_boundary_arn

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
    Statement = concat([
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
      ], [
      # A key of yours encrypts the table: it is used through DynamoDB, and in no other way.
      for arn in var.kms_key_arn[*] : {
        Sid      = "Key"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource = arn
        Condition = {
          StringEquals = { "kms:ViaService" = "dynamodb.${var.region}.${data.aws_partition.current.dns_suffix}" }
        }
      }
    ])
  })
}

# Logs, and nothing else. Metrics are lines of the log, so publishing them takes no right of its own.
resource "aws_iam_role_policy_attachment" "logs" {
  role       = aws_iam_role.reconciler.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}
