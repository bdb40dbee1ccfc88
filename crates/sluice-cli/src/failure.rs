//! Errors of commands: one line for a person, whatever the cause.

use std::fmt;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) struct Failure(String);

/// The result of a command.
pub(crate) type Ended = Result<ExitCode, Failure>;

/// The exit code of a retryable refusal (`EX_TEMPFAIL` of sysexits).
pub(crate) const TRY_AGAIN: u8 = 75;

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
