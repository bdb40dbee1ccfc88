//! The result of a request that needs a special right, or that not every endpoint supports.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

/// The result of a probe.
#[derive(Clone, Debug)]
pub enum Probed<T> {
    /// DynamoDB answered.
    Given(T),
    /// The role lacks the right to this request.
    Denied,
    /// The endpoint does not support the request: it is an engine for development. With its message.
    Unsupported(String),
    /// The request failed, with this message.
    Failed(String),
}

impl<T> Probed<T> {
    pub(super) fn of<E>(result: Result<T, SdkError<E>>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let error = match result {
            Ok(reply) => return Self::Given(reply),
            Err(error) => error,
        };
        let Some(code) = error.code() else { return Self::Failed(DisplayErrorContext(&error).to_string()) };
        let message = format!("{code}: {}", error.message().unwrap_or("no more is known"));
        match code {
            "AccessDeniedException" => Self::Denied,
            "UnknownOperationException" | "SerializationException" | "InvalidAction" => {
                Self::Unsupported(message)
            }
            _ => Self::Failed(message),
        }
    }

    /// The answer, if there is one.
    #[must_use]
    pub fn given(self) -> Option<T> {
        match self {
            Self::Given(answer) => Some(answer),
            _ => None,
        }
    }
}
