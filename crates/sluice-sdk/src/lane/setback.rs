//! The one rule of waiting: what keeps callers from an answer, and what that means for those who wait and those who do not.
//!
//! A caller that is willing to wait keeps its place in line until its own deadline, whatever comes between, but for what time does
//! not mend. One that is not hears at once what is in the way. All lanes ask here, and only here.

use std::time::Duration;

use sluice_core::Dimension;
use sluice_table::StoreError;

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, contended};

/// Why a caller has no grant yet.
#[derive(Clone, Debug)]
pub(crate) enum Setback {
    /// Its bucket refuses; or other writers were faster in every try.
    Refused(RetryIn),
    /// DynamoDB held a request back for its rate, in every try.
    Throttled(RetryIn),
    /// DynamoDB is out.
    Out(StoreError),
    /// Nothing that time mends: no right, no table, no bucket, a row that cannot be read.
    Final(AcquireError),
}

/// What came of one attempt on one or all of its dimensions.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Granted(T),
    Refused(RetryIn),
}

/// Who has the setback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// How long it would still stay in line; nothing for now or not at all.
    pub(crate) stays: Duration,
    /// Whether an outage is answered by the process itself (`SLUICE_ON_UNAVAILABLE`), so that there is nothing to wait for.
    pub(crate) answers_locally: bool,
}

impl Patience {
    /// Whether it would rather wait for `retry` than hear of it: an exact wait that ends too late is told at once.
    pub(crate) fn waits_for(self, retry: &RetryIn) -> bool {
        let is_late = retry.reason.is_over_in_time() && retry.wait > self.stays;
        !self.stays.is_zero() && !is_late
    }
}

impl Setback {
    /// What a failed read or write of `dimension` means.
    pub(crate) fn of(error: AcquireError, dimension: &Dimension) -> Self {
        match error {
            AcquireError::Store(StoreError::Contended { .. }) => Self::Throttled(contended(dimension)),
            AcquireError::Store(error @ StoreError::Unavailable { .. }) => Self::Out(error),
            other => Self::Final(other),
        }
    }

    /// Other writers were faster in every try.
    pub(crate) fn overtaken(dimension: &Dimension) -> Self {
        Self::Refused(contended(dimension))
    }

    /// Whether a caller with this patience stays in line; else it hears the setback.
    pub(crate) fn is_waited_out(&self, patience: Patience) -> bool {
        match self {
            Self::Refused(retry) | Self::Throttled(retry) => patience.waits_for(retry),
            Self::Out(_) => !patience.stays.is_zero() && !patience.answers_locally,
            Self::Final(_) => false,
        }
    }

    /// What a caller hears that does not stay, or whose patience has ended.
    pub(crate) fn refusal(self) -> Result<RetryIn, AcquireError> {
        match self {
            Self::Refused(retry) | Self::Throttled(retry) => Ok(retry),
            Self::Out(error) => Err(error.into()),
            Self::Final(error) => Err(error),
        }
    }

    /// The same as the answer to a turn.
    pub(crate) fn answer<T>(self) -> Result<Taken<T>, AcquireError> {
        self.refusal().map(Taken::Refused)
    }

    /// The same for a caller that nothing was sent for.
    pub(crate) fn unsent(self) -> Self {
        match self {
            Self::Out(error) => Self::Out(error.unsent()),
            other => other,
        }
    }

    /// The same after an earlier one: a write that may have been applied then may still have been.
    pub(crate) fn following(self, earlier: Option<&Self>) -> Self {
        match (self, earlier) {
            (
                Self::Out(StoreError::Unavailable { operation, message, .. }),
                Some(Self::Out(StoreError::Unavailable { maybe_applied: true, .. })),
            ) => Self::Out(StoreError::Unavailable { operation, message, maybe_applied: true }),
            (this, _) => this,
        }
    }
}

#[cfg(test)]
mod tests;
