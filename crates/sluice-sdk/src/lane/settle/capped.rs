//! A settlement that the cap on debts cut short: somebody must learn of it, and once is enough.

use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Amount;
use tokio::time::Instant;

use crate::bucket::known::Known;

/// A bucket logs at most once in this time: a wrong unit is in every call.
const WARNED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// When a settlement of the bucket was last reported.
#[derive(Debug, Default)]
struct LastWarning(Mutex<Option<Instant>>);

/// Logs that a call used `used` and was charged only a part of it.
pub(super) fn warn(bucket: &Known, used: Amount, reserved: Amount, taken: Amount, not_charged: Amount) {
    let last = bucket.extensions.of::<LastWarning>();
    let (mut last, now) = (last.0.lock(), Instant::now());
    if last.is_some_and(|last| now.duration_since(last) < WARNED_AGAIN_AFTER) {
        return;
    }
    *last = Some(now);
    tracing::warn!(
        event = "settle.capped",
        dimension = %bucket.dimension,
        %used,
        %reserved,
        capacity = bucket.limit().map(|limit| tracing::field::display(limit.capacity())),
        %taken,
        %not_charged,
        "a call used far more than it reserved, and was charged only to the cap: check that `used` counts the \
         unit of the bucket; if it does, reserve more, or lift the cap (SLUICE_CAP_DEBT=off)"
    );
}
