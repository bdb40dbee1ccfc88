//! What one item can take: 1,000 write units a second.

use std::collections::HashMap;

use tokio::time::Instant;

use super::Written;

/// Source: "Best practices for designing and using partition keys effectively", Amazon DynamoDB Developer Guide: a partition,
/// and so an item, takes 1,000 write units a second.
pub(super) const UNITS_PER_SECOND: f64 = 1_000.0;

/// Units that an item has left over from an idle time, at most: those of 20 ms. DynamoDB does not say how it meters a second. Requests
/// bunch on the scale of their service times, and must not be refused for that; more would let a run of seconds show more than
/// the ceiling.
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
    /// Which of the items cannot take what is written.
    pub(super) fn refuses(&self, written: &[Written]) -> Vec<bool> {
        let now = Instant::now();
        written.iter().map(|one| self.left(&one.item, now) < as_number(one.units)).collect()
    }

    /// Takes it.
    pub(super) fn take(&mut self, written: &[Written]) {
        let now = Instant::now();
        for one in written {
            let units = self.left(&one.item, now) - as_number(one.units);
            self.0.insert(one.item.clone(), Left { units, at: now });
        }
        // An item that was left alone for as long as a burst takes is as one never seen: what is remembered does not grow
        // with the leases that come and go.
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

/// Units are few: no rounding is at work here.
#[allow(clippy::cast_precision_loss)]
const fn as_number(units: u64) -> f64 {
    units as f64
}
