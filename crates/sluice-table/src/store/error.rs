//! What can go wrong between the process and the table, worded so that a reader can act on it.

use std::error::Error as StdError;
use std::fmt::Write as _;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::result::ConnectorError;

use crate::operation::Operation;
use crate::retry::{Fate, classify_answer};

/// Why the table could not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such table in this Region, or at this endpoint.
    #[error(
        "there is no table {table:?} {place}: create it (Terraform; `sluice sandbox`, or `sluice buckets apply --create-table` at a local endpoint), or set SLUICE_TABLE_NAME to a table that exists"
    )]
    NoTable {
        /// The table's name.
        table: String,
        /// Where it was looked for: "in Region eu-central-1", or "at" an endpoint and the setting that names
        /// it.
        place: String,
    },
    /// The AWS SDK found no credentials, or the service did not accept them.
    #[error(
        "no valid AWS credentials for {operation}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
         AWS_PROFILE, or run under a role; after `aws sso login`, or if the profile needs the AWS CLI: \
         eval \"$(aws configure export-credentials --format env)\"; for a sandbox: set all the variables that \
         `sluice sandbox` prints ({message})"
    )]
    Credentials {
        /// The API operation.
        operation: &'static str,
        /// The SDK's or the service's message.
        message: String,
    },
    /// The role lacks the right to this operation.
    #[error("the role may not call {operation} on table {table:?}: {message}")]
    AccessDenied {
        /// The API operation.
        operation: &'static str,
        /// The table's name.
        table: String,
        /// The service's message.
        message: String,
    },
    /// DynamoDB cannot be reached, does not answer in time, or fails.
    #[error(
        "DynamoDB is unavailable ({operation}): {message}{}; check the network, SLUICE_AWS_REGION and SLUICE_ENDPOINT_URL",
        effect(.operation, *.maybe_applied)
    )]
    Unavailable {
        /// The API operation.
        operation: &'static str,
        /// What failed.
        message: String,
        /// Whether the write may have been applied although it failed.
        maybe_applied: bool,
    },
    /// In every try, other writers held the item, or the partition was over its throughput. Nothing was
    /// applied, and the error states nothing about any quota.
    #[error("{operation} met a conflict or throttling in every try: {message}{}", effect(.operation, false))]
    Contended {
        /// The API operation.
        operation: &'static str,
        /// The service's last message.
        message: String,
    },
    /// DynamoDB rejected the request itself.
    #[error("DynamoDB rejected {operation} on table {table:?}: {message}")]
    Rejected {
        /// The API operation.
        operation: &'static str,
        /// The table's name.
        table: String,
        /// The service's message.
        message: String,
    },
}

impl StoreError {
    /// Whether DynamoDB is unavailable, as opposed to used wrongly.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The same error for a caller whose own request was never sent.
    #[must_use]
    pub fn unsent(self) -> Self {
        match self {
            Self::Unavailable { operation, message, .. } => {
                Self::Unavailable { operation, message, maybe_applied: false }
            }
            other => other,
        }
    }
}

/// What became of a request that failed, if it could change anything.
fn effect(operation: &str, maybe_applied: bool) -> &'static str {
    let reads = Operation::ALL.iter().any(|one| one.as_str() == operation && one.reads());
    match (reads, maybe_applied) {
        (_, true) => "; the write may have been applied",
        (true, false) => "",
        (false, false) => "; nothing was applied",
    }
}

pub(super) fn fate<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Fate {
    match error {
        SdkError::ConstructionFailure(_) => Fate::Permanent,
        SdkError::DispatchFailure(failure) => {
            let is_refused = failure.as_connector_error().is_some_and(was_not_sent);
            match failure.as_connector_error() {
                Some(e) if e.is_user() || (e.is_other() && credentials_fault(e)) => Fate::Permanent,
                Some(_) if is_refused => Fate::NotSent,
                _ => Fate::Ambiguous,
            }
        }
        // Applied, but the reply is not DynamoDB's, or is incomplete.
        SdkError::ServiceError(context) if context.raw().status().is_success() => Fate::Ambiguous,
        SdkError::ServiceError(context) => {
            classify_answer(context.err().code().unwrap_or_default(), context.raw().status().as_u16())
        }
        _ => Fate::Ambiguous,
    }
}

