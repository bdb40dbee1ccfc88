# What people and pipelines may do to the table: apply limits, and read.
data "aws_partition" "current" {}

locals {
  # What `sluice watch`, `dashboard`, `metrics`, `buckets list`, `leases` and `doctor` ask for.
  read_actions = [
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:Scan",
    "dynamodb:DescribeTable",
    "dynamodb:DescribeTimeToLive",
    "dynamodb:DescribeContinuousBackups",
  ]

  # What `sluice buckets apply` reads: the bucket, and the directory for DynamoDB's time.
  look_actions = [
    "dynamodb:GetItem",
  ]

  # On buckets alone: declare a limit, change it and keep the level; cool down, end a cool-down, refill.
  limit_actions = [
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
  ]

  # `sluice buckets rm` removes the bucket and its load row.
  remove_actions = [
    "dynamodb:DeleteItem",
  ]

  # ForAllValues also holds for a request without any key; the Null test closes that gap.
  on_buckets = {
    "ForAllValues:StringNotLike" = { "dynamodb:LeadingKeys" = ["lease#*", "load#*", "ticket#*"] }
    Null                         = { "dynamodb:LeadingKeys" = "false" }
  }
  on_removed = {
    "ForAllValues:StringNotLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*", "load#directory", "load#heal", "load#sweeps"] }
    Null                         = { "dynamodb:LeadingKeys" = "false" }
  }

  via_dynamodb = { StringEquals = { "kms:ViaService" = "dynamodb.${var.region}.${data.aws_partition.current.dns_suffix}" } }

  operator = concat(
    [
      { Sid = "Look", Effect = "Allow", Action = local.look_actions, Resource = var.table_arn },
      { Sid = "Limits", Effect = "Allow", Action = local.limit_actions, Resource = var.table_arn, Condition = local.on_buckets },
      { Sid = "Remove", Effect = "Allow", Action = local.remove_actions, Resource = var.table_arn, Condition = local.on_removed },
    ],
    [
      for arn in var.kms_key_arn[*] : {
        Sid       = "Key"
        Effect    = "Allow"
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = arn
        Condition = local.via_dynamodb
      }
    ],
  )

  reader = concat(
    [{ Sid = "Read", Effect = "Allow", Action = local.read_actions, Resource = var.table_arn }],
    [
      for arn in var.kms_key_arn[*] : {
        Sid       = "Key"
        Effect    = "Allow"
        Action    = ["kms:Decrypt", "kms:DescribeKey"]
        Resource  = arn
        Condition = local.via_dynamodb
      }
    ],
  )
}

resource "aws_iam_policy" "operator" {
  name        = "${var.name_prefix}sluice-operator-${var.environment}"
  path        = var.iam_path
  description = "Apply and remove limits of Sluice: sluice buckets apply, rm, refill; cool-down."
  tags        = var.tags

  policy = jsonencode({ Version = "2012-10-17", Statement = local.operator })
}

resource "aws_iam_policy" "reader" {
  name        = "${var.name_prefix}sluice-reader-${var.environment}"
  path        = var.iam_path
  description = "Read the table of Sluice: sluice watch, dashboard, metrics, doctor."
  tags        = var.tags

  policy = jsonencode({ Version = "2012-10-17", Statement = local.reader })
}
