# Everything that can be chosen, with a provider, topics, a KMS key and a product's role of your own.
# Elsewhere than in this repository: source =
# "git::https://YOUR-GIT-HOST/sluice.git//infra/modules/sluice?ref=v1.0.0"

provider "aws" {
  region = var.region
}

module "sluice" {
  source = "../../modules/sluice"

  environment = "prod"
  region      = var.region
  name_prefix = "acme-"
  iam_path    = "/sluice/"
  tags        = { Team = "platform" }

  permissions_boundary_arn = var.permissions_boundary_arn
  kms_key_arn              = aws_kms_key.table.arn

  package_path         = var.package_path
  architecture         = "arm64"
  schedule_expression  = "rate(5 minutes)"
  reserved_concurrency = 1
  metrics              = "alarms"

  critical_topic_arns = [aws_sns_topic.critical.arn]
  warning_topic_arns  = [aws_sns_topic.warning.arn]
  runbook_url         = "https://wiki.example.com/sluice/operations"

  callers = {
    chat  = { vendors = ["openai", "anthropic"] }
    voice = { vendors = ["elevenlabs"] }
  }
}

resource "aws_sns_topic" "critical" {
  name              = "acme-sluice-critical"
  kms_master_key_id = aws_kms_key.alarms.id
}

resource "aws_sns_topic" "warning" {
  name              = "acme-sluice-warning"
  kms_master_key_id = aws_kms_key.alarms.id
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  root = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:root"
}

# The account's policies say who may use the keys: the module's own do, through DynamoDB alone.
resource "aws_kms_key" "table" {
  description         = "The table of Sluice."
  enable_key_rotation = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Sid = "Account", Effect = "Allow", Principal = { AWS = local.root }, Action = "kms:*", Resource = "*" },
    ]
  })
}

resource "aws_kms_key" "alarms" {
  description         = "The topics of Sluice's alarms."
  enable_key_rotation = true

  # CloudWatch cannot write to an encrypted topic without this.
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Sid = "Account", Effect = "Allow", Principal = { AWS = local.root }, Action = "kms:*", Resource = "*" },
      {
        Sid       = "Alarms"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id } }
      },
    ]
  })
}

# The role of the chat service, which is yours: the policy is all that it needs of Sluice.
resource "aws_iam_role_policy_attachment" "chat" {
  role       = var.chat_role_name
  policy_arn = module.sluice.product_policy_arns["chat"]
}
