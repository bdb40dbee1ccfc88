# No lock file is committed yet: its hashes have to come from the provider registry. Where that can be reached, make it with
# `terraform -chdir=infra init` and commit it; until then the constraint below is what holds.
terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.25, < 7"
    }
  }

  # Partial on purpose: one configuration serves every environment, Region and account. `infra/state init`
  # fills it in.
  backend "s3" {}
}

provider "aws" {
  region = var.region

  default_tags {
    tags = merge({
      Project     = "sluice"
      Environment = var.environment
      ManagedBy   = "terraform"
    }, var.tags)
  }
}
