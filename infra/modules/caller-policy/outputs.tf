output "caller_policy_arn" {
  description = "Policy for product code that acquires, renews and releases, and gives back what crashed callers held."
  value       = aws_iam_policy.caller.arn
}

output "caller_policy_json" {
  description = "The same as a document, for roles that take inline policies."
  value       = aws_iam_policy.caller.policy
}