fn has_source(error: &(dyn StdError + 'static), is: fn(&(dyn StdError + 'static)) -> bool) -> bool {
    let mut source = Some(error);
    while let Some(current) = source {
        if is(current) {
            return true;
        }
        source = current.source();
    }
    false
}

/// An attempt that ended by its time may have been sent, whatever its error says of others.
fn was_not_sent(error: &ConnectorError) -> bool {
    !error.is_timeout() && has_source(error, never_connected)
}

fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    use std::io::ErrorKind;
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::AddrNotAvailable,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
    ];
    error.downcast_ref::<std::io::Error>().is_some_and(|e| kinds.contains(&e.kind()))
        || error.to_string().contains("dns error")
}

fn credentials_fault(error: &(dyn StdError + 'static)) -> bool {
    has_source(error, |e| {
        let text = e.to_string();
        text.contains("credential") || text.contains("identity")
    })
}

/// Error codes that mean that the service rejects the caller, not the request.
const CREDENTIAL_CODES: [&str; 5] = [
    "UnrecognizedClientException",
    "ExpiredTokenException",
    "InvalidSignatureException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
];

/// Error codes that mean that AWS rejects a signature that seems too old or too young.
const SKEW_CODES: [&str; 3] = ["InvalidSignatureException", "SignatureDoesNotMatch", "RequestTimeTooSkewed"];

/// Whether the request may have been signed by a clock that is off by more than AWS accepts (some minutes).
/// The AWS SDK signs the next request by the `Date` of this reply, so the same request is worth a second try.
/// A wrong secret has the same code, and fails again.
pub(super) fn is_clock_skew<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    error.code().is_some_and(|code| SKEW_CODES.contains(&code))
}

/// The error for a caller. `endpoint` is where the request went.
pub(super) fn describe<E>(
    operation: &'static str,
    (table, endpoint): (&str, &str),
    maybe_applied: bool,
    error: SdkError<E, HttpResponse>,
) -> StoreError
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let table = table.to_owned();
    if let SdkError::ServiceError(context) = &error {
        let code = context.err().code().unwrap_or_default();
        let message = context.err().message().unwrap_or(code).to_owned();
        let status = context.raw().status().as_u16();
        // An answer without a code comes from a proxy, or from something that is not DynamoDB.
        let text = if code.is_empty() {
            let begins = beginning(context.raw());
            format!(
                "HTTP status {status}, and the reply is not DynamoDB's ({begins}): a proxy may have sent it"
            )
        } else {
            format!("{code}: {message}")
        };
        return match code {
            "ResourceNotFoundException" => StoreError::NoTable { table, place: place(endpoint) },
            "AccessDeniedException" => StoreError::AccessDenied { operation, table, message },
            code if CREDENTIAL_CODES.contains(&code) => StoreError::Credentials { operation, message },
            _ if matches!(fate(&error), Fate::Conflict | Fate::Throttled) && !maybe_applied => {
                StoreError::Contended { operation, message: text }
            }
            _ if fate(&error).is_transient() => {
                StoreError::Unavailable { operation, message: text, maybe_applied }
            }
            _ => StoreError::Rejected { operation, table, message: text },
        };
    }
    let mut message = chain(&error);
    if NOT_HTTP.iter().any(|part| message.contains(part)) {
        message.push_str(": the server does not speak HTTP, or it speaks HTTPS and the URL says http");
    }
    match &error {
        SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) if credentials_fault(&error) => {
            StoreError::Credentials { operation, message }
        }
        SdkError::ConstructionFailure(_) => StoreError::Rejected { operation, table, message },
        _ => StoreError::Unavailable {
            operation,
            message: unanswered(endpoint, fate(&error), &message),
            maybe_applied,
        },
    }
}

