//! What a benchmark measures Sluice against: limiters in DynamoDB without Sluice. Their requests are those of
//! the AWS SDK and nothing more.

use std::time::Duration;

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;

mod lone_update;
mod reference;

pub use lone_update::{LoneUpdate, OwnUpdate};
pub use reference::{Reference, ReferenceLease};

/// The answer of a limiter.
#[derive(Clone, Debug)]
pub enum TakeResult<Held> {
    /// The caller may call the vendor.
    Granted {
        /// What the caller needs to give the grant back.
        held: Held,
        /// How long the grant took, if that is not the time until the answer.
        waited: Option<Duration>,
    },
    /// Refused, because there is no quota now.
    Refused {
        /// The wait until the caller should ask again.
        wait: Duration,
    },
    /// Refused, because other callers were faster in every try.
    GaveUp,
}

impl<Held> TakeResult<Held> {
    /// A grant that took the time until the answer.
    #[must_use]
    pub const fn granted(held: Held) -> Self {
        Self::Granted { held, waited: None }
    }
}

/// Why a limiter has no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct YardstickError(String);

fn failed(error: impl std::error::Error) -> YardstickError {
    YardstickError(DisplayErrorContext(error).to_string())
}

/// In milliseconds, as the description states.
const BASE_BACKOFF: u64 = 25;
const LONGEST_BACKOFF: u64 = 200;

/// The backoff, with full jitter.
fn backoff(attempt: u32) -> Duration {
    let longest = BASE_BACKOFF.saturating_mul(1 << attempt.min(10)).min(LONGEST_BACKOFF);
    Duration::from_micros(fastrand::u64(0..=longest * 1_000))
}

/// Error codes that mean that nothing was applied, and that the same request may succeed later.
const BUSY: [&str; 5] = [
    "TransactionCanceledException",
    "TransactionConflictException",
    "TransactionInProgressException",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
];

fn is_busy<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    error.as_service_error().and_then(|error| error.code()).is_some_and(|code| BUSY.contains(&code))
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn digits(value: impl std::fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
