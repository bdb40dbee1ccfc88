# A table that is there already, as from another team's Terraform: this makes the reconciler, policies, alarms
# and dashboard beside it. The table's partition key must be the string vendor_dimension, and its TTL must be
# on purge_at (`sluice doctor` checks both). For prod, set critical_topic_arns and runbook_url, too: without them its
# plan is refused.

provider "aws" {
  region = var.region
}

data "aws_dynamodb_table" "buckets" {
  name = var.table_name
}

module "sluice" {
  source = "../../modules/sluice"

  environment  = "pre"
  region       = var.region
  package_path = var.package_path

  existing_table = {
    name = data.aws_dynamodb_table.buckets.name
    arn  = data.aws_dynamodb_table.buckets.arn
  }
}
