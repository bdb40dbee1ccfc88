output "role_arns" {
  description = "The role that each product takes."
  value       = { for product, role in aws_iam_role.product : product => role.arn }
}
