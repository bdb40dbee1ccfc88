//! Answers of DynamoDB to requests that need a special right, or that not every endpoint supports.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use super::finding::{Check, Finding};

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Given(T),
    /// The role lacks the right to this request.
    Denied,
    /// The endpoint does not support the request: it is an engine for development.
    Unknown,
    Failed(String),
}

impl<T> Answer<T> {
    pub(super) fn of<E>(result: Result<T, SdkError<E>>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let error = match result {
            Ok(reply) => return Self::Given(reply),
            Err(error) => error,
        };
        match error.code() {
            Some("AccessDeniedException") => Self::Denied,
            Some("UnknownOperationException" | "SerializationException" | "InvalidAction") => Self::Unknown,
            Some(code) => Self::Failed(format!("{code}: {}", error.message().unwrap_or("no message"))),
            None => Self::Failed(DisplayErrorContext(&error).to_string()),
        }
    }

    /// The reply. If there is none, a finding that says why `check` has no result.
    pub(super) fn or_cannot_tell(self, check: Check, table: &str, operation: &str) -> Result<T, Finding> {
        let cannot_tell = |why: String, todo: &str| Finding::note(check, table, why, todo);
        match self {
            Self::Given(reply) => Ok(reply),
            Self::Denied => Err(cannot_tell(
                format!("cannot tell: needs dynamodb:{operation}"),
                "run `sluice doctor` with a role that has this right, or give it to this role; callers do not need it",
            )),
            Self::Unknown => Err(cannot_tell(
                format!("cannot tell: this endpoint has no {operation}"),
                "nothing: this is an engine for development",
            )),
            Self::Failed(message) => {
                Err(cannot_tell(format!("cannot tell: {operation} failed: {message}"), "run `sluice doctor` again"))
            }
        }
    }
}
