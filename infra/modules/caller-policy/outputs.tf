output "caller_policy_arn" {
  description = "Policy for product code: acquire, renew, release, and give back what crashed callers held."
  value       = aws_iam_policy.caller.arn
}

output "caller_policy_json" {
  description = "The same as a document, for roles that take inline policies."
  value       = aws_iam_policy.caller.policy
}
