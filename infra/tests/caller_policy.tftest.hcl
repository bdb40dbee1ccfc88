mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "pre"
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
          Action   = ["dynamodb:GetItem", "dynamodb:UpdateItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
        },
        {
          Sid      = "Leases"
          Effect   = "Allow"
          Action   = ["dynamodb:PutItem", "dynamodb:DeleteItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*"] }
            Null                      = { "dynamodb:LeadingKeys" = "false" }
          }
        },
      ]
    }))
    error_message = "The caller's rights are not the ones that were agreed."
  }

  assert {
    condition     = aws_iam_policy.caller.name == "sluice-caller-pre" && aws_iam_policy.sweeping_caller.name == "sluice-sweeping-caller-pre"
    error_message = "The policies are named after what they are for, and the environment."
  }
}

run "a_sweeping_caller_may_also_scan_and_read_and_no_more" {
  module {
    source = "./modules/caller-policy"
  }

  assert {
    condition = jsondecode(aws_iam_policy.sweeping_caller.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = concat(jsondecode(aws_iam_policy.caller.policy).Statement, [{
        Sid      = "Sweep"
        Effect   = "Allow"
        Action   = ["dynamodb:Scan", "dynamodb:BatchGetItem"]
        Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
      }])
    }))
    error_message = "A sweeping caller has a caller's rights, Scan and BatchGetItem."
  }

  assert {
    condition     = output.caller_policy_json == aws_iam_policy.caller.policy && output.sweeping_caller_policy_json == aws_iam_policy.sweeping_caller.policy
    error_message = "The documents that are handed out are the policies themselves."
  }
}
