mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment            = "pre"
  region                 = "eu-west-1"
  function_name          = "the-function"
  table_name             = "the-table"
  dead_letter_queue_name = "the-queue"
  alarm_arns             = ["arn:aws:cloudwatch:eu-west-1:111122223333:alarm:the-alarm"]
}

run "the_dashboard_shows_every_metric_that_is_published" {
  module {
    source = "./modules/dashboard"
  }

  assert {
    condition     = aws_cloudwatch_dashboard.this.dashboard_name == "sluice-pre"
    error_message = "The dashboard is sluice-{env}."
  }

  # Namespace, name and dimensions of every metric in every chart: names with a typing error show up here, and
  # nowhere else.
  assert {
    condition = toset(flatten([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : [
        for m in w.properties.metrics :
        join(" ", [for part in m : part if can(tostring(part))]) if can(tostring(m[0]))
      ] if w.type == "metric"
      ])) == toset([
      "AWS/DynamoDB SuccessfulRequestLatency TableName the-table Operation UpdateItem",
      "AWS/DynamoDB SuccessfulRequestLatency TableName the-table Operation TransactWriteItems",
      "AWS/DynamoDB ConditionalCheckFailedRequests TableName the-table",
      "AWS/DynamoDB TransactionConflict TableName the-table",
      "AWS/DynamoDB ConsumedWriteCapacityUnits TableName the-table",
      "AWS/DynamoDB ConsumedReadCapacityUnits TableName the-table",
      "AWS/DynamoDB WriteThrottleEvents TableName the-table",
      "AWS/DynamoDB ReadThrottleEvents TableName the-table",
      "AWS/DynamoDB WriteKeyRangeThroughputThrottleEvents TableName the-table",
      "AWS/Lambda Duration FunctionName the-function",
      "AWS/Lambda Errors FunctionName the-function",
      "AWS/Lambda Throttles FunctionName the-function",
      "AWS/SQS NumberOfMessagesSent QueueName the-queue",
      "Sluice AlreadyCapped Environment pre",
      "Sluice CallerRefusals Environment pre",
      "Sluice ClockOffset Environment pre",
      "Sluice ConflictsRetried Environment pre",
      "Sluice Corrected Environment pre",
      "Sluice DeadlineHit Environment pre",
      "Sluice Drift Environment pre",
      "Sluice DynamoDbOut Environment the-table",
      "Sluice Duration Environment pre",
      "Sluice Expired Environment pre",
      "Sluice ExpiredButAlive Environment pre",
      "Sluice LeakSuspected Environment pre",
      "Sluice Left Environment pre",
      "Sluice LostRaces Environment pre",
      "Sluice Pending Environment pre",
      "Sluice Refusals Environment the-table",
      "Sluice Refused Environment pre",
      "Sluice Requests Environment pre",
      "Sluice Restored Environment pre",
      "Sluice RestoredSlots Environment pre",
      "Sluice RowsScanned Environment pre",
      "Sluice Shed Environment the-table",
      "Sluice Sweeps Environment pre",
      "Sluice Unavailable Environment the-table",
      "Sluice Unparsable Environment pre",
      "Sluice UnreadableBuckets Environment pre",
      "Sluice VendorRefusals Environment the-table",
    ])
    error_message = "The dashboard's metrics are not those that AWS, the reconciler and callers publish."
  }

  assert {
    condition = toset(flatten([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : [
        for m in w.properties.metrics : m[0].expression if can(m[0].expression)
      ] if w.type == "metric"
      ])) == toset([
      "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"RestoredSlots\" Environment=\"pre\"', 'Sum', 300)",
      "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"Drift\" Environment=\"pre\"', 'Maximum', 300)",
      "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"Pending\" Environment=\"pre\"', 'Maximum', 300)",
      "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"DrainRate\" Environment=\"pre\"', 'Average', 300)",
      "SEARCH('{Sluice,Environment,VendorDimension} MetricName=\"LeakSuspected\" Environment=\"pre\"', 'Maximum', 300)",
      "write / PERIOD(write)",
      "read / PERIOD(read)",
    ])
    error_message = "What a sweep says by dimension is searched for; units are shown a second."
  }
}

run "every_chart_has_a_title_units_and_a_place_of_its_own" {
  module {
    source = "./modules/dashboard"
  }

  assert {
    condition = alltrue([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets :
      length(w.properties.title) > 10
      && length(w.properties.yAxis.left.label) > 0
      && w.properties.region == "eu-west-1"
      && w.properties.period == 300
      if w.type == "metric"
    ])
    error_message = "A chart lacks title, unit, region or period."
  }

  assert {
    condition = alltrue([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : w.x + w.width <= 24
      && floor(w.x) == w.x
      && floor(w.width) == w.width
    ])
    error_message = "A widget stands beyond the 24 columns, or between two."
  }

  # Two widgets that begin at one point hide each other.
  assert {
    condition = length(distinct([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : "${w.x},${w.y}"
    ])) == length(jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets)
    error_message = "Two widgets are in one place."
  }

  assert {
    condition = one([
      for w in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets :
      w.properties.alarms if w.type == "alarm"
    ]) == ["arn:aws:cloudwatch:eu-west-1:111122223333:alarm:the-alarm"]
    error_message = "The alarms stand on the dashboard."
  }
}
