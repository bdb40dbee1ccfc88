# A reconciler reports one value a sweep, and nothing while it does not run. So periods follow the schedule,
# and silence never ends an alarm that a sweep began: `ignore` keeps its state, and `no-sweep` reports the
# silence. AWS itself publishes no zero for errors, throttles and messages: there silence is good news.
#
# Two ways to say "for an hour". Four minima of 15 minutes are above zero only if every sweep of the hour had
# something to report; one minimum of an hour would be, too, after a single sweep. Where a quiet sweep in between
# should not hide a trend, four sums of 15 minutes are compared.
#
# Sweeps start five minutes apart, give or take some seconds, so a period of five minutes may now and then hold none, or two.
#
# Callers that print metrics (SLUICE_METRICS=emf) print nothing while they have nothing to count, and most
# accounts have no such callers: there, too, silence is good news.
#
# CloudWatch ignores missing data of AWS/DynamoDB, whatever the alarm says: it stays as it is. So every alarm on
# such a metric fills silence with zeros itself, by an expression. A metric arrives a minute or two late, and
# FILL makes a zero of its newest period: so such an alarm never asks that all of its periods breach.
#
# Alarms with severity `critical` need action now, as docs/operations.md says; the others can wait.
locals {
  of_environment = { Environment = "${var.name_prefix}${var.environment}" }

  # Callers name the environment by their table: by its last part if that is the usual name, else by the whole
  # name (crates/sluice-sdk/src/telemetry/emf.rs).
  of_callers = { Environment = try(regex("^ontopix-vendor-buckets-(sandbox|pre|prod)$", var.table_name)[0], var.table_name) }

  of_function = { FunctionName = var.function_name }
  of_table    = { TableName = var.table_name }
  of_queue    = { QueueName = var.dead_letter_queue_name }

  # A period of CloudWatch is a day at most.
  interval = var.sweep_interval_seconds
  recent   = max(900, local.interval)

  # The same in the words of an alarm's text.
  of_recent  = "${local.recent / 60} minutes"
  of_lasting = "${4 * local.recent / 60} minutes"

  alarms = {
    reconciler-errors = {
      severity    = "warning"
      description = "Two of the last three runs of the reconciler failed or timed out. One failed run is no alarm: the next one does its work. Read the function's log: the table's name, the role's rights and DynamoDB's answers are what can go wrong."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = local.of_function
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = local.interval
      periods     = 3
      datapoints  = 2
      missing     = "notBreaching"
    }

    # One finding is enough: a sweep claims no more than is true, and corrects once a second one agrees.
    drift = {
      severity    = "warning"
      description = "A sweep found a concurrency bucket that does not add up: slots were lost or minted in a way that no lease explains. The next sweep that finds the drift too corrects the bucket (Corrected); find the client that causes it with the dashboard's drift by dimension and the reconciler's log."
      namespace   = "Sluice"
      metric      = "Drift"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.drift_threshold
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    # What a sweep reports has lasted for 15 minutes already, so one finding is enough.
    leak = {
      severity    = "warning"
      description = "Slots of a concurrency bucket are taken, and for 15 minutes nothing was granted or given back there: holders hang and renew their leases, or slots leaked. See on the dashboard which dimension it is and in `sluice leases` who holds it; end the holders that hang. Two sweeps recount slots without a lease and give them back."
      namespace   = "Sluice"
      metric      = "LeakSuspected"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.leak_threshold
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    expired-but-alive = {
      severity    = "warning"
      description = "Holders found that their leases had ended while they were still calling the vendor, so the vendor saw more calls at once than the limit. See in their logs which callers (lease.gone, release.late): they stood still for longer than their leases, DynamoDB was out for that long, or they do not renew. Release before a process may freeze, or raise SLUICE_LEASE_TTL."
      namespace   = "Sluice"
      metric      = "ExpiredButAlive"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.expired_but_alive_threshold
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    # A sweep reports the least that its clock is off by, so that one finding is no accident of a slow reply.
    clock-offset = {
      severity    = "warning"
      description = "The reconciler's clock and DynamoDB's differ by more than the threshold. Sluice corrects its own time, so that limits and leases hold: sweeps allow for two seconds, and what is left of each caller's own offset after the correction widens what a rate bucket may grant. Only AWS can set Lambda's clock. If the offset lasts, run `sluice doctor` on the machines of callers, and see that they take their time from NTP (chrony)."
      namespace   = "Sluice"
      metric      = "ClockOffset"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.clock_offset_threshold_ms
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    already-capped = {
      severity    = "warning"
      description = "For ${local.of_lasting} every sweep has met leases whose bucket was full already: callers gave the slots back and let their leases end as well. Harmless by itself; look for a client that gives slots back without deleting the lease."
      namespace   = "Sluice"
      metric      = "AlreadyCapped"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    restored-slots = {
      severity    = "warning"
      description = "In each of four periods of ${local.of_recent}, sweeps have restored ${var.restored_slots_threshold} or more slots that nobody gave back: callers crash, time out, or acquire without releasing. See on the dashboard which dimension it is, and have its callers run their work in a slot rather than a bare acquire."
      namespace   = "Sluice"
      metric      = "RestoredSlots"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.restored_slots_threshold
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    unparsable-rows = {
      severity    = "warning"
      description = "The sweep met a lease that it cannot read, and left it alone; its slot is lost until the row is gone. The reconciler's log names the key: find the client that wrote it, then correct or remove the row."
      namespace   = "Sluice"
      metric      = "Unparsable"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    unfinished-sweeps = {
      severity    = "warning"
      description = "For ${local.of_lasting} no sweep has scanned the whole table, because of its deadline or throttling, or because runs fail. What one sweep leaves the next may find, but slots come back late and nothing is recounted: see how many rows there are, and whether DynamoDB throttles."
      namespace   = "Sluice"
      metric      = "SegmentsUnscanned"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    unreadable-buckets = {
      severity    = "critical"
      description = "The row of a bucket cannot be read: every acquire of it fails, and its leases are not given back. The reconciler's log (reconciler.unreadable_bucket) and `sluice doctor` name the row and the attribute: correct the attribute, as the runbook says, and find the client that wrote it."
      namespace   = "Sluice"
      metric      = "UnreadableBuckets"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    refused-leases = {
      severity    = "warning"
      description = "DynamoDB rejects the deletion of a lease for good, or the lease's bucket cannot be read, so its slot does not come back by itself. The reconciler's log (reconciler.refused) has the message and the lease."
      namespace   = "Sluice"
      metric      = "Refused"
      dimensions  = local.of_environment
      statistic   = "Maximum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = local.recent
      periods     = 1
      datapoints  = 1
      missing     = "ignore"
    }

    # A sweep that leaves some to the next is nothing; every sweep of an hour is.
    leases-left = {
      severity    = "warning"
      description = "For ${local.of_lasting} every sweep has left leases that had ended to the next one, because of conflicts or the end of its time: slots come back late. See how many leases end (Expired on the dashboard), who leaves them, and whether DynamoDB throttles."
      namespace   = "Sluice"
      metric      = "Left"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    deadline-hit = {
      severity    = "warning"
      description = "For ${local.of_lasting} the function's time has ended every sweep. The table is too large for one run, or DynamoDB answers slowly: see Duration and RowsScanned on the dashboard, and look for rows that nobody needs."
      namespace   = "Sluice"
      metric      = "DeadlineHit"
      dimensions  = local.of_environment
      statistic   = "Minimum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = 1
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    dead-letters = {
      severity    = "warning"
      description = "Events for the reconciler failed or were never delivered in two of the last three of its intervals, and lie in the queue of dead letters. Read one for the reason. The alarm ends by itself once no more arrive; what lies there is only to be read, the runs since have done its work."
      namespace   = "AWS/SQS"
      metric      = "NumberOfMessagesSent"
      dimensions  = local.of_queue
      statistic   = "Sum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = local.interval
      periods     = 3
      datapoints  = 2
      missing     = "notBreaching"
    }

    # Slots alone: processes write what they refused into the load rows, in any language and at any place, unless they leave healing to
    # the reconciler.
    caller-refusals = {
      severity    = "warning"
      description = "In each of four periods of ${local.of_recent}, callers have been refused slots or shed requests ${var.refusals_threshold} times or more: more is asked for than the concurrency limits give. See on the dashboard and in `sluice watch` which bucket is full and who holds its slots, and let callers wait in a slot rather than ask again."
      namespace   = "Sluice"
      metric      = "CallerRefusals"
      dimensions  = local.of_environment
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.refusals_threshold
      period      = local.recent
      periods     = 4
      datapoints  = 4
      missing     = "ignore"
    }

    refusals = {
      severity    = "warning"
      description = "In each of four periods of 15 minutes, callers that print metrics were refused ${var.refusals_threshold} times or more: more is asked for than the limits give, or a caller asks again at once. See by bucket (VendorDimension) which limit it is; let callers wait in a slot, or have the vendor raise the limit."
      namespace   = "Sluice"
      metric      = "Refusals"
      dimensions  = local.of_callers
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.refusals_threshold
      period      = 900
      periods     = 4
      datapoints  = 4
      missing     = "notBreaching"
    }

    vendor-refusals = {
      severity    = "warning"
      description = "A vendor refuses calls that were granted (HTTP 429 and the like), more than ${var.vendor_refusals_threshold} times in 15 minutes: somebody else uses the account, or the vendor's limit is lower than the bucket's. `sluice doctor` reports a lower limit that the vendor stated; find callers without Sluice."
      namespace   = "Sluice"
      metric      = "VendorRefusals"
      dimensions  = local.of_callers
      statistic   = "Sum"
      comparison  = "GreaterThanThreshold"
      threshold   = var.vendor_refusals_threshold
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }

    shedding = {
      severity    = "warning"
      description = "For a quarter of an hour requests were shed in every five minutes (`admit`): their wait would be longer than they can bear, or the vendor counts as down because slots are held and none came free. See `sluice watch` and `sluice leases` for holders that hang."
      namespace   = "Sluice"
      metric      = "Shed"
      dimensions  = local.of_callers
      statistic   = "Sum"
      comparison  = "GreaterThanOrEqualToThreshold"
      threshold   = var.shed_threshold
      period      = 300
      periods     = 3
      datapoints  = 3
      missing     = "notBreaching"
    }

    # If it lasts, `dynamodb-unavailable` is the alarm. Callers that call now and then never make that one go off.
    dynamodb-faltered = {
      severity    = "warning"
      description = "In the last 15 minutes DynamoDB did not answer some calls: callers got what SLUICE_ON_UNAVAILABLE says, errors by default. A short outage ends without you; if it lasts, `dynamodb-unavailable` goes off. If short outages come back, look at the network and the timeouts of the callers."
      namespace   = "Sluice"
      metric      = "Unavailable"
      dimensions  = local.of_callers
      statistic   = "Sum"
      comparison  = "GreaterThanThreshold"
      threshold   = 0
      period      = 900
      periods     = 1
      datapoints  = 1
      missing     = "notBreaching"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${local.name}-${each.key}"
  alarm_description   = "${each.value.description} Runbook: ${local.runbook[each.key]}"
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
  alarm_actions   = local.topics[each.value.severity]
  ok_actions      = local.topics[each.value.severity]
  tags            = var.tags
}

locals {
  name   = "${var.name_prefix}sluice-${var.environment}"
  topics = { critical = var.critical_topic_arns, warning = var.warning_topic_arns }

  with_expressions = ["no-sweep", "throttles", "hot-key", "system-errors", "dynamodb-unavailable"]

  runbook = {
    for name in concat(keys(local.alarms), local.with_expressions) : name => "${var.runbook_url}#${name}"
  }
}

# When the alarms were planned first. The state keeps it: later plans do not move it.
resource "terraform_data" "installed" {
  input = coalesce(var.installed_at, plantimestamp())

  lifecycle {
    ignore_changes = [input]
  }
}

locals {
  # Seconds since 1970, which Terraform has no function for. Right until 2099.
  installed     = { for letter in ["YYYY", "M", "D", "h", "m"] : letter => tonumber(formatdate(letter, terraform_data.installed.input)) }
  days_of_years = 365 * (local.installed["YYYY"] - 1970) + floor((local.installed["YYYY"] - 1969) / 4)
  days_before   = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][local.installed["M"] - 1]
  leap_day      = local.installed["M"] > 2 && local.installed["YYYY"] % 4 == 0 ? 1 : 0
  days          = local.days_of_years + local.days_before + local.leap_day + local.installed["D"] - 1
  installed_at  = local.days * 86400 + local.installed["h"] * 3600 + local.installed["m"] * 60

  # A quarter of an hour for the apply, and the three intervals that the alarm looks at.
  first_sweep_due = local.installed_at + 900 + 3 * local.interval

  namespace = "Sluice"
}

# A run that fails publishes a zero, and one that dies or never begins nothing at all: both are the alarm. A
# new installation has published nothing either: until its first sweep is due, the expression is one.
#
# Silence is filled with zeros: CloudWatch would otherwise look further back for values, and find the sweeps of
# before. Its newest zero may be a sweep that is not published yet; three in a row are not.
resource "aws_cloudwatch_metric_alarm" "no_sweep" {
  alarm_name          = "${local.name}-no-sweep"
  alarm_description   = "No sweep has finished in three intervals of the schedule, so slots of crashed callers come back only if a refused caller finds them. Look for a disabled rule, a throttled function or a failing one; until it runs again, `sluice reconcile --once` does the work from anywhere. Runbook: ${local.runbook["no-sweep"]}"
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  treat_missing_data  = "breaching"

  metric_query {
    id          = "swept"
    expression  = "IF(EPOCH(TIME_SERIES(1)) < ${local.first_sweep_due}, 1, FILL(sweeps, 0))"
    label       = "Sweeps that finished"
    return_data = true
  }

  metric_query {
    id = "sweeps"

    metric {
      namespace   = local.namespace
      metric_name = "Sweeps"
      dimensions  = local.of_environment
      stat        = "Sum"
      period      = local.interval
    }
  }

  actions_enabled = var.actions_enabled
  alarm_actions   = local.topics.critical
  ok_actions      = local.topics.critical
  tags            = var.tags
}

# Its name stays: an alarm that is created again could be deleted by the name of the old one.
moved {
  from = aws_cloudwatch_metric_alarm.this["no-sweep"]
  to   = aws_cloudwatch_metric_alarm.no_sweep
}

# By itself because it adds two metrics up. DynamoDB publishes either only when it throttles, so both are filled
# with zeros: else throttled reads would go unseen while no write is.
resource "aws_cloudwatch_metric_alarm" "throttles" {
  alarm_name          = "${local.name}-throttles"
  alarm_description   = "DynamoDB has been throttling requests for ten minutes; clients back off and try again, so grants come late. See on the dashboard whether reads or writes, and whether the alarm for a hot key tells why; otherwise look at the account's limits. Runbook: ${local.runbook["throttles"]}"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "throttles"
    expression  = "SUM(FILL(METRICS(), 0))"
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
  alarm_actions   = local.topics.warning
  ok_actions      = local.topics.warning
  tags            = var.tags
}

# On demand there is no provisioned throughput to run out of: this is one key at the 1,000 write units a second
# that it can take.
resource "aws_cloudwatch_metric_alarm" "hot_key" {
  alarm_name          = "${local.name}-hot-key"
  alarm_description   = "A single key was written faster than one partition of DynamoDB takes (1,000 write units a second), so its callers wait or are refused. Contributor Insights on the table names it: let its callers share lanes in fewer, longer-lived processes, or split the limit into several buckets. Runbook: ${local.runbook["hot-key"]}"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 2
  datapoints_to_alarm = 1
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "throttled"
    expression  = "FILL(key, 0)"
    label       = "Writes that a key was too busy for"
    return_data = true
  }

  metric_query {
    id = "key"

    metric {
      namespace   = "AWS/DynamoDB"
      metric_name = "WriteKeyRangeThroughputThrottleEvents"
      dimensions  = local.of_table
      stat        = "Sum"
      period      = 300
    }
  }

  actions_enabled = var.actions_enabled
  alarm_actions   = local.topics.warning
  ok_actions      = local.topics.warning
  tags            = var.tags
}

moved {
  from = aws_cloudwatch_metric_alarm.this["hot-key"]
  to   = aws_cloudwatch_metric_alarm.hot_key
}

locals {
  # What clients and sweeps send. CloudWatch counts DynamoDB's own failures by operation, never by table
  # alone.
  operations = {
    get      = "GetItem"
    batch    = "BatchGetItem"
    update   = "UpdateItem"
    put      = "PutItem"
    delete   = "DeleteItem"
    scan     = "Scan"
    transact = "TransactWriteItems"
  }
}

# DynamoDB's own failures (HTTP 500 and 503), of all operations together. A few are ordinary, and clients send
# again. Five minutes of eight: the newest may not have arrived yet.
resource "aws_cloudwatch_metric_alarm" "system_errors" {
  alarm_name          = "${local.name}-system-errors"
  alarm_description   = "DynamoDB has failed requests by its own fault in five of the last eight minutes: callers get what SLUICE_ON_UNAVAILABLE says, errors by default. See the health of the Region; nothing here mends it. Runbook: ${local.runbook["system-errors"]}"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = var.system_errors_threshold
  evaluation_periods  = 8
  datapoints_to_alarm = 5
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "failures"
    expression  = "SUM(FILL(METRICS(), 0))"
    label       = "Requests that DynamoDB failed"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = local.operations

    content {
      id = metric_query.key

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = "SystemErrors"
        dimensions  = merge(local.of_table, { Operation = metric_query.value })
        stat        = "Sum"
        period      = 60
      }
    }
  }

  actions_enabled = var.actions_enabled
  alarm_actions   = local.topics.critical
  ok_actions      = local.topics.critical
  tags            = var.tags
}

# DynamoDB out, as callers see it, whatever lies in between: the network, an endpoint of a VPC. Five minutes of
# ten, because a caller that is refused comes back later, and a function that is frozen prints later.
resource "aws_cloudwatch_metric_alarm" "dynamodb_unavailable" {
  alarm_name          = "${local.name}-dynamodb-unavailable"
  alarm_description   = "DynamoDB has not answered callers in five of the last ten minutes: they get what SLUICE_ON_UNAVAILABLE says, errors by default. See the health of the Region, the network between callers and DynamoDB (endpoints, security groups), and whether `sluice doctor` works beside them. Runbook: ${local.runbook["dynamodb-unavailable"]}"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 10
  datapoints_to_alarm = 5
  treat_missing_data  = "notBreaching"

  metric_query {
    id          = "unanswered"
    expression  = "SUM(FILL(METRICS(), 0))"
    label       = "Calls without DynamoDB, and processes that only probe"
    return_data = true
  }

  metric_query {
    id = "unavailable"

    metric {
      namespace   = local.namespace
      metric_name = "Unavailable"
      dimensions  = local.of_callers
      stat        = "Sum"
      period      = 60
    }
  }

  metric_query {
    id = "out"

    metric {
      namespace   = local.namespace
      metric_name = "DynamoDbOut"
      dimensions  = local.of_callers
      stat        = "Sum"
      period      = 60
    }
  }

  actions_enabled = var.actions_enabled
  alarm_actions   = local.topics.critical
  ok_actions      = local.topics.critical
  tags            = var.tags
}
