# Rows of equal charts, top to bottom: how Sluice is used, what callers met, what is in use and how fast it ends, what the sweep gave back, how the
# sweep ran, what DynamoDB took. Each chart says only what differs from the others; position, size and region follow from where it stands.
locals {
  env      = "${var.name_prefix}${var.environment}"
  function = var.function_name
  table    = var.table_name
  queue    = var.dead_letter_queue_name

  # As callers name the environment: see modules/alarms.
  callers = try(regex("^ontopix-vendor-buckets-(sandbox|pre|prod)$", var.table_name)[0], var.table_name)

  note = <<-EOT
    **Sluice, ${local.env}.** Use is read off DynamoDB here: a batch of grants is one write, and a refusal that a process answers from its
    cache is no request at all. What callers met comes from those that print it (`SLUICE_METRICS=emf`). What is in use, what leaked and
    everything named *sweep* comes from the reconciler, whose schedule is `${var.schedule_expression}`.
  EOT

  # In CloudWatch's notation "." stands for the value above it, here written out so that each line can be read alone.
  rows = [
    [
      {
        title = "Writes that DynamoDB accepted (grants, releases, renewals and sweeps together)"
        yAxis = { left = { label = "Requests", showUnits = false, min = 0 } }
        stat  = "SampleCount"
        metrics = [
          ["AWS/DynamoDB", "SuccessfulRequestLatency", "TableName", local.table, "Operation", "UpdateItem", { label = "UpdateItem: rate buckets, renewals" }],
          ["AWS/DynamoDB", "SuccessfulRequestLatency", "TableName", local.table, "Operation", "TransactWriteItems", { label = "TransactWriteItems: slots and their leases" }],
        ]
      },
      {
        title = "Conditions that failed (refusals, and plans that another write made stale)"
        yAxis = { left = { label = "Requests", showUnits = false, min = 0 } }
        metrics = [
          ["AWS/DynamoDB", "ConditionalCheckFailedRequests", "TableName", local.table, { label = "Failed conditions" }],
          ["AWS/DynamoDB", "TransactionConflict", "TableName", local.table, { label = "Conflicts between transactions" }],
        ]
      },
    ],
    [
      {
        title = "Callers that were refused or shed"
        yAxis = { left = { label = "Calls", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "Refusals", "Environment", local.callers, { label = "Refused (callers that print it)" }],
          ["Sluice", "Shed", "Environment", local.callers, { label = "Shed (callers that print it)" }],
          ["Sluice", "CallerRefusals", "Environment", local.env, { label = "Slots refused or shed (by the sweep)" }],
        ]
      },
      {
        title = "Callers that a vendor refused, or that DynamoDB did not answer"
        yAxis = { left = { label = "Calls", showUnits = false, min = 0 }, right = { label = "Lines", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "VendorRefusals", "Environment", local.callers, { label = "Granted, and refused by the vendor" }],
          ["Sluice", "Unavailable", "Environment", local.callers, { label = "Without an answer of DynamoDB" }],
          ["Sluice", "DynamoDbOut", "Environment", local.callers, { label = "Lines of processes that only probe", yAxis = "right" }],
        ]
      },
    ],
    [
      {
        title = "Slots in use, by dimension and in all"
        yAxis = { left = { label = "Slots", showUnits = false, min = 0 } }
        stat  = "Maximum"
        metrics = [
          [{ expression = "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"Pending\" Environment=\"${local.env}\"', 'Maximum', 300)" }],
          ["Sluice", "Pending", "Environment", local.env, { label = "All dimensions" }],
        ]
      },
      {
        title = "Drain rate: slots that become free while work is pending, by dimension"
        yAxis = { left = { label = "Slots a second", showUnits = false, min = 0 } }
        stat  = "Average"
        metrics = [
          [{ expression = "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"DrainRate\" Environment=\"${local.env}\"', 'Average', 300)" }],
        ]
      },
      {
        title = "Leaks: slots that are taken, and nothing granted or given back for 15 minutes"
        yAxis = { left = { label = "Slots", showUnits = false, min = 0 } }
        stat  = "Maximum"
        metrics = [
          [{ expression = "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"LeakSuspected\" Environment=\"${local.env}\"', 'Maximum', 300)" }],
          ["Sluice", "LeakSuspected", "Environment", local.env, { label = "All dimensions" }],
        ]
      },
      {
        title = "Holders that outlived their leases, and the clock's offset"
        yAxis = { left = { label = "Holders", showUnits = false, min = 0 }, right = { label = "Milliseconds", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "ExpiredButAlive", "Environment", local.env, { label = "Holders that outlived their leases" }],
          ["Sluice", "ClockOffset", "Environment", local.env, { stat = "Maximum", label = "Between the reconciler's clock and DynamoDB's", yAxis = "right" }],
        ]
      },
    ],
    [
      {
        title = "Leases that sweeps gave back"
        yAxis = { left = { label = "Count", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "Restored", "Environment", local.env, { label = "Leases restored" }],
          ["Sluice", "RestoredSlots", "Environment", local.env, { label = "Slots restored" }],
          ["Sluice", "AlreadyCapped", "Environment", local.env, { label = "Leases whose bucket was full already" }],
          ["Sluice", "LostRaces", "Environment", local.env, { label = "Leases that someone else gave back first" }],
        ]
      },
      {
        title = "Slots restored, by dimension"
        yAxis = { left = { label = "Slots", showUnits = false, min = 0 } }
        metrics = [
          [{ expression = "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"RestoredSlots\" Environment=\"${local.env}\"', 'Sum', 300)" }],
        ]
      },
      {
        title = "Drift: slots that no lease explains, by dimension and in all"
        yAxis = { left = { label = "Slots", showUnits = false, min = 0 } }
        stat  = "Maximum"
        metrics = [
          [{ expression = "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"Drift\" Environment=\"${local.env}\"', 'Maximum', 300)" }],
          ["Sluice", "Drift", "Environment", local.env, { label = "All dimensions" }],
          ["Sluice", "Corrected", "Environment", local.env, { label = "Corrected" }],
        ]
      },
    ],
    [
      {
        title = "How long a sweep takes"
        yAxis = { left = { label = "Milliseconds", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "Duration", "Environment", local.env, { stat = "p50", label = "Sweep, median" }],
          ["Sluice", "Duration", "Environment", local.env, { stat = "Maximum", label = "Sweep, longest" }],
          ["AWS/Lambda", "Duration", "FunctionName", local.function, { stat = "Maximum", label = "Function, longest (timeout at 60,000)" }],
        ]
      },
      {
        title = "What sweeps looked at, and what they left"
        yAxis = { left = { label = "Rows", showUnits = false, min = 0 }, right = { label = "Left over", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "RowsScanned", "Environment", local.env, { label = "Rows scanned" }],
          ["Sluice", "Expired", "Environment", local.env, { label = "Leases that had ended" }],
          ["Sluice", "Left", "Environment", local.env, { label = "Left for the next sweep", yAxis = "right" }],
          ["Sluice", "Refused", "Environment", local.env, { label = "Refused by DynamoDB", yAxis = "right" }],
          ["Sluice", "Unparsable", "Environment", local.env, { label = "Leases not readable", yAxis = "right" }],
          ["Sluice", "UnreadableBuckets", "Environment", local.env, { label = "Buckets not readable", yAxis = "right" }],
        ]
      },
      {
        title = "Runs, errors and dead letters"
        yAxis = { left = { label = "Count", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "Sweeps", "Environment", local.env, { label = "Sweeps that finished" }],
          ["Sluice", "DeadlineHit", "Environment", local.env, { label = "Sweeps stopped by their deadline" }],
          ["AWS/Lambda", "Errors", "FunctionName", local.function, { label = "Errors of the function" }],
          ["AWS/Lambda", "Throttles", "FunctionName", local.function, { label = "Runs held back (one at a time)" }],
          ["AWS/SQS", "NumberOfMessagesSent", "QueueName", local.queue, { label = "Dead letters that arrived" }],
        ]
      },
    ],
    [
      {
        title = "Capacity consumed"
        yAxis = { left = { label = "Units a second", showUnits = false, min = 0 } }
        metrics = [
          [{ expression = "write / PERIOD(write)", label = "Write units a second" }],
          [{ expression = "read / PERIOD(read)", label = "Read units a second" }],
          ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", local.table, { id = "write", visible = false }],
          ["AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName", local.table, { id = "read", visible = false }],
        ]
        annotations = { horizontal = [{ label = "Writes that one key takes, were they all to one bucket", value = 1000 }] }
      },
      {
        title = "Throttled by DynamoDB"
        yAxis = { left = { label = "Events", showUnits = false, min = 0 } }
        metrics = [
          ["AWS/DynamoDB", "WriteThrottleEvents", "TableName", local.table, { label = "Writes" }],
          ["AWS/DynamoDB", "ReadThrottleEvents", "TableName", local.table, { label = "Reads" }],
          ["AWS/DynamoDB", "WriteKeyRangeThroughputThrottleEvents", "TableName", local.table, { label = "Writes to a key that was too hot" }],
        ]
      },
      {
        title = "Requests of a sweep"
        yAxis = { left = { label = "Requests", showUnits = false, min = 0 } }
        metrics = [
          ["Sluice", "Requests", "Environment", local.env, { label = "Requests" }],
          ["Sluice", "ConflictsRetried", "Environment", local.env, { label = "Sent again after a conflict" }],
        ]
      },
    ],
  ]

  # With `metrics = "alarms"` sweeps publish these (ALARMS in crates/sluice-reconciler/src/metrics.rs), and none by
  # dimension: charts show what is left of them.
  of_alarms = [
    "AlreadyCapped", "CallerRefusals", "ClockOffset", "DeadlineHit", "Drift", "Duration", "ExpiredButAlive", "LeakSuspected", "Left",
    "Pending", "Refused", "RestoredSlots", "SegmentsUnscanned", "Sweeps", "Unparsable", "UnreadableBuckets",
  ]

  # What callers print (PUBLISHED in crates/sluice-table/src/emf/recorder.rs), whatever sweeps publish.
  printed = ["DynamoDbOut", "Refusals", "Shed", "Unavailable", "VendorRefusals"]

  # A metric is [namespace, name, ...], or [{ expression }].
  published = [
    for row in local.rows : [
      for chart in row : merge(chart, {
        metrics = [
          for metric in chart.metrics : metric if anytrue([
            var.metrics == "all",
            try(metric[0] != "Sluice" && !can(metric[0].expression), false),
            try(metric[0] == "Sluice" && contains(concat(local.of_alarms, local.printed), metric[1]), false),
            try(!strcontains(metric[0].expression, "{Sluice,"), false),
          ])
        ]
      })
    ]
  ]
  shown = [for row in local.published : [for chart in row : chart if length(chart.metrics) > 0]]

  top_height   = 4
  chart_height = 6

  charts = flatten([
    for y, row in [for row in local.shown : row if length(row) > 0] : [
      for x, chart in row : {
        type   = "metric"
        x      = x * 24 / length(row)
        y      = local.top_height + y * local.chart_height
        width  = 24 / length(row)
        height = local.chart_height

        properties = merge({ region = var.region, view = "timeSeries", stat = "Sum", period = 300 }, chart)
      }
    ]
  ])
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = "${var.name_prefix}sluice-${var.environment}"

  dashboard_body = jsonencode({
    widgets = concat(
      [
        { type = "alarm", x = 0, y = 0, width = 16, height = local.top_height, properties = { title = "Alarms", alarms = var.alarm_arns } },
        { type = "text", x = 16, y = 0, width = 8, height = local.top_height, properties = { markdown = local.note } },
      ],
      local.charts,
    )
  })
}
