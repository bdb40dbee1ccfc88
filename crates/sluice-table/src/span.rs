//! The span of a request, as OpenTelemetry names its fields.

use tracing::Span;
use tracing::field::Empty;

use crate::operation::Operation;

/// The span of one request to DynamoDB, by OpenTelemetry's conventions for databases and for DynamoDB
/// (<https://opentelemetry.io/docs/specs/semconv/db/dynamodb/>).
pub(crate) fn request(operation: Operation, table: &str, server: Option<&str>, attempt: u32) -> Span {
    tracing::debug_span!(
        "sluice.request",
        otel.name = %format_args!("{} {table}", operation.as_str()),
        otel.kind = "client",
        db.system.name = "aws.dynamodb",
        db.operation.name = operation.as_str(),
        db.collection.name = table,
        server.address = server,
        http.request.resend_count = attempt,
        aws.request_id = Empty,
        db.response.status_code = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}
