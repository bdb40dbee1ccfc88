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
