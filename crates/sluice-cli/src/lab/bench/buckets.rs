//! The limits and names of the buckets that are measured.

use std::time::Duration;

use sluice_sdk::core::{Amount, Cost, Dimension, Limit, LimitType, Rate};

use crate::failure::Failure;

/// A requests limit of 600 a minute whose capacity no run uses up.
pub(crate) fn plenty() -> Result<Limit, Failure> {
    let capacity = Amount::from_tokens(1_000_000_000);
    per_minute(LimitType::Requests, 600, capacity)
}

/// What such a bucket holds at first: not full, so that it neither refuses nor overflows.
pub(crate) const PLENTY: Amount = Amount::from_tokens(900_000_000);

pub(crate) fn per_minute(limit_type: LimitType, tokens: i32, capacity: Amount) -> Result<Limit, Failure> {
    let rate = Rate::per(Amount::from_tokens(tokens), Duration::from_secs(60));
    let rate = rate.ok_or_else(|| Failure::new("no such rate"))?;
    Ok(Limit::rate(limit_type, capacity, rate, Cost::ONE)?)
}

pub(crate) fn slots(slots: i32) -> Result<Limit, Failure> {
    Ok(Limit::concurrent(Amount::from_tokens(slots), Cost::ONE)?)
}

/// The name of one of many buckets.
pub(crate) fn many(n: usize) -> Result<Dimension, Failure> {
    Ok(Dimension::new(&format!("vendor{n}#rpm"))?)
}
