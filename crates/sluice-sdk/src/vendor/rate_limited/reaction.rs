//! What was done about a refusal, for the one line that is logged about it.

use std::fmt;

use sluice_core::{Amount, Dimension, Timestamp};
use sluice_vendors::VendorRefusal;

use crate::api::error::AcquireError;
use crate::vendor::rate_limited::Decision;

/// A refusal, the buckets that it is blamed on, and what was done to them so far.
#[derive(Debug)]
pub(super) struct Reaction {
    refusal: VendorRefusal,
    blamed: Vec<Dimension>,
    done: Vec<(Dimension, Done)>,
}

/// A change of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    CoolingDown(Timestamp),
    LoweredTo(Amount),
    /// Other writers were faster in every try.
    NotLowered,
}

impl Reaction {
    pub(super) fn to(refusal: VendorRefusal) -> Self {
        Self { refusal, blamed: Vec::new(), done: Vec::new() }
    }

    pub(super) fn blame<'a>(&mut self, dimensions: impl Iterator<Item = &'a Dimension>) {
        self.blamed = dimensions.cloned().collect();
    }

    /// Notes a change. It has a line of its own only for those who look closely.
    pub(super) fn did(&mut self, dimension: &Dimension, done: Done) {
        match done {
            Done::CoolingDown(until) => tracing::debug!(event = "cool_down.set", %dimension, %until),
            Done::LoweredTo(level) => tracing::debug!(event = "penalize.applied", %dimension, %level),
            Done::NotLowered => {}
        }
        self.done.push((dimension.clone(), done));
    }

    /// Logs the refusal, also if the reaction failed half way.
    pub(super) fn log(&self, decision: &Result<Decision, AcquireError>) {
        let blamed: Vec<&str> = self.blamed.iter().map(Dimension::as_str).collect();
        let (dimensions, refusal, done) = (blamed.join(","), self.refusal, self);
        match decision {
            Ok(decision) => {
                tracing::warn!(event = "vendor.refused", dimensions, ?refusal, %done, ?decision);
            }
            Err(error) => tracing::warn!(event = "vendor.refused", dimensions, ?refusal, %done, %error),
        }
    }
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.done.is_empty() {
            return f.write_str("nothing");
        }
        for (at, (dimension, done)) in self.done.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            match done {
                Done::CoolingDown(until) => write!(f, "{separator}{dimension} cools down until {until}")?,
                Done::LoweredTo(level) => write!(f, "{separator}{dimension} lowered to {level}")?,
                Done::NotLowered => {
                    write!(f, "{separator}{dimension} not lowered, since other writers were faster")?
                }
            }
        }
        Ok(())
    }
}
