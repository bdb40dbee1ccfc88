//! Converts core's integers into the floats that a picture shows.

use sluice_sdk::core::{Amount, Rate, Timestamp};

/// Tokens, or slots.
#[allow(clippy::cast_precision_loss)]
pub(super) fn tokens(amount: Amount) -> f64 {
    amount.micros() as f64 / 1e6
}

/// Tokens a second.
pub(super) fn per_second(rate: Rate) -> f64 {
    rate.to_string().parse().unwrap_or_default()
}

/// Seconds since the epoch.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn seconds(at: Timestamp) -> f64 {
    at.micros() as f64 / 1e6
}
