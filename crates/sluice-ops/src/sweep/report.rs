//! The options of a sweep, and its report.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use sluice_core::{Amount, ClockOffset, Dimension, Load, RowError};

use sluice_table::{ConfigError, Variable, duration};

use super::MOST_LOGGED;
use crate::chunk::Tally;

/// The target of the event `reconciler.complete` in `tracing`, for programs that print the report themselves.
pub const REPORT_TARGET: &str = "sluice_ops::sweep_report";

/// The options of a sweep.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepOptions {
    /// Segments of the scan; 16 by default, one request each at least. Their order is random: a sweep that is
    /// always cut off does not always miss the same rows.
    pub segments: u16,
    /// Segments scanned at once, and buckets given back to at once; 4 by default. More finish sooner; fewer
    /// disturb callers less.
    pub concurrency: u16,
    /// Time after which nothing new begins; none by default. The next sweep does the rest.
    pub budget: Option<Duration>,
    /// The longest that a call may take; 15 minutes by default, as long as a Lambda function may run. No
    /// drain rate is below one departure from each slot in that time: a bucket in which nothing departs does
    /// not shed for ever. A longer time lets a rate fall lower, for calls that do last longer. With a shorter
    /// one, a bucket never sheds for longer than that.
    pub slowest_call: Duration,
}

/// The shortest `slowest_call`: below a second, the floor of the drain rate would be a fast vendor's rate.
const SHORTEST_CALL: Duration = Duration::from_secs(1);

/// The default of `slowest_call`: 15 minutes.
const SLOWEST_CALL: Duration = Duration::from_secs(15 * 60);

impl SweepOptions {
    /// The defaults, and [`slowest_call`](Self::slowest_call) from `SLUICE_SLOWEST_CALL`, such as `15m`.
    ///
    /// # Errors
    /// [`ConfigError::BadValue`] if the variable is not a time from 1 s to a year.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let slowest_call = Variable::new("SLUICE_SLOWEST_CALL", lookup)
            .parse("a time of at least 1 s, as in 15m or 900", |v| {
                duration(v).filter(|call| *call >= SHORTEST_CALL)
            })?;
        Ok(Self { slowest_call: slowest_call.unwrap_or(SLOWEST_CALL), ..Self::default() })
    }
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { segments: 16, concurrency: 4, budget: None, slowest_call: SLOWEST_CALL }
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// Rows read by the scan, of any kind.
    pub rows_scanned: usize,
    /// Ended leases found.
    pub expired: usize,
    /// Leases given back: slots restored, or the row of a rate lease deleted.
    pub restored: usize,
    /// Of those, leases of a concurrency bucket, whose slots came back.
    pub restored_slots: usize,
    /// Dimensions with leases that were given back, and how many leases.
    pub dimensions: BTreeMap<Dimension, Restored>,
    /// Leases deleted without all of their slots, because their bucket had no room for the slots.
    pub already_capped: usize,
    /// Leases that were given back or renewed between the scan and the write.
    pub lost_races: usize,
    /// Conflicts and throttlings that the sweep waited out.
    pub conflicts_retried: usize,
    /// Leases that cannot be read. They are left alone.
    pub unparsable: usize,
    /// Buckets of any type that cannot be read: all of their callers get errors.
    pub unreadable_buckets: usize,
    /// The first twenty of those buckets, each with the attribute that cannot be read.
    pub unreadable: BTreeMap<Dimension, RowError>,
    /// Leases left to the next sweep, because of conflicts or the end of the budget. They include leases that
    /// were under way at the very end, although these may have been given back.
    pub left: usize,
    /// Leases whose transaction DynamoDB will never accept. They are left alone.
    pub refused: usize,
    /// Concurrency buckets that the recount could judge.
    pub recounted: usize,
    /// Slots lost (above zero) or minted (below zero), by bucket. See `docs/reconciler.md`.
    pub drift: BTreeMap<Dimension, Amount>,
    /// Slots that the recount gave back or took away, after two consecutive sweeps had found them.
    pub corrected: BTreeMap<Dimension, Amount>,
    /// The loads of the concurrency buckets, as measured.
    pub loads: BTreeMap<Dimension, Load>,
    /// Expired holders (their lease ended while their call went on) found since the last sweep, by bucket.
    pub expired_holders: BTreeMap<Dimension, u64>,
    /// Refusals that callers of concurrency buckets reported in the load rows since the last sweep, by
    /// bucket.
    pub caller_refusals: BTreeMap<Dimension, u64>,
    /// Whether the scan read the whole table. If not, a count of what the scan looks for is a lower bound.
    pub is_scanned: bool,
    /// Whether each concurrency bucket was recounted and measured. If not, some are missing in
    /// [`drift`](Self::drift), [`loads`](Self::loads) and [`expired_holders`](Self::expired_holders).
    pub is_measured: bool,
    /// Segments of the table that the budget or throttling left to the next sweep, whole or in part.
    pub segments_unscanned: usize,
    /// Whether the budget ended the sweep.
    pub deadline_hit: bool,
    /// Requests sent to DynamoDB, including repeated ones.
    pub requests: u64,
    /// How long the sweep took.
    pub duration: Duration,
    /// DynamoDB's clock minus this one; `None` if no reply stated the time, as with some local engines.
    pub clock_offset: Option<ClockOffset>,
}

