mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment            = "pre"
  function_name          = "the-function"
  table_name             = "the-table"
  dead_letter_queue_name = "the-queue"
  critical_topic_arns    = ["arn:aws:sns:eu-central-1:111122223333:now"]
  warning_topic_arns     = ["arn:aws:sns:eu-central-1:111122223333:tomorrow"]
  runbook_url            = "https://example.com/operations.md"
  installed_at           = "2026-03-01T00:30:00Z"
}

run "each_alarm_watches_what_its_name_says" {
  module {
    source = "./modules/alarms"
  }

  # Name, metric, dimension, and when it goes off: statistic, comparison, threshold, period, how many of how
  # many, and what silence means.
  assert {
    condition = {
      for name, a in aws_cloudwatch_metric_alarm.this : name => join(" ", [
        "${a.namespace}/${a.metric_name}",
        join(",", [for k, v in a.dimensions : "${k}=${v}"]),
        a.statistic, a.comparison_operator, a.threshold, "${a.period}s",
        "${a.datapoints_to_alarm}/${a.evaluation_periods}", a.treat_missing_data,
      ])
      } == {
      reconciler-errors  = "AWS/Lambda/Errors FunctionName=the-function Sum GreaterThanOrEqualToThreshold 1 300s 2/3 notBreaching"
      drift              = "Sluice/Drift Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 ignore"
      leak               = "Sluice/LeakSuspected Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 ignore"
      expired-but-alive  = "Sluice/ExpiredButAlive Environment=pre Sum GreaterThanOrEqualToThreshold 1 900s 1/1 ignore"
      clock-offset       = "Sluice/ClockOffset Environment=pre Maximum GreaterThanThreshold 1000 900s 1/1 ignore"
      already-capped     = "Sluice/AlreadyCapped Environment=pre Minimum GreaterThanOrEqualToThreshold 1 900s 4/4 ignore"
      restored-slots     = "Sluice/RestoredSlots Environment=pre Sum GreaterThanOrEqualToThreshold 10 900s 4/4 ignore"
      unparsable-rows    = "Sluice/Unparsable Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 ignore"
      unfinished-sweeps  = "Sluice/SegmentsUnscanned Environment=pre Minimum GreaterThanOrEqualToThreshold 1 900s 4/4 ignore"
      unreadable-buckets = "Sluice/UnreadableBuckets Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 ignore"
      refused-leases     = "Sluice/Refused Environment=pre Maximum GreaterThanThreshold 0 900s 1/1 ignore"
      leases-left        = "Sluice/Left Environment=pre Minimum GreaterThanOrEqualToThreshold 1 900s 4/4 ignore"
      deadline-hit       = "Sluice/DeadlineHit Environment=pre Minimum GreaterThanOrEqualToThreshold 1 900s 4/4 ignore"
      dead-letters       = "AWS/SQS/NumberOfMessagesSent QueueName=the-queue Sum GreaterThanThreshold 0 300s 2/3 notBreaching"
      caller-refusals    = "Sluice/CallerRefusals Environment=pre Sum GreaterThanOrEqualToThreshold 1000 900s 4/4 ignore"
      refusals           = "Sluice/Refusals Environment=the-table Sum GreaterThanOrEqualToThreshold 1000 900s 4/4 notBreaching"
      vendor-refusals    = "Sluice/VendorRefusals Environment=the-table Sum GreaterThanThreshold 10 900s 1/1 notBreaching"
      shedding           = "Sluice/Shed Environment=the-table Sum GreaterThanOrEqualToThreshold 1 300s 3/3 notBreaching"
      dynamodb-faltered  = "Sluice/Unavailable Environment=the-table Sum GreaterThanThreshold 0 900s 1/1 notBreaching"
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
      one([for q in aws_cloudwatch_metric_alarm.throttles.metric_query :
      q.expression if q.return_data == true]) == "SUM(FILL(METRICS(), 0))"
      && toset([
        for q in aws_cloudwatch_metric_alarm.throttles.metric_query : join(" ", [
          q.id, one(q.metric).namespace, one(q.metric).metric_name, one(q.metric).dimensions.TableName,
          one(q.metric).stat, one(q.metric).period,
        ]) if length(q.metric) == 1
        ]) == toset([
        "reads AWS/DynamoDB ReadThrottleEvents the-table Sum 300",
        "writes AWS/DynamoDB WriteThrottleEvents the-table Sum 300",
      ])
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

# CloudWatch ignores missing data of AWS/DynamoDB: without FILL the alarm would go off once, and never end.
run "a_hot_key_is_an_alarm_that_ends" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.hot_key.metric_query :
      q.expression if q.return_data == true]) == "FILL(key, 0)"
      && one([
        for q in aws_cloudwatch_metric_alarm.hot_key.metric_query : join(" ", [
          one(q.metric).namespace, one(q.metric).metric_name, one(q.metric).dimensions.TableName,
          one(q.metric).stat, one(q.metric).period,
        ]) if length(q.metric) == 1
      ]) == "AWS/DynamoDB WriteKeyRangeThroughputThrottleEvents the-table Sum 300"
      && aws_cloudwatch_metric_alarm.hot_key.comparison_operator == "GreaterThanThreshold"
      && aws_cloudwatch_metric_alarm.hot_key.threshold == 0
      && aws_cloudwatch_metric_alarm.hot_key.datapoints_to_alarm == 1
      && aws_cloudwatch_metric_alarm.hot_key.evaluation_periods == 2
    )
    error_message = "A key that is throttled in one of two periods is an alarm: the newest may not have arrived yet."
  }
}

