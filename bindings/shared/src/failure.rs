//! Errors of the SDK with the name of their class, and the same texts.

use std::fmt::Display;

use serde::Serialize;
use serde_json::{Value, json};
use sluice_sdk::ops::{BucketError, LimitsError, SweepError};
use sluice_sdk::reactions::{PenalizeError, RefillError};
use sluice_sdk::reservations::ReservationError;
use sluice_sdk::{
    AcquireError, ConfigError, LimitError, RedeemError, ReleaseError, RenewError, SettleError, StoreError,
};

use crate::values::ToJson as _;

/// Why an operation failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The class of the error, as each language has it: `RefusedError`, `UnavailableError`.
    pub class: &'static str,
    /// What was wrong, and what to do.
    pub message: String,
    /// The refusal, if there is one.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub retry: Value,
}

impl Failure {
    pub(crate) fn new(class: &'static str, message: impl Display) -> Self {
        Self { class, message: message.to_string(), retry: Value::Null }
    }

    /// An argument that cannot be used.
    pub(crate) fn argument(message: impl Display) -> Self {
        Self::new("ArgumentError", message)
    }

    pub(crate) fn ended() -> Self {
        Self::new("EndedError", "the grant was released before")
    }

    /// The failure as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!(self).to_string()
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new("ConfigError", error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let class = match &error {
            StoreError::NoTable { .. } => "NoTableError",
            StoreError::Credentials { .. } => "CredentialsError",
            StoreError::AccessDenied { .. } => "AccessDeniedError",
            StoreError::Unavailable { .. } => "UnavailableError",
            StoreError::Contended { .. } => "ContendedError",
            StoreError::Rejected { .. } => "RejectedError",
            _ => "StoreError",
        };
        Self::new(class, error)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let class = match error {
            AcquireError::Store(store) => return store.into(),
            AcquireError::Request(_) => "RequestError",
            AcquireError::UnknownDimension { .. } => "UnknownDimensionError",
            AcquireError::NeverSatisfiable { .. } => "NeverSatisfiableError",
            AcquireError::TooLargeForInline { .. } => "TooLargeForInlineError",
            AcquireError::CorruptRow { .. } => "CorruptRowError",
            AcquireError::Closed => "ClosedError",
            _ => "AcquireError",
        };
        Self::new(class, error)
    }
}

impl From<LimitError> for Failure {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Refused(ref retry) => {
                Self { retry: retry.to_json(), ..Self::new("RefusedError", &error) }
            }
            LimitError::TimedOut(_) => Self::new("TimedOutError", error),
            LimitError::Closed => Self::new("ClosedError", error),
            LimitError::Acquire(error) => error.into(),
            LimitError::Settle(error) => error.into(),
            LimitError::Release(error) => error.into(),
            LimitError::Renew(error) => error.into(),
            LimitError::Redeem(error) => error.into(),
            LimitError::Penalize(error) => error.into(),
            other => Self::new("LimitError", other),
        }
    }
}

impl From<SettleError> for Failure {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Acquire(error) => error.into(),
            SettleError::Ended(_) => Self::new("EndedError", error),
            other => Self::new("SettleError", other),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        Self::new("ReleaseError", error)
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::LeaseGone { .. } => Self::new("LeaseGoneError", error),
            RenewError::Store(error) => error.into(),
            other => Self::new("LimitError", other),
        }
    }
}

impl From<RedeemError> for Failure {
    fn from(error: RedeemError) -> Self {
        match error {
            RedeemError::Acquire(error) => error.into(),
            other => Self::new("RedeemError", other),
        }
    }
}

impl From<PenalizeError> for Failure {
    fn from(error: PenalizeError) -> Self {
        match error {
            PenalizeError::Acquire(error) => error.into(),
            other => Self::new("PenalizeError", other),
        }
    }
}

impl From<RefillError> for Failure {
    fn from(error: RefillError) -> Self {
        match error {
            RefillError::Acquire(error) => error.into(),
            other => Self::new("RefillError", other),
        }
    }
}

impl From<BucketError> for Failure {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::Store(store) => store.into(),
            BucketError::Unknown { .. } => Self::new("UnknownDimensionError", error),
            _ => Self::new("CorruptRowError", error),
        }
    }
}

impl From<LimitsError> for Failure {
    fn from(error: LimitsError) -> Self {
        match error {
            LimitsError::Bucket(error) => error.into(),
            other => Self::new("LimitsError", other),
        }
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        Self::new("SweepError", error)
    }
}

impl From<&ReservationError> for Failure {
    fn from(error: &ReservationError) -> Self {
        match error {
            ReservationError::AtCapacity { .. } => Self::new("ReservationCapacityError", error),
            _ => Self::new("ReservationTakenError", error),
        }
    }
}
