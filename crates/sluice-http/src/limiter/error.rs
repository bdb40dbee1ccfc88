//! Why a limiter did not let a call through.

use sluice_sdk::LimitError;

/// The header of a reply that the limiter itself made: the bucket that refused the call. A vendor's reply
/// does not have it.
pub const REFUSED_BY: &str = "x-sluice-refused-by";

/// The limiter failed, and the call was not made; or the client's own error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError<E> {
    /// The limiter could not decide: a bucket that cannot be read, a cost that can never be granted, a table
    /// that does not answer (see `SLUICE_ON_UNAVAILABLE`).
    #[error("the call was not made: {0}")]
    Limit(#[from] LimitError),
    /// The body of the request could not be read.
    #[error("the call was not made: its body could not be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The client's own error.
    #[error(transparent)]
    Client(E),
}