# 1 March 2026, 00:30 UTC is 1772325000; a quarter of an hour and three intervals later the first sweep is
# due.
run "no_sweep_waits_for_the_first_sweep_and_then_for_three" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.no_sweep.metric_query :
        q.expression
      if q.return_data == true]) == "IF(EPOCH(TIME_SERIES(1)) < ${1772325000 + 900 + 900}, 1, FILL(sweeps, 0))"
      && one([
        for q in aws_cloudwatch_metric_alarm.no_sweep.metric_query : join(" ", [
          q.id, one(q.metric).namespace, one(q.metric).metric_name, one(q.metric).dimensions.Environment,
          one(q.metric).stat, one(q.metric).period,
        ]) if length(q.metric) == 1
      ]) == "sweeps Sluice Sweeps pre Sum 300"
      && aws_cloudwatch_metric_alarm.no_sweep.comparison_operator == "LessThanThreshold"
      && aws_cloudwatch_metric_alarm.no_sweep.threshold == 1
      && aws_cloudwatch_metric_alarm.no_sweep.datapoints_to_alarm == 3
      && aws_cloudwatch_metric_alarm.no_sweep.evaluation_periods == 3
      && aws_cloudwatch_metric_alarm.no_sweep.treat_missing_data == "breaching"
    )
    error_message = "Three intervals without a sweep are an alarm, silence too, but not before the first sweep is due."
  }
}

# With a state of its own: the first plan's time stays.
run "a_leap_year_has_its_day" {
  state_key = "leap"

  module {
    source = "./modules/alarms"
  }

  variables {
    installed_at = "2028-12-31T23:59:00Z"
  }

  assert {
    condition = (
      strcontains(one([for q in aws_cloudwatch_metric_alarm.no_sweep.metric_query :
      q.expression if q.return_data == true]), "< ${1861919940 + 1800},")
    )
    error_message = "The last minute of 2028 is 1861919940."
  }
}

run "a_time_with_an_offset_is_refused" {
  command = plan

  module {
    source = "./modules/alarms"
  }

  variables {
    installed_at = "2026-03-01T01:30:00+01:00"
  }

  expect_failures = [var.installed_at]
}

run "the_time_of_the_first_plan_stays" {
  module {
    source = "./modules/alarms"
  }

  variables {
    installed_at = "2027-01-01T00:00:00Z"
  }

  assert {
    condition = (
      strcontains(one([for q in aws_cloudwatch_metric_alarm.no_sweep.metric_query :
      q.expression if q.return_data == true]), "< ${1772325000 + 1800},")
    )
    error_message = "A later apply begins no second grace."
  }
}

