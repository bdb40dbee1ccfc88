//! The error of everything that belongs to a slot.

use std::time::Duration;

use crate::api::error::AcquireError;
use crate::api::refusal::RetryIn;
use crate::call::ticket::redeem::RedeemError;
use crate::grant::held_leases::RenewError;
use crate::lane::release::ReleaseError;
use crate::lane::settle::SettleError;
use crate::vendor::penalize::PenalizeError;

/// What the limiter did not do, and why: the error of everything that belongs to a
/// [`slot`](crate::Client::slot). All other errors of a client convert into it.
///
/// The error of a slot's closure must be `From<LimitError>`. An error enum with a variant `#[from]
/// LimitError` is, and so are `Box<dyn Error + Send + Sync>` and this type itself.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No start was available within the wait; the call was not made.
    #[error("no start within the wait: {0}")]
    Refused(RetryIn),
    /// The call was still running at the timeout and was cancelled; or it was not made, because its start or
    /// DynamoDB's answer came too late. Slots are given back. The tokens of a call that was made stay taken,
    /// unless it recorded what it used: the vendor may have counted them.
    #[error(
        "timed out after {} s: slots are given back, and a call that had begun keeps its tokens",
        .0.as_secs_f64()
    )]
    TimedOut(Duration),
    /// No piece of a streamed reply was read for this long, and the call was ended.
    #[error("no piece of the reply was read for {} s: the call was ended, and its slot given back", .0.as_secs_f64())]
    Idle(Duration),
    /// The client was closed while the call was running, and the call was cut off.
    #[error("the client was closed while the call was running, and the call was cut off")]
    Closed,
    /// An error of the table or of the request; nothing was taken.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// What the call used could not be settled.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// A release could not be confirmed.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A lease could not be renewed.
    #[error(transparent)]
    Renew(#[from] RenewError),
    /// A ticket could not be redeemed.
    #[error(transparent)]
    Redeem(#[from] RedeemError),
    /// A penalty could not be applied.
    #[error(transparent)]
    Penalize(#[from] PenalizeError),
}

impl LimitError {
    /// In how many seconds another try is worthwhile, for `Retry-After` or SQS's `DelaySeconds`: for a
    /// refusal, [`RetryIn::delay_seconds`]; for any other error, one.
    #[must_use]
    pub fn delay_seconds(&self) -> u32 {
        match self {
            Self::Refused(retry) => retry.delay_seconds(),
            _ => 1,
        }
    }

    /// The name of the error in spans.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::TimedOut(_) => "timeout",
            Self::Idle(_) => "idle",
            Self::Closed => "closed",
            _ => "error",
        }
    }
}
