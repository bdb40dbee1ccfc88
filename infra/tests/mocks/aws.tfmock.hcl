# What AWS would answer, as far as other resources are built from it. Elsewhere a mocked provider makes random
# strings up.

mock_resource "aws_dynamodb_table" {
  defaults = { arn = "arn:aws:dynamodb:eu-central-1:111122223333:table/the-table" }
}

mock_resource "aws_iam_role" {
  defaults = { arn = "arn:aws:iam::111122223333:role/the-role" }
}

mock_resource "aws_iam_policy" {
  defaults = { arn = "arn:aws:iam::111122223333:policy/the-policy" }
}

mock_resource "aws_lambda_function" {
  defaults = {
    arn     = "arn:aws:lambda:eu-central-1:111122223333:function:the-function"
    version = "7"
  }
}

mock_resource "aws_lambda_alias" {
  defaults = { arn = "arn:aws:lambda:eu-central-1:111122223333:function:the-function:live" }
}

mock_resource "aws_cloudwatch_event_rule" {
  defaults = { arn = "arn:aws:events:eu-central-1:111122223333:rule/the-rule" }
}

mock_resource "aws_sqs_queue" {
  defaults = {
    arn = "arn:aws:sqs:eu-central-1:111122223333:the-queue"
    url = "https://sqs.eu-central-1.amazonaws.com/111122223333/the-queue"
  }
}

mock_resource "aws_cloudwatch_metric_alarm" {
  defaults = { arn = "arn:aws:cloudwatch:eu-central-1:111122223333:alarm:the-alarm" }
}

mock_data "aws_partition" {
  defaults = {
    partition  = "aws"
    dns_suffix = "amazonaws.com"
  }
}
