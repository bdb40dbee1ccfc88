# What product code may do to the table. Attach it to the role of the function, task or instance that links the SDK.
#
# IAM checks a transaction by its parts: the UpdateItem, PutItem and DeleteItem in it each need their own right, and there is no
# action TransactWriteItems to grant.
#
# Without `vendors` the policy covers the rows of every vendor. With `vendors` it names the keys of their
# rows: buckets (`openai#rpm`), leases (`lease#openai#rpm#{id}`), load rows (`load#openai#rpm`) and tickets
# (`ticket#openai#{id}`).
data "aws_partition" "current" {}

locals {
  # UpdateItem would make a row that is not there; the SDK's conditions refuse that, IAM cannot. (It does make
  # load rows, and the rows of shares of slots that an operator declares.) BatchGetItem is admission's, and a sweep's.
  caller_actions = [
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:UpdateItem",
  ]

  # On lease and ticket rows alone, so that product code cannot replace a bucket.
  make_actions = [
    "dynamodb:PutItem",
  ]

  # On lease rows alone, so that it cannot remove one. A ticket's row stays: the TTL of DynamoDB removes it.
  remove_actions = [
    "dynamodb:DeleteItem",
  ]

  # On the whole table: a process that a full bucket refuses scans for leases that have ended, and gives back
  # what they hold, whichever bucket they belong to. (The mark of the scan, load#heal, is a load row like the
  # others.)
  heal_actions = [
    "dynamodb:Scan",
  ]

  # ForAllValues also holds for a request without any key; the Null test closes that gap.
  on_made = {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*", "ticket#*"] }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  }
  on_removed = {
    "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["lease#*"] }
    Null                      = { "dynamodb:LeadingKeys" = "false" }
  }

  heal = [{ Sid = "Heal", Effect = "Allow", Action = local.heal_actions, Resource = var.table_arn }]

  of_every_vendor = concat(
    [
      { Sid = "Buckets", Effect = "Allow", Action = local.caller_actions, Resource = var.table_arn },
      { Sid = "Make", Effect = "Allow", Action = local.make_actions, Resource = var.table_arn, Condition = local.on_made },
      { Sid = "Remove", Effect = "Allow", Action = local.remove_actions, Resource = var.table_arn, Condition = local.on_removed },
    ],
    # A conditional expression would want both of its lists to have one type.
    [for statement in local.heal : statement if var.self_heal],
  )

  vendors     = var.vendors == null ? [] : sort(var.vendors)
  any_tickets = var.older_clients ? ["ticket#*"] : []
  buckets     = [for vendor in local.vendors : "${vendor}#*"]
  leases      = [for vendor in local.vendors : "lease#${vendor}#*"]
  loads       = [for vendor in local.vendors : "load#${vendor}#*"]
  tickets     = concat([for vendor in local.vendors : "ticket#${vendor}#*"], local.any_tickets)

  # The actions of each statement, and the keys that they may name. Each process reads the directory to learn
  # DynamoDB's time.
  on_own_keys = {
    Read   = { actions = [for action in local.caller_actions : action if action != "dynamodb:UpdateItem"], keys = concat(local.own, ["load#directory"]) }
    Change = { actions = ["dynamodb:UpdateItem"], keys = local.own }
    Make   = { actions = local.make_actions, keys = concat(local.leases, local.tickets) }
    Remove = { actions = local.remove_actions, keys = local.leases }
  }
  own = concat(local.buckets, local.leases, local.loads, local.tickets)

  of_vendors = [
    for sid in ["Read", "Change", "Make", "Remove"] : {
      Sid      = sid
      Effect   = "Allow"
      Action   = local.on_own_keys[sid].actions
      Resource = var.table_arn
      Condition = {
        "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = local.on_own_keys[sid].keys }
        Null                      = { "dynamodb:LeadingKeys" = "false" }
      }
    }
  ]

  # A key of yours encrypts the table: each reader of it decrypts through DynamoDB, and in no other way.
  of_key = [
    for arn in var.kms_key_arn[*] : {
      Sid      = "Key"
      Effect   = "Allow"
      Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
      Resource = arn
      Condition = {
        StringEquals = { "kms:ViaService" = "dynamodb.${var.region}.${data.aws_partition.current.dns_suffix}" }
      }
    }
  ]

  document = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in concat(
        [for one in local.of_every_vendor : jsonencode(one) if var.vendors == null],
        [for one in local.of_vendors : jsonencode(one) if var.vendors != null],
        [for one in local.of_key : jsonencode(one)],
      ) : jsondecode(statement)
    ]
  })
}

resource "aws_iam_policy" "caller" {
  name = join("-", compact(["${var.name_prefix}sluice-caller", var.environment, var.product]))
  path = var.iam_path
  tags = var.tags

  description = (
    var.vendors == null
    ? "Acquire, renew and release through Sluice, and give back what crashed callers held."
    : "Acquire, renew and release through Sluice, for the vendors ${join(", ", local.vendors)} alone."
  )

  policy = local.document

  lifecycle {
    precondition {
      condition     = length(local.document) <= 6144
      error_message = "The policy is longer than the 6,144 characters that IAM takes: give the product two policies, with half of its vendors each."
    }
  }
}
