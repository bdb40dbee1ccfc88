mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "pre"
  region      = "eu-central-1"
  table_arn   = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
}

run "product_code_can_neither_make_nor_remove_buckets" {
  module {
    source = "./modules/caller-policy"
  }

  # The whole document, so that nothing can be added unseen.
  assert {
    condition = jsondecode(aws_iam_policy.caller.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = [
        {
          Sid      = "Buckets"
          Effect   = "Allow"
          Action   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
        },
        {
          Sid      = "Make"
          Effect   = "Allow"
          Action   = ["dynamodb:PutItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Remove"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Heal"
          Effect   = "Allow"
          Action   = ["dynamodb:Scan"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
        },
      ]
    }))
    error_message = "The caller's rights are not the ones that were agreed."
  }

  assert {
    condition     = aws_iam_policy.caller.name == "sluice-caller-pre"
    error_message = "The policy is named after what it is for, and the environment."
  }

  assert {
    condition     = output.caller_policy_json == aws_iam_policy.caller.policy
    error_message = "The document that is handed out is the policy itself."
  }
}

run "a_product_may_touch_the_rows_of_its_own_vendors_alone" {
  module {
    source = "./modules/caller-policy"
  }

  variables {
    product = "chat"
    vendors = ["openai", "anthropic"]
  }

  # The whole document: nothing can be added unseen, and there is no Scan in it.
  assert {
    condition = jsondecode(aws_iam_policy.caller.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = [
        {
          Sid      = "Read"
          Effect   = "Allow"
          Action   = ["dynamodb:GetItem", "dynamodb:BatchGetItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = [
              "anthropic#*", "openai#*", "lease#anthropic#*", "lease#openai#*", "load#anthropic#*", "load#openai#*",
              "ticket#anthropic#*", "ticket#openai#*", "load#directory",
            ] }
            Null = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Change"
          Effect   = "Allow"
          Action   = ["dynamodb:UpdateItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = [
              "anthropic#*", "openai#*", "lease#anthropic#*", "lease#openai#*", "load#anthropic#*", "load#openai#*",
              "ticket#anthropic#*", "ticket#openai#*",
            ] }
            Null = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Make"
          Effect   = "Allow"
          Action   = ["dynamodb:PutItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#anthropic#*", "lease#openai#*", "ticket#anthropic#*", "ticket#openai#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Remove"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#anthropic#*", "lease#openai#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
      ]
    }))
    error_message = "The rights of a product are not the ones that were agreed."
  }

  assert {
    condition     = aws_iam_policy.caller.name == "sluice-caller-pre-chat"
    error_message = "The policy is named after the environment and the product."
  }
}

run "tickets_of_older_clients_are_covered_if_asked" {
  module {
    source = "./modules/caller-policy"
  }

  variables {
    product       = "chat"
    vendors       = ["openai"]
    older_clients = true
  }

  assert {
    condition = {
      for statement in jsondecode(aws_iam_policy.caller.policy).Statement :
      statement.Sid => contains(statement.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"], "ticket#*")
    } == { Read = true, Change = true, Make = true, Remove = false }
    error_message = "Older clients put, read and redeem tickets without a vendor in the key; nobody deletes them."
  }
}

run "without_self_healing_nothing_is_scanned" {
  module {
    source = "./modules/caller-policy"
  }

  variables {
    self_heal = false
  }

  assert {
    condition     = jsondecode(aws_iam_policy.caller.policy).Statement[*].Sid == ["Buckets", "Make", "Remove"]
    error_message = "Healing is left to the reconciler: no Scan."
  }
}

run "a_key_is_used_through_dynamodb_alone" {
  module {
    source = "./modules/caller-policy"
  }

  variables {
    kms_key_arn = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
  }

  assert {
    condition = jsondecode(aws_iam_policy.caller.policy).Statement[4] == jsondecode(jsonencode({
      Sid       = "Key"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
      Resource  = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
      Condition = { StringEquals = { "kms:ViaService" = "dynamodb.eu-central-1.amazonaws.com" } }
    }))
    error_message = "Callers of an encrypted table need its key, through DynamoDB."
  }
}

run "a_vendor_with_a_wildcard_is_refused" {
  command = plan

  module {
    source = "./modules/caller-policy"
  }

  variables {
    vendors = ["open*"]
  }

  expect_failures = [var.vendors]
}

run "a_vendor_that_is_a_kind_of_row_is_refused" {
  command = plan

  module {
    source = "./modules/caller-policy"
  }

  variables {
    vendors = ["lease"]
  }

  expect_failures = [var.vendors]
}

run "no_vendor_is_refused" {
  command = plan

  module {
    source = "./modules/caller-policy"
  }

  variables {
    vendors = []
  }

  expect_failures = [var.vendors]
}

run "a_policy_that_iam_does_not_take_is_refused" {
  command = plan

  module {
    source = "./modules/caller-policy"
  }

  variables {
    vendors = [for n in range(60) : "a-vendor-with-a-long-name-${n}"]
  }

  expect_failures = [aws_iam_policy.caller]
}
