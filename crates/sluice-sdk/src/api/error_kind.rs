//! The kinds of errors, as metrics name them.

use crate::api::error::AcquireError;
use crate::api::request::RequestError;

/// The kind of an error, as metrics name it.
pub(crate) trait ErrorKind {
    fn kind(&self) -> &'static str;
}

impl ErrorKind for AcquireError {
    fn kind(&self) -> &'static str {
        match self {
            Self::Store(error) if error.is_unavailable() => "unavailable",
            error => error.as_str(),
        }
    }
}

impl ErrorKind for RequestError {
    fn kind(&self) -> &'static str {
        "request"
    }
}