run "a_slow_schedule_is_no_alarm_for_ever" {
  module {
    source = "./modules/alarms"
  }

  variables {
    sweep_interval_seconds    = 3600
    restored_slots_threshold  = 77
    refusals_threshold        = 88
    vendor_refusals_threshold = 99
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.no_sweep.metric_query :
      one(q.metric).period if length(q.metric) == 1]) == 3600
      && {
        for name, a in aws_cloudwatch_metric_alarm.this : name => a.period
        if contains(["reconciler-errors", "dead-letters", "drift", "restored-slots", "deadline-hit"], name)
        } == {
        reconciler-errors = 3600
        dead-letters      = 3600
        drift             = 3600
        restored-slots    = 3600
        deadline-hit      = 3600
      }
    )
    error_message = "Periods follow the schedule: each holds at least one sweep, and what lasts is seen in four."
  }

  assert {
    condition = alltrue([
      for name, words in {
        restored-slots  = "In each of four periods of 60 minutes, sweeps have restored 77 or more slots"
        caller-refusals = "In each of four periods of 60 minutes, callers have been refused slots or shed requests 88 times"
        refusals        = "In each of four periods of 15 minutes, callers that print metrics were refused 88 times"
        vendor-refusals = "more than 99 times in 15 minutes"
        deadline-hit    = "For 240 minutes"
      } : strcontains(aws_cloudwatch_metric_alarm.this[name].alarm_description, words)
    ])
    error_message = "The text of an alarm has the alarm's own threshold and period."
  }

  # CloudWatch: a period is a day at most, and all periods together seven days; a day if a period is below an
  # hour.
  assert {
    condition = alltrue([
      for a in values(aws_cloudwatch_metric_alarm.this) :
      a.period <= 86400
      && a.period % 60 == 0
      && a.period * a.evaluation_periods <= (a.period >= 3600 ? 604800 : 86400)
    ])
    error_message = "CloudWatch does not take such a period."
  }
}

run "a_schedule_of_a_day_fits_into_cloudwatch" {
  module {
    source = "./modules/alarms"
  }

  variables {
    sweep_interval_seconds = 86400
  }

  assert {
    condition = (
      alltrue([for a in values(aws_cloudwatch_metric_alarm.this) : a.period <= 86400
      && a.period * a.evaluation_periods <= 604800])
    )
    error_message = "CloudWatch does not take such a period."
  }
}

run "dynamodbs_own_failures_are_added_up_over_operations" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.system_errors.metric_query :
      q.expression if q.return_data == true]) == "SUM(FILL(METRICS(), 0))"
      && toset([
        for q in aws_cloudwatch_metric_alarm.system_errors.metric_query : join(" ", [
          one(q.metric).namespace, one(q.metric).metric_name, one(q.metric).dimensions.TableName,
          one(q.metric).dimensions.Operation, one(q.metric).stat, one(q.metric).period,
        ]) if length(q.metric) == 1
        ]) == toset([
        for operation in ["GetItem", "BatchGetItem", "UpdateItem", "PutItem", "DeleteItem", "Scan", "TransactWriteItems"] :
        "AWS/DynamoDB SystemErrors the-table ${operation} Sum 60"
      ])
      && aws_cloudwatch_metric_alarm.system_errors.comparison_operator == "GreaterThanOrEqualToThreshold"
      && aws_cloudwatch_metric_alarm.system_errors.threshold == 10
      && aws_cloudwatch_metric_alarm.system_errors.datapoints_to_alarm == 5
      && aws_cloudwatch_metric_alarm.system_errors.evaluation_periods == 8
      && aws_cloudwatch_metric_alarm.system_errors.treat_missing_data == "notBreaching"
    )
    error_message = "Five of eight minutes of DynamoDB's own failures are an alarm, whatever the operation: the newest may be late."
  }
}

