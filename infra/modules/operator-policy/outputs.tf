output "operator_policy_arn" {
  description = "Policy for a pipeline or a person that applies limits."
  value       = aws_iam_policy.operator.arn
}

output "reader_policy_arn" {
  description = "Policy for roles that only read."
  value       = aws_iam_policy.reader.arn
}

output "operator_policy_json" {
  description = "The operator's policy as a document, for roles that take inline policies."
  value       = aws_iam_policy.operator.policy
}

output "reader_policy_json" {
  description = "The reader's policy as a document, for roles that take inline policies."
  value       = aws_iam_policy.reader.policy
}