/// Leases of one dimension that were given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// All leases.
    pub leases: usize,
    /// Leases of a slot.
    pub slots: usize,
}

impl SweepReport {
    /// Slots that are held, in all buckets that were measured.
    #[must_use]
    pub fn pending(&self) -> Amount {
        self.loads.values().fold(Amount::ZERO, |sum, load| sum.plus(load.pending()))
    }

    /// Slots that are taken in buckets where nobody has been active for 15 minutes.
    #[must_use]
    pub fn leaked(&self) -> BTreeMap<Dimension, Amount> {
        let leaked = self.loads.iter().map(|(name, load)| (name.clone(), load.leaked()));
        leaked.filter(|(_, slots)| *slots > Amount::ZERO).collect()
    }

    pub(super) fn log(&self) {
        let names = |dimensions: &mut dyn Iterator<Item = &Dimension>| {
            dimensions.map(Dimension::as_str).collect::<Vec<_>>().join(",")
        };
        tracing::info!(
            target: REPORT_TARGET,
            event = "reconciler.complete",
            restored = self.restored,
            dimensions = names(&mut self.dimensions.keys()),
            already_capped = self.already_capped,
            rows_scanned = self.rows_scanned,
            expired = self.expired,
            restored_slots = self.restored_slots,
            lost_races = self.lost_races,
            conflicts_retried = self.conflicts_retried,
            unparsable = self.unparsable,
            unreadable_buckets = self.unreadable_buckets,
            unreadable = names(&mut self.unreadable.keys()),
            left = self.left,
            refused = self.refused,
            recounted = self.recounted,
            drift = names(&mut self.drift.keys()),
            corrected = names(&mut self.corrected.keys()),
            pending = %self.pending(),
            leaked = names(&mut self.leaked().keys()),
            outlived = self.expired_holders.values().sum::<u64>(),
            caller_refusals = self.caller_refusals.values().sum::<u64>(),
            is_scanned = self.is_scanned,
            is_measured = self.is_measured,
            segments_unscanned = self.segments_unscanned,
            deadline_hit = self.deadline_hit,
            requests = self.requests,
            duration_ms = self.duration.as_millis(),
            clock_offset_ms = self.clock_offset.map(ClockOffset::millis),
        );
    }

    /// Adds buckets that cannot be read.
    pub(super) fn add_unreadable(&mut self, buckets: Vec<(Dimension, RowError)>) {
        for (dimension, error) in buckets {
            self.unreadable_buckets += 1;
            if self.unreadable.len() < MOST_LOGGED {
                tracing::error!(event = "reconciler.unreadable_bucket", %dimension, %error);
                self.unreadable.insert(dimension, error);
            }
        }
    }