run "dynamodb_out_for_callers_is_five_minutes_of_ten" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = (
      one([for q in aws_cloudwatch_metric_alarm.dynamodb_unavailable.metric_query :
      q.expression if q.return_data == true]) == "SUM(FILL(METRICS(), 0))"
      && {
        for q in aws_cloudwatch_metric_alarm.dynamodb_unavailable.metric_query : q.id => join(" ", [
          one(q.metric).namespace, one(q.metric).metric_name, one(q.metric).dimensions.Environment,
          one(q.metric).stat, one(q.metric).period,
        ]) if length(q.metric) == 1
        } == {
        unavailable = "Sluice Unavailable the-table Sum 60"
        out         = "Sluice DynamoDbOut the-table Sum 60"
      }
      && aws_cloudwatch_metric_alarm.dynamodb_unavailable.comparison_operator == "GreaterThanThreshold"
      && aws_cloudwatch_metric_alarm.dynamodb_unavailable.threshold == 0
      && aws_cloudwatch_metric_alarm.dynamodb_unavailable.datapoints_to_alarm == 5
      && aws_cloudwatch_metric_alarm.dynamodb_unavailable.evaluation_periods == 10
      && aws_cloudwatch_metric_alarm.dynamodb_unavailable.treat_missing_data == "notBreaching"
    )
    error_message = "Calls without an answer and processes that only probe are added up, and an account without such callers is quiet."
  }
}

# `ontopix-vendor-buckets-prod` is prod for them; any other table is its own name.
run "callers_name_the_environment_by_their_table" {
  module {
    source = "./modules/alarms"
  }

  variables {
    environment = "prod"
    table_name  = "ontopix-vendor-buckets-prod"
  }

  assert {
    condition     = output.settings.environment_of_callers == "prod" && output.settings.environment == "prod"
    error_message = "Callers of the usual table print its environment."
  }
}

run "callers_of_a_table_with_a_prefix_print_its_whole_name" {
  module {
    source = "./modules/alarms"
  }

  variables {
    name_prefix = "acme-"
    table_name  = "acme-ontopix-vendor-buckets-pre"
  }

  assert {
    condition = (
      output.settings.environment_of_callers == "acme-ontopix-vendor-buckets-pre"
      && output.settings.environment == "acme-pre"
    )
    error_message = "Else the alarms of callers would look at a metric that nobody prints."
  }
}

run "every_alarm_is_named_explained_and_heard" {
  module {
    source = "./modules/alarms"
  }

  assert {
    condition = output.names == tolist([
      "sluice-pre-already-capped",
      "sluice-pre-caller-refusals",
      "sluice-pre-clock-offset",
      "sluice-pre-dead-letters",
      "sluice-pre-deadline-hit",
      "sluice-pre-drift",
      "sluice-pre-dynamodb-faltered",
      "sluice-pre-dynamodb-unavailable",
      "sluice-pre-expired-but-alive",
      "sluice-pre-hot-key",
      "sluice-pre-leak",
      "sluice-pre-leases-left",
      "sluice-pre-no-sweep",
      "sluice-pre-reconciler-errors",
      "sluice-pre-refusals",
      "sluice-pre-refused-leases",
      "sluice-pre-restored-slots",
      "sluice-pre-shedding",
      "sluice-pre-system-errors",
      "sluice-pre-throttles",
      "sluice-pre-unfinished-sweeps",
      "sluice-pre-unparsable-rows",
      "sluice-pre-unreadable-buckets",
      "sluice-pre-vendor-refusals",
    ])
    error_message = "Alarms are named sluice-{env}-{what}, and these are all of them."
  }

  assert {
    condition     = length(output.arns) == 24
    error_message = "Every alarm is handed to the dashboard."
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [
        aws_cloudwatch_metric_alarm.no_sweep,
        aws_cloudwatch_metric_alarm.throttles,
        aws_cloudwatch_metric_alarm.hot_key,
        aws_cloudwatch_metric_alarm.system_errors,
        aws_cloudwatch_metric_alarm.dynamodb_unavailable,
      ]) :
      length(a.alarm_description) > 80 && length(a.alarm_description) <= 1024
    ])
    error_message = "Each alarm says what it means and what to do, in what CloudWatch takes (1,024 characters)."
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [
        aws_cloudwatch_metric_alarm.no_sweep,
        aws_cloudwatch_metric_alarm.throttles,
        aws_cloudwatch_metric_alarm.hot_key,
        aws_cloudwatch_metric_alarm.system_errors,
        aws_cloudwatch_metric_alarm.dynamodb_unavailable,
      ]) :
      endswith(a.alarm_description, " Runbook: https://example.com/operations.md#${trimprefix(a.alarm_name, "sluice-pre-")}")
    ])
    error_message = "Each alarm leads to its own section of the runbook."
  }

  # What cannot wait is named here, and nowhere by accident.
  assert {
    condition = {
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [
        aws_cloudwatch_metric_alarm.no_sweep,
        aws_cloudwatch_metric_alarm.throttles,
        aws_cloudwatch_metric_alarm.hot_key,
        aws_cloudwatch_metric_alarm.system_errors,
        aws_cloudwatch_metric_alarm.dynamodb_unavailable,
      ]) :
      trimprefix(a.alarm_name, "sluice-pre-") => one(a.alarm_actions)
      if one(a.alarm_actions) != "arn:aws:sns:eu-central-1:111122223333:tomorrow"
      } == {
      for name in ["no-sweep", "unreadable-buckets", "system-errors", "dynamodb-unavailable"] :
      name => "arn:aws:sns:eu-central-1:111122223333:now"
    }
    error_message = "An alarm tells the wrong topic."
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [
        aws_cloudwatch_metric_alarm.no_sweep,
        aws_cloudwatch_metric_alarm.throttles,
        aws_cloudwatch_metric_alarm.hot_key,
        aws_cloudwatch_metric_alarm.system_errors,
        aws_cloudwatch_metric_alarm.dynamodb_unavailable,
      ]) :
      a.actions_enabled && length(a.alarm_actions) == 1 && a.ok_actions == a.alarm_actions
    ])
    error_message = "Each alarm tells the topics when it begins and when it ends."
  }
}

