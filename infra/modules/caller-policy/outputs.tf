output "caller_policy_arn" {
  description = "Policy for product code that acquires, renews and releases."
  value       = aws_iam_policy.caller.arn
}

output "caller_policy_json" {
  description = "The same as a document, for roles that take inline policies."
  value       = aws_iam_policy.caller.policy
}

output "sweeping_caller_policy_arn" {
  description = "Policy for product code that also sweeps."
  value       = aws_iam_policy.sweeping_caller.arn
}

output "sweeping_caller_policy_json" {
  description = "The same as a document, for roles that take inline policies."
  value       = aws_iam_policy.sweeping_caller.policy
}