    /// Adds the result for leases of `dimension`.
    pub(super) fn count(&mut self, dimension: &Dimension, tally: &Tally) {
        self.restored += tally.restored;
        self.restored_slots += tally.restored_slots;
        self.already_capped += tally.already_capped;
        self.lost_races += tally.lost_races;
        self.conflicts_retried += tally.conflicts_retried;
        self.left += tally.left;
        let logged = MOST_LOGGED.saturating_sub(self.refused);
        self.refused += tally.failed.len();
        if tally.restored > 0 {
            let restored = self.dimensions.entry(dimension.clone()).or_default();
            restored.leases += tally.restored;
            restored.slots += tally.restored_slots;
        }
        for (lease, message) in tally.failed.iter().take(logged) {
            tracing::error!(event = "reconciler.refused", %dimension, lease, message);
        }
    }
}

/// Has the names of `reconciler.complete`, for programs that print the report: in this order, with dimensions
/// as an array, and drift, corrections and leaks as objects.
impl Serialize for SweepReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let slots = |map: &BTreeMap<Dimension, Amount>| -> BTreeMap<String, f64> {
            map.iter().map(|(name, slots)| (name.to_string(), number(*slots))).collect()
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", "reconciler.complete")?;
        map.serialize_entry("restored", &self.restored)?;
        map.serialize_entry(
            "dimensions",
            &self.dimensions.keys().map(Dimension::as_str).collect::<Vec<_>>(),
        )?;
        map.serialize_entry("already_capped", &self.already_capped)?;
        map.serialize_entry("rows_scanned", &self.rows_scanned)?;
        map.serialize_entry("expired", &self.expired)?;
        map.serialize_entry("restored_slots", &self.restored_slots)?;
        map.serialize_entry("lost_races", &self.lost_races)?;
        map.serialize_entry("conflicts_retried", &self.conflicts_retried)?;
        map.serialize_entry("unparsable", &self.unparsable)?;
        map.serialize_entry("unreadable_buckets", &self.unreadable_buckets)?;
        map.serialize_entry("unreadable", &faults(&self.unreadable))?;
        map.serialize_entry("left", &self.left)?;
        map.serialize_entry("refused", &self.refused)?;
        map.serialize_entry("recounted", &self.recounted)?;
        map.serialize_entry("drift", &slots(&self.drift))?;
        map.serialize_entry("corrected", &slots(&self.corrected))?;
        map.serialize_entry("pending", &number(self.pending()))?;
        map.serialize_entry("leaked", &slots(&self.leaked()))?;
        map.serialize_entry("outlived", &self.expired_holders.values().sum::<u64>())?;
        map.serialize_entry("caller_refusals", &self.caller_refusals.values().sum::<u64>())?;
        map.serialize_entry("is_scanned", &self.is_scanned)?;
        map.serialize_entry("is_measured", &self.is_measured)?;
        map.serialize_entry("segments_unscanned", &self.segments_unscanned)?;
        map.serialize_entry("deadline_hit", &self.deadline_hit)?;
        map.serialize_entry("requests", &self.requests)?;
        map.serialize_entry("duration_ms", &self.duration.as_millis())?;
        map.serialize_entry("clock_offset_ms", &self.clock_offset.map(ClockOffset::millis))?;
        map.end()
    }
}

/// Each bucket with what is wrong with its row.
fn faults(unreadable: &BTreeMap<Dimension, RowError>) -> BTreeMap<&str, String> {
    unreadable.iter().map(|(name, fault)| (name.as_str(), fault.to_string())).collect()
}

/// An amount for JSON: exact below 2^53 millionths.
fn number(slots: Amount) -> f64 {
    slots.to_string().parse().unwrap_or(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_call_is_a_second_at_least() {
        let with = |value: &'static str| {
            SweepOptions::from_lookup(|_| Some(value.into())).map(|read| read.slowest_call)
        };
        assert_eq!(SweepOptions::from_lookup(|_| None).unwrap().slowest_call, SLOWEST_CALL);
        assert_eq!((with(""), with("1800")), (Ok(SLOWEST_CALL), Ok(Duration::from_secs(1_800))));
        assert_eq!(with("15m"), Ok(Duration::from_secs(900)));
        for value in ["0", "0.5", "500ms", "-900", "NaN", "1e300"] {
            let text = with(value).unwrap_err().to_string();
            assert!(
                text.contains("SLUICE_SLOWEST_CALL") && text.contains(value) && text.contains("must be"),
                "{text}"
            );
        }
    }
}