/// The Region of AWS, or the endpoint in its place.
fn place(endpoint: &str) -> String {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    match host.strip_prefix("dynamodb.").and_then(|host| host.strip_suffix(".amazonaws.com")) {
        Some(region) => format!("in Region {region}"),
        // Of an account, of another partition, or of FIPS.
        None if host.contains(".amazonaws.com") || host.ends_with(".api.aws") => format!("at {endpoint}"),
        None => format!("at {endpoint} (SLUICE_ENDPOINT_URL)"),
    }
}

/// Why an attempt at `endpoint` has no answer.
pub(super) fn no_answer(endpoint: &str, error: &ConnectorError) -> String {
    let fate = if was_not_sent(error) { Fate::NotSent } else { Fate::Ambiguous };
    unanswered(endpoint, fate, &chain(error))
}

/// Where the request went, and why there is no answer. What the SDK calls the kinds of its own errors is left
/// out.
fn unanswered(endpoint: &str, fate: Fate, message: &str) -> String {
    const KINDS: [&str; 4] = ["dispatch failure: ", "timeout: ", "io error: ", "client error (Connect): "];
    let reason = KINDS.iter().fold(message, |text, kind| text.strip_prefix(kind).unwrap_or(text));
    match fate {
        // The failure of an earlier attempt, which names the endpoint.
        _ if reason.contains(endpoint) => reason.to_owned(),
        Fate::NotSent => format!("no connection to {endpoint}: {reason}"),
        _ => format!("{endpoint}: {reason}"),
    }
}

/// What hyper says of bytes that are not an HTTP reply.
const NOT_HTTP: [&str; 2] = ["invalid HTTP", "message parse error"];

/// The most bytes of a reply that a message quotes.
const MOST_QUOTED: usize = 80;

/// The beginning of a reply, for a message.
fn beginning(reply: &HttpResponse) -> String {
    let body = reply.body().bytes().unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(MOST_QUOTED)]);
    format!("{:?}{}", text.trim(), if body.len() > MOST_QUOTED { " and more" } else { "" })
}

/// An error with all its causes, each stated once.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(current) = source {
        let part = current.to_string();
        if !text.contains(&part) {
            let _ = write!(text, ": {part}");
        }
        source = current.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_told_with_the_place_where_it_was_looked_for() {
        let told =
            |endpoint| StoreError::NoTable { table: "limits".to_owned(), place: place(endpoint) }.to_string();
        let local = told("http://127.0.0.1:37451");
        assert!(
            local.starts_with(
                r#"there is no table "limits" at http://127.0.0.1:37451 (SLUICE_ENDPOINT_URL):"#
            ),
            "{local}"
        );
        let aws = told("https://dynamodb.eu-central-1.amazonaws.com");
        assert!(aws.starts_with(r#"there is no table "limits" in Region eu-central-1:"#), "{aws}");
        let of_account = told("https://123456789012.ddb.eu-central-1.amazonaws.com");
        assert!(
            of_account.contains(r#"at https://123456789012.ddb.eu-central-1.amazonaws.com:"#),
            "{of_account}"
        );
    }

    #[test]
    fn what_was_applied_is_told_of_writes_only() {
        let contended = |operation| {
            let message = "ThrottlingException: too fast".to_owned();
            StoreError::Contended { operation, message }.to_string()
        };
        for read in [Operation::Scan, Operation::GetItem] {
            let told = contended(read.as_str());
            assert!(told.ends_with("in every try: ThrottlingException: too fast"), "{told}");
        }
        let told = contended(Operation::UpdateItem.as_str());
        assert!(told.ends_with("too fast; nothing was applied"), "{told}");
        let unavailable = |operation: Operation, maybe_applied| {
            let (operation, message) = (operation.as_str(), "no answer".to_owned());
            StoreError::Unavailable { operation, message, maybe_applied }.to_string()
        };
        for (told, effect) in [
            (unavailable(Operation::Scan, false), "(Scan): no answer; check the network"),
            (unavailable(Operation::UpdateItem, false), "no answer; nothing was applied; check the network"),
            (
                unavailable(Operation::UpdateItem, true),
                "no answer; the write may have been applied; check the network",
            ),
        ] {
            assert!(told.contains(effect), "{told}");
        }
    }
}
