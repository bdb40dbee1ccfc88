output "operator_policy_arn" {
  description = "Policy for who applies limits."
  value       = aws_iam_policy.operator.arn
}

output "reader_policy_arn" {
  description = "Policy for who only reads."
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
