//! The one rule of waiting, for all lanes: what keeps callers from an answer. A caller that waits stays in
//! the queue until its own deadline, unless the setback is one that time does not end. A caller that does not
//! wait receives the setback at once.

use std::time::Duration;

use sluice_core::Dimension;
use sluice_table::StoreError;

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, contended};

/// Why a caller has no grant yet.
#[derive(Clone, Debug)]
pub(crate) enum Setback {
    /// The bucket refuses, or other writers were faster in every try.
    Refused(RetryIn),
    /// DynamoDB throttled a request in every try.
    Throttled(RetryIn),
    /// DynamoDB is out.
    Out(StoreError),
    /// A setback that time does not end: no right, no table, no bucket, a row that cannot be read.
    Final(AcquireError),
}

/// The outcome of one attempt on one or all of a caller's dimensions.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Granted(T),
    Refused(RetryIn),
}

/// How the caller that has the setback can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePatience {
    /// How long the caller would still stay in the queue; zero for now or not at all.
    pub(crate) stays: Duration,
    /// Whether the process answers an outage (`SLUICE_ON_UNAVAILABLE`): there is nothing to wait for.
    pub(crate) answers_locally: bool,
    /// Whether the caller waits for slots, and through conflicts, elsewhere.
    pub(crate) moves_on: bool,
}

impl QueuePatience {
    /// Whether the caller prefers to wait for `retry`. An exact wait that ends too late is returned at once.
    pub(crate) fn waits_for(self, retry: &RetryIn) -> bool {
        let is_late = retry.reason.is_over_in_time() && retry.wait > self.stays;
        !self.stays.is_zero() && !is_late && !self.moves_on
    }
}

impl Setback {
    /// Returns what a failed read or write of `dimension` means.
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

    /// Whether a caller with this patience stays in the queue; otherwise it receives the setback.
    pub(crate) fn is_waited_out(&self, patience: QueuePatience) -> bool {
        match self {
            Self::Refused(retry) | Self::Throttled(retry) => patience.waits_for(retry),
            Self::Out(_) => !patience.stays.is_zero() && !patience.answers_locally,
            Self::Final(_) => false,
        }
    }

    /// Returns the answer to a caller that does not stay, or whose patience has ended.
    pub(crate) fn refusal(self) -> Result<RetryIn, AcquireError> {
        match self {
            Self::Refused(retry) | Self::Throttled(retry) => Ok(retry),
            Self::Out(error) => Err(error.into()),
            Self::Final(error) => Err(error),
        }
    }

    /// The same as the answer to a caller that takes.
    pub(crate) fn answer<T>(self) -> Result<Taken<T>, AcquireError> {
        self.refusal().map(Taken::Refused)
    }

    /// The same for a caller for which nothing was sent.
    pub(crate) fn unsent(self) -> Self {
        match self {
            Self::Out(error) => Self::Out(error.unsent()),
            other => other,
        }
    }

    /// The same after an earlier setback: a write that may have been applied then may still have been.
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
