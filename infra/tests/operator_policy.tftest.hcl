mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "pre"
  region      = "eu-central-1"
  table_arn   = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
}

run "an_operator_changes_buckets_and_a_reader_nothing" {
  module {
    source = "./modules/operator-policy"
  }

  # The whole documents, so that nothing can be added unseen.
  assert {
    condition = jsondecode(aws_iam_policy.operator.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = [
        {
          Sid      = "Look"
          Effect   = "Allow"
          Action   = ["dynamodb:GetItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
        },
        {
          Sid      = "Limits"
          Effect   = "Allow"
          Action   = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringNotLike" = { "dynamodb:LeadingKeys" = ["lease#*", "load#*", "ticket#*"] }
            Null                         = { "dynamodb:LeadingKeys" = "false" }
          }
        },
        {
          Sid      = "Remove"
          Effect   = "Allow"
          Action   = ["dynamodb:DeleteItem"]
          Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
          Condition = {
            "ForAllValues:StringNotLike" = {
              "dynamodb:LeadingKeys" = ["lease#*", "ticket#*", "load#directory", "load#heal", "load#sweeps"]
            }
            Null = { "dynamodb:LeadingKeys" = "false" }
          }
        },
      ]
    }))
    error_message = "The operator's rights are not the ones that were agreed."
  }

  assert {
    condition = jsondecode(aws_iam_policy.reader.policy) == jsondecode(jsonencode({
      Version = "2012-10-17"
      Statement = [{
        Sid    = "Read"
        Effect = "Allow"
        Action = [
          "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive",
          "dynamodb:DescribeContinuousBackups",
        ]
        Resource = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table"
      }]
    }))
    error_message = "The reader's rights are not the ones that were agreed."
  }

  assert {
    condition = (
      [aws_iam_policy.operator.name, aws_iam_policy.reader.name] == ["sluice-operator-pre", "sluice-reader-pre"]
    )
    error_message = "The policies are named after what they are for, and the environment."
  }
}

run "a_key_is_used_through_dynamodb_alone" {
  module {
    source = "./modules/operator-policy"
  }

  variables {
    kms_key_arn = "arn:aws:kms:eu-central-1:111122223333:key/the-key"
  }

  assert {
    condition = alltrue([
      for policy in [aws_iam_policy.operator.policy, aws_iam_policy.reader.policy] :
      reverse(jsondecode(policy).Statement)[0].Condition == jsondecode(jsonencode({
        StringEquals = { "kms:ViaService" = "dynamodb.eu-central-1.amazonaws.com" }
      }))
    ])
    error_message = "The key may be used through DynamoDB, and in no other way."
  }
}
