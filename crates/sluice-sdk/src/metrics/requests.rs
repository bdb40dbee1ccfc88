//! What requests to DynamoDB took, cost, and came to.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::ConsumedCapacity;

use super::names;

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Ok,
    /// The condition of a write, or of one in a transaction, was false.
    Condition,
    /// Another transaction held a row.
    Conflict,
    /// DynamoDB refused it for its rate.
    Throttled,
    /// Anything else, and no reply at all.
    Error,
}

impl Ended {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Condition => "condition",
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::Error => "error",
        }
    }
}

/// A request was answered, or given up.
pub(crate) fn ended(operation: &'static str, ended: Ended, took: Duration) {
    names::REQUEST_DURATION.histogram([operation.into(), ended.as_str().into()]).record(took);
    if matches!(ended, Ended::Condition | Ended::Conflict | Ended::Throttled) {
        names::CONFLICTS.counter([operation.into(), ended.as_str().into()]).increment(1);
    }
}

/// A request is sent again.
pub(crate) fn retried(operation: &'static str) {
    names::RETRIES.counter([operation.into()]).increment(1);
}

/// Units that were used and not counted yet: a counter takes whole ones, and reads cost halves.
#[derive(Debug, Default)]
pub(crate) struct Units([AtomicI64; OPERATIONS.len()]);

/// What Sluice asks of DynamoDB, and whether it reads or writes.
const OPERATIONS: [(&str, &str); 7] = [
    ("GetItem", "read"),
    ("BatchGetItem", "read"),
    ("Scan", "read"),
    ("PutItem", "write"),
    ("UpdateItem", "write"),
    ("DeleteItem", "write"),
    ("TransactWriteItems", "write"),
];

const UNIT_MICROS: i64 = 1_000_000;

impl Units {
    /// Counts what a reply tells.
    pub(crate) fn used<'a>(&self, operation: &'static str, told: impl Iterator<Item = &'a ConsumedCapacity>) {
        let used =
            told.filter_map(ConsumedCapacity::capacity_units).filter_map(micros).fold(0_i64, i64::saturating_add);
        let Some(at) = OPERATIONS.iter().position(|(name, _)| *name == operation).filter(|_| used > 0) else { return };
        let before = self.0[at].fetch_add(used, Ordering::Relaxed);
        // What is below one unit is counted with the next.
        let whole = before.saturating_add(used) / UNIT_MICROS - before / UNIT_MICROS;
        if let Ok(whole @ 1..) = u64::try_from(whole) {
            names::CAPACITY_UNITS.counter([operation.into(), OPERATIONS[at].1.into()]).increment(whole);
        }
    }
}

/// Millionths of a unit. A `Duration` converts a double without a text between; below zero is none.
fn micros(units: f64) -> Option<i64> {
    Duration::try_from_secs_f64(units).ok().and_then(|units| i64::try_from(units.as_micros()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_carried_until_they_are_whole() {
        let units = Units::default();
        let half = ConsumedCapacity::builder().capacity_units(0.5).build();
        let whole = |units: &Units| units.0[0].load(Ordering::Relaxed) / UNIT_MICROS;
        units.used("GetItem", [&half].into_iter());
        assert_eq!(whole(&units), 0);
        units.used("GetItem", [&half, &half].into_iter());
        assert_eq!((whole(&units), units.0[0].load(Ordering::Relaxed)), (1, 1_500_000));
        units.used("CreateTable", [&half].into_iter());
        assert_eq!(units.0.iter().map(|carried| carried.load(Ordering::Relaxed)).sum::<i64>(), 1_500_000);
    }
}
