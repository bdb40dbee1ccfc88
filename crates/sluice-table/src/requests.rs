//! Metrics of requests to DynamoDB: duration, units and outcome.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ::metrics::Key;
use aws_sdk_dynamodb::types::ConsumedCapacity;
use sluice_core::ClockOffset;

use crate::metric as names;
use crate::operation::Operation;

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Ok,
    /// The condition of a write, or of one write in a transaction, was false.
    Condition,
    /// Another transaction held a row.
    Conflict,
    /// DynamoDB throttled the request.
    Throttled,
    /// Any other error, or no reply at all.
    Error,
}

impl Ended {
    const ALL: [Self; 5] = [Self::Ok, Self::Condition, Self::Conflict, Self::Throttled, Self::Error];

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

/// The metric keys of each request, created once: their labels are Sluice's own words. The recorder is asked
/// each time, so a recorder that is installed late, or that drops idle metrics, misses nothing.
struct Keys {
    duration: [[Key; Ended::ALL.len()]; Operation::ALL.len()],
    units: [Key; Operation::ALL.len()],
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let duration = |operation: Operation, ended: Ended| {
        names::REQUEST_DURATION.key([operation.as_str().into(), ended.as_str().into()])
    };
    let units = |operation: Operation| {
        let kind = if operation.reads() { "read" } else { "write" };
        names::CAPACITY_UNITS.key([operation.as_str().into(), kind.into()])
    };
    Keys {
        duration: Operation::ALL.map(|operation| Ended::ALL.map(|ended| duration(operation, ended))),
        units: Operation::ALL.map(units),
    }
});

pub(crate) fn ended(operation: Operation, ended: Ended, took: Duration) {
    let at = Ended::ALL.iter().position(|one| *one == ended).unwrap_or(0);
    names::histogram(&KEYS.duration[operation.index()][at]).record(took);
    if matches!(ended, Ended::Condition | Ended::Conflict | Ended::Throttled) {
        names::CONFLICTS.counter([operation.as_str().into(), ended.as_str().into()]).increment(1);
    }
}

/// Records how far DynamoDB's clock is from this process's.
pub fn clock_offset(offset: ClockOffset) {
    let size = Duration::from_micros(offset.micros().unsigned_abs()).as_secs_f64();
    names::CLOCK_OFFSET.gauge([]).set(if offset.micros() < 0 { -size } else { size });
}

pub(crate) fn retried(operation: Operation) {
    names::RETRIES.counter([operation.as_str().into()]).increment(1);
}

/// Units that were used and not yet counted: a counter takes whole units, and a read may cost half a unit.
#[derive(Debug, Default)]
pub(crate) struct Units([AtomicI64; Operation::ALL.len()]);

const UNIT_MICROS: i64 = 1_000_000;

impl Units {
    /// Counts the units that a reply states.
    pub(crate) fn used<'a>(&self, operation: Operation, stated: impl Iterator<Item = &'a ConsumedCapacity>) {
        let used = stated
            .filter_map(ConsumedCapacity::capacity_units)
            .filter_map(micros)
            .fold(0_i64, i64::saturating_add);
        let before = self.0[operation.index()].fetch_add(used, Ordering::Relaxed);
        // A remainder below one unit is counted with the next units.
        let whole = before.saturating_add(used) / UNIT_MICROS - before / UNIT_MICROS;
        if let Ok(whole @ 1..) = u64::try_from(whole) {
            names::counter(&KEYS.units[operation.index()]).increment(whole);
        }
    }
}

/// Millionths of a unit; `None` below zero. `Duration` converts a double without a detour through text.
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
        units.used(Operation::GetItem, [&half].into_iter());
        assert_eq!(whole(&units), 0);
        units.used(Operation::GetItem, [&half, &half].into_iter());
        assert_eq!((whole(&units), units.0[0].load(Ordering::Relaxed)), (1, 1_500_000));
        units.used(Operation::Scan, [].into_iter());
        assert_eq!(units.0.iter().map(|carried| carried.load(Ordering::Relaxed)).sum::<i64>(), 1_500_000);
    }
}
