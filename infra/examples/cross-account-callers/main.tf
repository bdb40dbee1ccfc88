# Products in other accounts: each takes a role in the account of the table, and the role may touch the rows
# of the product's vendors alone. In the product's account, a profile takes the role, and AWS_PROFILE names
# it:
#
#     [profile sluice]
#     role_arn          = (output role_arns)
#     external_id       = (the one below)
#     credential_source = EcsContainer
#     region            = eu-central-1

provider "aws" {
  region = var.region
}

module "sluice" {
  source = "../../modules/sluice"

  environment         = "prod"
  region              = var.region
  package_path        = var.package_path
  critical_topic_arns = [var.critical_topic_arn]
  runbook_url         = "https://wiki.example.com/sluice/operations"

  callers = { for product, caller in var.products : product => { vendors = caller.vendors } }
}

resource "aws_iam_role" "product" {
  for_each = var.products

  name                 = "sluice-${each.key}"
  description          = "What ${each.key} of account ${split(":", each.value.role_arn)[4]} takes to call Sluice."
  max_session_duration = 3600

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { AWS = each.value.role_arn }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "sts:ExternalId" = each.value.external_id } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "product" {
  for_each = var.products

  role       = aws_iam_role.product[each.key].name
  policy_arn = module.sluice.product_policy_arns[each.key]
}
