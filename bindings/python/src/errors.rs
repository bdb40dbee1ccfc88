//! Errors of the SDK as exceptions of `sluice.errors`, with the same texts.

use std::fmt::Display;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_sdk::ops::{BucketError, LimitsError, SweepError};
use sluice_sdk::reactions::{PenalizeError, RefillError};
use sluice_sdk::{
    AcquireError, ConfigError, LimitError, RedeemError, ReleaseError, RenewError, SettleError, StoreError,
};

use crate::values::IntoPython as _;

/// An error that Python can raise.
pub(crate) trait Raise {
    fn raise(self, py: Python<'_>) -> PyErr;
}

/// An exception of `sluice.errors`.
pub(crate) fn error(py: Python<'_>, class: &str, text: impl Display) -> PyErr {
    with_fields(py, class, text, |_| Ok(()))
}

fn with_fields(
    py: Python<'_>,
    class: &str,
    text: impl Display,
    set: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let make = || {
        let fields = PyDict::new(py);
        set(&fields)?;
        py.import("sluice.errors")?.getattr(class)?.call((text.to_string(),), Some(&fields))
    };
    make().map_or_else(|failed| failed, PyErr::from_value)
}

/// A use of what a parent of this process holds.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    error(
        py,
        "ForkedError",
        "this was granted to the process that forked this one, which ends it: acquire anew here",
    )
}

pub(crate) fn ended(py: Python<'_>) -> PyErr {
    error(py, "EndedError", "the grant was released before")
}

/// An error that is raised as it is.
impl Raise for PyErr {
    fn raise(self, _: Python<'_>) -> PyErr {
        self
    }
}

impl Raise for std::convert::Infallible {
    fn raise(self, _: Python<'_>) -> PyErr {
        match self {}
    }
}

impl Raise for ConfigError {
    fn raise(self, py: Python<'_>) -> PyErr {
        error(py, "ConfigError", self)
    }
}

impl Raise for StoreError {
    fn raise(self, py: Python<'_>) -> PyErr {
        let class = match &self {
            Self::NoTable { .. } => "NoTableError",
            Self::Credentials { .. } => "CredentialsError",
            Self::AccessDenied { .. } => "AccessDeniedError",
            Self::Unavailable { .. } => "UnavailableError",
            Self::Contended { .. } => "ContendedError",
            Self::Rejected { .. } => "RejectedError",
            _ => "StoreError",
        };
        error(py, class, self)
    }
}

impl Raise for AcquireError {
    fn raise(self, py: Python<'_>) -> PyErr {
        let class = match self {
            Self::Store(store) => return store.raise(py),
            Self::Request(_) => "RequestError",
            Self::UnknownDimension { .. } => "UnknownDimensionError",
            Self::NeverSatisfiable { .. } => "NeverSatisfiableError",
            Self::TooLargeForInline { .. } => "TooLargeForInlineError",
            Self::CorruptRow { .. } => "CorruptRowError",
            Self::Closed => "ClosedError",
            _ => "AcquireError",
        };
        error(py, class, self)
    }
}

impl Raise for LimitError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Refused(ref retry) => {
                let retry = retry.clone();
                with_fields(py, "RefusedError", &self, |fields| {
                    fields.set_item("retry", retry.into_python(py)?)
                })
            }
            Self::TimedOut(_) => error(py, "TimedOutError", self),
            Self::Closed => error(py, "ClosedError", self),
            Self::Acquire(error) => error.raise(py),
            Self::Settle(error) => error.raise(py),
            Self::Release(error) => error.raise(py),
            Self::Renew(error) => error.raise(py),
            Self::Redeem(error) => error.raise(py),
            Self::Penalize(error) => error.raise(py),
            other => error(py, "LimitError", other),
        }
    }
}

impl Raise for SettleError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Acquire(error) => error.raise(py),
            Self::Ended(_) => error(py, "EndedError", self),
            other => error(py, "SettleError", other),
        }
    }
}

impl Raise for ReleaseError {
    fn raise(self, py: Python<'_>) -> PyErr {
        error(py, "ReleaseError", self)
    }
}

impl Raise for RenewError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::LeaseGone { .. } => error(py, "LeaseGoneError", self),
            Self::Store(error) => error.raise(py),
            other => error(py, "LimitError", other),
        }
    }
}

impl Raise for RedeemError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Acquire(error) => error.raise(py),
            other => error(py, "RedeemError", other),
        }
    }
}

impl Raise for PenalizeError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Acquire(error) => error.raise(py),
            other => error(py, "PenalizeError", other),
        }
    }
}

impl Raise for RefillError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Acquire(error) => error.raise(py),
            other => error(py, "RefillError", other),
        }
    }
}

impl Raise for BucketError {
    fn raise(self, py: Python<'_>) -> PyErr {
        let class = match self {
            Self::Store(store) => return store.raise(py),
            Self::Unknown { .. } => "UnknownDimensionError",
            _ => "CorruptRowError",
        };
        error(py, class, self)
    }
}

impl Raise for LimitsError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Bucket(error) => error.raise(py),
            other => error(py, "LimitsError", other),
        }
    }
}

impl Raise for SweepError {
    fn raise(self, py: Python<'_>) -> PyErr {
        error(py, "SweepError", self)
    }
}
