//! The throughput of one item: 1,000 write units a second.

use std::collections::HashMap;

use tokio::time::Instant;

use super::ProfileWrite;

/// Source: "Best practices for designing and using partition keys effectively", Amazon DynamoDB Developer
/// Guide: a partition, and so an item, takes 1,000 write units a second.
pub(super) const UNITS_PER_SECOND: f64 = 1_000.0;

/// The most units that an item keeps from an idle time: those of 20 ms. DynamoDB does not document how it
/// meters a second. Requests arrive in bunches on the scale of their service times, and must not be rejected
/// for that. With a larger burst, a run of seconds could show more than the ceiling.
pub(super) const BURST: f64 = 20.0;

/// Units that each item has left.
#[derive(Debug, Default)]
pub(super) struct Throughput(HashMap<String, Left>);

#[derive(Clone, Copy, Debug)]
struct Left {
    units: f64,
    at: Instant,
}

impl Throughput {
    /// For each write, whether its item lacks the units.
    pub(super) fn refuses(&self, written: &[ProfileWrite]) -> Vec<bool> {
        let now = Instant::now();
        written.iter().map(|one| self.left(&one.item, now) < as_number(one.units)).collect()
    }

    /// Takes the units of the writes.
    pub(super) fn take(&mut self, written: &[ProfileWrite]) {
        let now = Instant::now();
        for one in written {
            let units = self.left(&one.item, now) - as_number(one.units);
            self.0.insert(one.item.clone(), Left { units, at: now });
        }
        // An item that was idle long enough to refill its burst is like a new one, so it is forgotten: memory
        // does not grow with the leases that come and go.
        if self.0.len() > 10_000 {
            self.0.retain(|_, left| left.units_at(now) < BURST);
        }
    }

    fn left(&self, item: &str, now: Instant) -> f64 {
        self.0.get(item).map_or(BURST, |left| left.units_at(now))
    }
}

impl Left {
    fn units_at(self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() * UNITS_PER_SECOND;
        (self.units + refilled).min(BURST)
    }
}

/// The numbers are small, so nothing is rounded.
#[allow(clippy::cast_precision_loss)]
const fn as_number(units: u64) -> f64 {
    units as f64
}
