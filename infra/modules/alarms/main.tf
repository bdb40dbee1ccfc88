# Two ways to say "for an hour". The reconciler reports one value a sweep, so the minimum over an hour is above zero only if every
# sweep in it had something to report. Where a quiet sweep in between should not hide a trend, four sums of 15 minutes are compared.
#
# Sweeps start five minutes apart, give or take some seconds, so a period of five minutes may now and then hold none, or two.
locals {
  of_environment = { Environment = var.environment }
  of_function    = { FunctionName = var.function_name }
  of_table       = { TableName = var.table_name }
  of_queue       = { QueueName = var.dead_letter_queue_name }

  alarms = {
    reconciler-errors = {
      description = "A run of the reconciler failed or timed out; the next one does its work. If it goes on, read the function's log: the table's name, the role's rights and DynamoDB's answers are what can go wrong."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = local.of_function
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = 300
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    # A run that fails publishes a zero, and one that dies or never begins nothing at all: both are the alarm.
    no-sweep = {
      description = "No sweep has finished for 15 minutes, so slots of crashed callers come back only if a refused caller finds them. Look for a disabled rule, a throttled function or a failing one; until it runs again, `sluice reconcile --once` does the work from anywhere."
      namespace   = "Sluice"
      metric      = "Sweeps"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "LessThanThreshold"
      threshold   = 1
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "breaching"
    }

    # One finding is enough: a sweep claims no more than is true, and corrects once a second one agrees.
    drift = {
      description = "A sweep found a concurrency bucket that does not add up: slots were lost or minted in a way that no lease explains. The next sweep that finds the drift too corrects the bucket (Corrected); find the client that causes it with the dashboard's drift by dimension and the reconciler's log."
      namespace   = "Sluice"
      metric      = "Drift"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.drift_threshold
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    # What a sweep reports has lasted for 15 minutes already, so one finding is enough.
    leak = {
      description = "Slots of a concurrency bucket are taken, and for 15 minutes nothing was granted or given back there: holders hang and renew their leases, or slots leaked. See on the dashboard which dimension it is and in `sluice leases` who holds it; end the holders that hang. Two sweeps recount slots without a lease and give them back."
      namespace   = "Sluice"
      metric      = "LeakSuspected"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.leak_threshold
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    expired-but-alive = {
      description = "Holders found that their leases had ended while they were still calling the vendor, so the vendor saw more calls at once than the limit. See in their logs which callers (lease.gone, release.late): they stood still for longer than their leases, DynamoDB was out for that long, or they do not renew. Release before a process may freeze, or raise SLUICE_LEASE_TTL."
      namespace   = "Sluice"
      metric      = "ExpiredButAlive"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.expired_but_alive_threshold
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    # A sweep reports the least that its clock is off by, so that one finding is no accident of a slow reply.
    clock-offset = {
      description = "The reconciler's clock and DynamoDB's differ by more than the threshold. Sluice corrects its own time, so that limits and leases hold: sweeps allow for two seconds, and what is left of each caller's own offset after the correction widens what a rate bucket may grant. Only AWS can set Lambda's clock. If the offset lasts, run `sluice doctor` on the machines of callers, and see that they take their time from NTP (chrony)."
      namespace   = "Sluice"
      metric      = "ClockOffset"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.clock_offset_threshold_ms
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    already-capped = {
      description = "For an hour every sweep has met leases whose bucket was full already: callers gave the slots back and let their leases end as well. Harmless by itself; look for a client that gives slots back without deleting the lease."
      namespace   = "Sluice"
      metric      = "AlreadyCapped"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = 3600
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    restored-slots = {
      description = "For an hour the sweep has been restoring slots that nobody gave back: callers crash, time out, or acquire without releasing. See on the dashboard which dimension it is, and have its callers run their work in a slot rather than a bare acquire."
      namespace   = "Sluice"
      metric      = "RestoredSlots"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.restored_slots_threshold
      period      = 900
      periods     = 4
      datapoints  = 4
      missing     = "notBreaching"
    }

    unparsable-rows = {
      description = "The sweep met a row that it cannot read, and left it alone; a slot may be lost behind it. The reconciler's log names the key: find the client that wrote it, then correct or remove the row."
      namespace   = "Sluice"
      metric      = "Unparsable"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    unfinished-sweeps = {
      description = "For an hour no sweep has scanned the whole table, because of its deadline or throttling. What one sweep leaves the next may find, but slots come back late and nothing is recounted: see how many rows there are, and whether DynamoDB throttles."
      namespace   = "Sluice"
      metric      = "SegmentsUnscanned"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = 3600
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    dead-letters = {
      description = "An event for the reconciler failed or was never delivered, and lies in the queue of dead letters. Read it for the reason, then purge the queue: the runs since have done its work."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = local.of_queue
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = 300
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    # On demand there is no provisioned throughput to run out of: this is one key at the 1,000 write units a second that it can take.
    hot-key = {
      description = "A single key was written faster than one partition of DynamoDB takes (1,000 write units a second), so its callers wait or are refused. Contributor Insights on the table names it: let its callers share lanes in fewer, longer-lived processes, or split the limit into several buckets."
      namespace   = "AWS/DynamoDB"
      metric      = "WriteKeyRangeThroughputThrottleEvents"
      dimensions  = local.of_table
      statistic   = "Sum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = 300
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "sluice-${var.environment}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = each.value.period
  evaluation_periods  = each.value.periods
  datapoints_to_alarm = each.value.datapoints
  treat_missing_data  = each.value.missing

  actions_enabled = var.actions_enabled
  alarm_actions   = var.topic_arns
  ok_actions      = var.topic_arns
}

# By itself because it adds two metrics up. DynamoDB publishes either only when it throttles, so both are filled with zeros: else
# throttled reads would go unseen while no write is.
resource "aws_cloudwatch_metric_alarm" "throttles" {
  alarm_name          = "sluice-${var.environment}-throttles"
  alarm_description   = "DynamoDB has been throttling requests for ten minutes; clients back off and try again, so grants come late. See on the dashboard whether reads or writes, and whether the alarm for a hot key tells why; otherwise look at the account's limits."
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "throttles"
    expression  = "FILL(reads, 0) + FILL(writes, 0)"
    label       = "Throttled reads and writes"
    return_data = true
  }

  metric_query {
    id = "reads"

    metric {
      namespace   = "AWS/DynamoDB"
      metric_name = "ReadThrottleEvents"
      dimensions  = local.of_table
      stat        = "Sum"
      period      = 300
    }
  }

  metric_query {
    id = "writes"

    metric {
      namespace   = "AWS/DynamoDB"
      metric_name = "WriteThrottleEvents"
      dimensions  = local.of_table
      stat        = "Sum"
      period      = 300
    }
  }

  actions_enabled = var.actions_enabled
  alarm_actions   = var.topic_arns
  ok_actions      = var.topic_arns
}
