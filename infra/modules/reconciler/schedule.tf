locals {
  # Number and unit of a rate(), null for a cron().
  rate = try(regex("^rate\\(([0-9]+) (minute|hour|day)s?\\)$", var.schedule_expression), null)

  unit_seconds     = { minute = 60, hour = 3600, day = 86400 }
  interval_seconds = local.rate != null ? tonumber(local.rate[0]) * local.unit_seconds[local.rate[1]] : var.longest_gap_minutes * 60
}

resource "aws_cloudwatch_event_rule" "schedule" {
  name                = local.name
  description         = "Starts the sweep."
  schedule_expression = var.schedule_expression
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "reconciler" {
  rule = aws_cloudwatch_event_rule.schedule.name
  arn  = aws_lambda_alias.live.arn

  # As for the function itself: an event that cannot be delivered is worth nothing once the next one is due.
  retry_policy {
    maximum_retry_attempts       = 0
    maximum_event_age_in_seconds = 300
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }

  # Without the right to start the function, the first event would be a dead letter.
  depends_on = [aws_lambda_permission.schedule]
}

resource "aws_lambda_permission" "schedule" {
  statement_id  = "schedule"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.reconciler.function_name
  qualifier     = aws_lambda_alias.live.name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.schedule.arn
}

# Events of runs that failed, and of runs that never started. Nobody replays them: they are there to be counted, and read.
resource "aws_sqs_queue" "dead_letters" {
  name                      = "${local.name}-dead-letters"
  message_retention_seconds = 14 * 24 * 60 * 60
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

# EventBridge writes to the queue by the queue's own policy; Lambda does by the function's role.
resource "aws_sqs_queue_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.url

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "UndeliveredEvents"
      Effect    = "Allow"
      Principal = { Service = "events.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.dead_letters.arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.schedule.arn } }
    }]
  })
}