run "what_can_be_chosen_arrives" {
  module {
    source = "./modules/alarms"
  }

  variables {
    critical_topic_arns         = []
    warning_topic_arns          = []
    actions_enabled             = false
    restored_slots_threshold    = 3
    drift_threshold             = 4
    leak_threshold              = 5
    expired_but_alive_threshold = 6
    clock_offset_threshold_ms   = 700
    refusals_threshold          = 8
    vendor_refusals_threshold   = 9
    shed_threshold              = 11
  }

  assert {
    condition = alltrue([
      for a in concat(values(aws_cloudwatch_metric_alarm.this), [
        aws_cloudwatch_metric_alarm.no_sweep,
        aws_cloudwatch_metric_alarm.throttles,
        aws_cloudwatch_metric_alarm.hot_key,
        aws_cloudwatch_metric_alarm.system_errors,
        aws_cloudwatch_metric_alarm.dynamodb_unavailable,
      ]) :
      !a.actions_enabled && length(a.alarm_actions) == 0 && length(a.ok_actions) == 0
    ])
    error_message = "Alarms without topics and without actions are possible."
  }

  assert {
    condition = { for name, a in aws_cloudwatch_metric_alarm.this :
      name => a.threshold if a.threshold > 1 } == {
      restored-slots    = 3
      drift             = 4
      leak              = 5
      expired-but-alive = 6
      clock-offset      = 700
      caller-refusals   = 8
      refusals          = 8
      vendor-refusals   = 9
      shedding          = 11
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
    critical_topic_arns = ["the-topic"]
    warning_topic_arns  = ["the-topic"]
  }

  expect_failures = [var.critical_topic_arns, var.warning_topic_arns]
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
    refusals_threshold          = 0
    vendor_refusals_threshold   = -1
    shed_threshold              = 0
  }

  expect_failures = [
    var.restored_slots_threshold,
    var.drift_threshold,
    var.leak_threshold,
    var.expired_but_alive_threshold,
    var.clock_offset_threshold_ms,
    var.refusals_threshold,
    var.vendor_refusals_threshold,
    var.shed_threshold,
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

run "a_runbook_with_an_anchor_and_an_interval_of_seconds_are_refused" {
  command = plan

  module {
    source = "./modules/alarms"
  }

  variables {
    runbook_url             = "https://example.com/operations.md#alarms"
    sweep_interval_seconds  = 90
    system_errors_threshold = 0
  }

  expect_failures = [var.runbook_url, var.sweep_interval_seconds, var.system_errors_threshold]
}
