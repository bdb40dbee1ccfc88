mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment            = "pre"
  function_name          = "the-function"
  table_name             = "the-table"
  dead_letter_queue_name = "the-queue"
  topic_arns             = ["arn:aws:sns:eu-central-1:111122223333:the-topic"]
}

run "each_alarm_watches_what_its_name_says" {
  module {
    source = "./modules/alarms"
  }

  # Name, metric, dimension, and when it goes off: statistic, comparison, threshold, period, how many of how many, and what silence means.
  assert {
    condition = {
      for name, a in aws_cloudwatch_metric_alarm.this : name => join(" ", [
        "${a.namespace}/${a.metric_name}",
        join(",", [for k, v in a.dimensions : "${k}=${v}"]),
        a.statistic, a.comparison_operator, a.threshold, "${a.period}s", "${a.datapoints_to_alarm}/${a.evaluation_periods}", a.treat_missing_data,
      ])
      } == {
      reconciler-errors = "AWS/Lambda/Errors FunctionName=the-function Sum GreaterThanOrEqualToThreshold 1 300s 1/1 notBreaching"
      no-sweep          = "Sluice/Sweeps Environment=pre Sum LessThanThreshold 1 900s 1/1 breaching"
      drift             = "Sluice/Drift Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 notBreaching"
      leak              = "Sluice/LeakSuspected Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 notBreaching"
      expired-but-alive = "Sluice/ExpiredButAlive Environment=pre Sum GreaterThanOrEqualToThreshold 1 900s 1/1 notBreaching"
      clock-offset      = "Sluice/ClockOffset Environment=pre Maximum GreaterThanThreshold 1000 900s 1/1 notBreaching"
      already-capped    = "Sluice/AlreadyCapped Environment=pre Minimum GreaterThanOrEqualToThreshold 1 3600s 1/1 notBreaching"
      restored-slots    = "Sluice/RestoredSlots Environment=pre Sum GreaterThanOrEqualToThreshold 10 900s 4/4 notBreaching"
      unparsable-rows   = "Sluice/Unparsable Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 notBreaching"
      unfinished-sweeps = "Sluice/SegmentsUnscanned Environment=pre Minimum GreaterThanOrEqualToThreshold 1 3600s 1/1 notBreaching"
      dead-letters      = "AWS/SQS/ApproximateNumberOfMessagesVisible QueueName=the-queue Maximum GreaterThanThreshold 0 300s 1/1 notBreaching"
      hot-key           = "AWS/DynamoDB/WriteKeyRangeThroughputThrottleEvents TableName=the-table Sum GreaterThanThreshold 0 300s 1/1 notBreaching"
    }
    error_message = "An alarm watches something else than it should."
  }
}

run "throttled_reads_and_writes_are_added_up" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.throttles.metric_query : q.expression if q.return_data == true]) == "FILL(reads, 0) + FILL(writes, 0)"
      && { for q in aws_cloudwatch_metric_alarm.throttles.metric_query : q.id => one(q.metric).metric_name if length(q.metric) == 1 } == { reads = "ReadThrottleEvents", writes = "WriteThrottleEvents" }
      && alltrue([for q in aws_cloudwatch_metric_alarm.throttles.metric_query : one(q.metric).dimensions.TableName == "the-table" && one(q.metric).namespace == "AWS/DynamoDB" && one(q.metric).stat == "Sum" && one(q.metric).period == 300 if length(q.metric) == 1])
    )
    error_message = "Reads and writes that the table throttled are added up."
  }

  assert {
    condition = (
      aws_cloudwatch_metric_alarm.throttles.comparison_operator == "GreaterThanThreshold"
      && aws_cloudwatch_metric_alarm.throttles.threshold == 0
      && aws_cloudwatch_metric_alarm.throttles.datapoints_to_alarm == 2
      && aws_cloudwatch_metric_alarm.throttles.evaluation_periods == 3
      && aws_cloudwatch_metric_alarm.throttles.treat_missing_data == "notBreaching"
    )
    error_message = "Throttling that lasts is an alarm; a moment of it, as when a partition is split, is not."
  }
}

run "every_alarm_is_named_explained_and_heard" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = output.names == tolist([
      "sluice-pre-already-capped", "sluice-pre-clock-offset", "sluice-pre-dead-letters", "sluice-pre-drift",
      "sluice-pre-expired-but-alive", "sluice-pre-hot-key", "sluice-pre-leak", "sluice-pre-no-sweep", "sluice-pre-reconciler-errors",
      "sluice-pre-restored-slots", "sluice-pre-throttles", "sluice-pre-unfinished-sweeps", "sluice-pre-unparsable-rows",
    ])
    error_message = "Alarms are named sluice-{env}-{what}, and these are all of them."
  }

  assert {
    condition     = length(output.arns) == 13
    error_message = "Every alarm is handed to the dashboard."
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [aws_cloudwatch_metric_alarm.throttles]) :
      length(a.alarm_description) > 80 && length(a.alarm_description) <= 1024
    ])
    error_message = "Each alarm says what it means and what to do, in what CloudWatch takes (1,024 characters)."
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [aws_cloudwatch_metric_alarm.throttles]) :
      a.actions_enabled
      && a.alarm_actions == toset(["arn:aws:sns:eu-central-1:111122223333:the-topic"])
      && a.ok_actions == toset(["arn:aws:sns:eu-central-1:111122223333:the-topic"])
    ])
    error_message = "Each alarm tells the topics when it begins and when it ends."
  }
}

run "what_can_be_chosen_arrives" {
  module {
    source = "./modules/alarms"
  }

  variables {
    topic_arns                  = []
    actions_enabled             = false
    restored_slots_threshold    = 3
    drift_threshold             = 4
    leak_threshold              = 5
    expired_but_alive_threshold = 6
    clock_offset_threshold_ms   = 700
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [aws_cloudwatch_metric_alarm.throttles]) :
      !a.actions_enabled && length(a.alarm_actions) == 0 && length(a.ok_actions) == 0
    ])
    error_message = "Alarms without topics and without actions are possible."
  }

  assert {
    condition = { for name, a in aws_cloudwatch_metric_alarm.this : name => a.threshold if a.threshold > 1 } == {
      restored-slots    = 3
      drift             = 4
      leak              = 5
      expired-but-alive = 6
      clock-offset      = 700
    }
    error_message = "A threshold that was chosen is not its alarm's."
  }
}

run "a_topic_that_is_no_arn_is_refused" {
  command = plan

  module {
    source = "./modules/alarms"
  }

  variables {
    topic_arns = ["the-topic"]
  }

  expect_failures = [var.topic_arns]
}

run "thresholds_that_are_always_met_are_refused" {
  command = plan

  module {
    source = "./modules/alarms"
  }

  variables {
    restored_slots_threshold    = 0
    drift_threshold             = -1
    leak_threshold              = -1
    expired_but_alive_threshold = 0
    clock_offset_threshold_ms   = 0
  }

  expect_failures = [
    var.restored_slots_threshold,
    var.drift_threshold,
    var.leak_threshold,
    var.expired_but_alive_threshold,
    var.clock_offset_threshold_ms,
  ]
}

run "a_clock_that_no_sweep_allows_for_is_refused" {
  command = plan

  module {
    source = "./modules/alarms"
  }

  variables {
    clock_offset_threshold_ms = 2001
  }

  expect_failures = [var.clock_offset_threshold_ms]
}
