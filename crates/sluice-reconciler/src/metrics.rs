//! The figures of a sweep as CloudWatch metrics. An alarm ends as soon as its metric says zero, so a sweep
//! that did not finish publishes nothing of what it did not find out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_core::{Amount, Dimension, Timestamp};
use sluice_ops::SweepReport;
use sluice_table::emf::{COUNT, Reading, line};
use sluice_table::{ConfigError, Variable};

/// Whether a sweep did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sweep did its work, although perhaps not all of it in time.
    Well,
    /// The table stopped the sweep, or never answered.
    InError,
}

/// Which metrics a sweep publishes. CloudWatch bills each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Published {
    /// All.
    #[default]
    All,
    /// Those of [`ALARMS`], of the environment and of no bucket.
    Alarms,
}

impl Published {
    /// From `SLUICE_METRICS`: `all` (the default) or `alarms`.
    ///
    /// # Errors
    /// [`ConfigError::BadValue`] for any other value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let published =
            Variable::new("SLUICE_METRICS", lookup).parse("all or alarms", |value| match value {
                "all" => Some(Self::All),
                "alarms" => Some(Self::Alarms),
                _ => None,
            })?;
        Ok(published.unwrap_or_default())
    }

    fn has(self, name: &str) -> bool {
        self == Self::All || ALARMS.contains(&name)
    }
}

/// What the alarms look at, and two figures that show at a glance what a table does: `Pending`, `Duration`.
pub const ALARMS: &[&str] = &[
    "Sweeps",
    "RestoredSlots",
    "AlreadyCapped",
    "Unparsable",
    "UnreadableBuckets",
    "Left",
    "Refused",
    "Drift",
    "LeakSuspected",
    "ExpiredButAlive",
    "CallerRefusals",
    "SegmentsUnscanned",
    "DeadlineHit",
    "ClockOffset",
    "Pending",
    "Duration",
];

/// The most buckets with a line of their own: CloudWatch bills each metric.
const MOST_DIMENSIONS: usize = 100;

/// What a sweep must have done for a figure to say something about the table.
#[derive(Clone, Copy)]
enum Needs {
    /// Nothing: the figure is about the run.
    Nothing,
    /// A request: the figure is about the run, and a run without one is no sweep.
    Request,
    /// The whole scan. A count above zero is true without it.
    Scan,
    /// The recount of every bucket. A count above zero is true without it.
    Recount,
    /// The recount of every bucket: a part of this sum says nothing.
    WholeRecount,
}

impl Needs {
    fn are_met(self, report: &SweepReport, value: &Value) -> bool {
        let is_above_zero = value.as_f64().is_some_and(|value| value > 0.0);
        match self {
            Self::Nothing => true,
            Self::Request => report.requests > 0,
            Self::Scan => report.is_scanned || is_above_zero,
            Self::Recount => report.is_measured || is_above_zero,
            Self::WholeRecount => report.is_measured,
        }
    }
}

/// The log lines: one for the environment, and one for each concurrency bucket that has something to report.
pub fn metrics(
    environment: &str,
    published: Published,
    report: &SweepReport,
    ended: Ended,
    now: Timestamp,
) -> impl Iterator<Item = Value> {
    let leaked = report.leaked();
    let all = of_environment(report, &leaked, ended).into_iter().filter(|(name, ..)| published.has(name));
    let all = line(&[("Environment", environment)], &all.collect::<Vec<_>>(), now);
    let buckets = if published == Published::All { buckets_to_report(report) } else { Vec::new() };
    let of_dimension = move |dimension: &Dimension| {
        let readings = of_bucket(report, &leaked, dimension);
        line(&[("Environment", environment), ("VendorDimension", dimension.as_str())], &readings, now)
    };
    std::iter::once(all).chain(buckets.into_iter().map(of_dimension))
}

fn of_environment(report: &SweepReport, leaked: &BTreeMap<Dimension, Amount>, ended: Ended) -> Vec<Reading> {
    let all = [
        (Needs::Nothing, "Sweeps", COUNT, json!(u8::from(ended == Ended::Well))),
        (Needs::Scan, "Restored", COUNT, json!(report.restored)),
        (Needs::Scan, "RestoredSlots", COUNT, json!(report.restored_slots)),
        (Needs::Scan, "AlreadyCapped", COUNT, json!(report.already_capped)),
        (Needs::Request, "RowsScanned", COUNT, json!(report.rows_scanned)),
        (Needs::Scan, "Expired", COUNT, json!(report.expired)),
        (Needs::Scan, "LostRaces", COUNT, json!(report.lost_races)),
        (Needs::Request, "ConflictsRetried", COUNT, json!(report.conflicts_retried)),
        (Needs::Scan, "Unparsable", COUNT, json!(report.unparsable)),
        (Needs::Scan, "UnreadableBuckets", COUNT, json!(report.unreadable_buckets)),
        (Needs::Scan, "Left", COUNT, json!(report.left)),
        (Needs::Scan, "Refused", COUNT, json!(report.refused)),
        (Needs::WholeRecount, "Recounted", COUNT, json!(report.recounted)),
        (Needs::Recount, "Drift", COUNT, slots(total(&report.drift))),
        (Needs::Recount, "Corrected", COUNT, slots(total(&report.corrected))),
        (Needs::WholeRecount, "Pending", COUNT, slots(report.pending())),
        (Needs::Recount, "LeakSuspected", COUNT, slots(total(leaked))),
        (Needs::Recount, "ExpiredButAlive", COUNT, json!(report.expired_holders.values().sum::<u64>())),
        (Needs::Recount, "CallerRefusals", COUNT, json!(report.caller_refusals.values().sum::<u64>())),
        (Needs::Scan, "SegmentsUnscanned", COUNT, json!(report.segments_unscanned)),
        (Needs::Scan, "DeadlineHit", COUNT, json!(u8::from(report.deadline_hit))),
        (Needs::Request, "Requests", COUNT, json!(report.requests)),
        (Needs::Request, "Duration", "Milliseconds", json!(report.duration.as_millis())),
    ];
    let known = all.into_iter().filter(|(needs, _, _, value)| needs.are_met(report, value));
    let clock =
        report.clock_offset.map(|offset| ("ClockOffset", "Milliseconds", json!(offset.millis().abs())));
    known.map(|(_, name, unit, value)| (name, unit, value)).chain(clock).collect()
}

/// The buckets with a line of their own: first those with a fault, then those with pending work.
fn buckets_to_report(report: &SweepReport) -> Vec<&Dimension> {
    let restored = report.dimensions.iter().filter(|(_, restored)| restored.slots > 0).map(|(name, _)| name);
    let still = report.loads.iter().filter(|(_, load)| load.still_since().is_some()).map(|(name, _)| name);
    let busy = report.loads.iter().filter(|(_, load)| load.pending() > Amount::ZERO).map(|(name, _)| name);
    let mut seen = BTreeSet::new();
    let refused = report.caller_refusals.keys();
    let faults = report.drift.keys().chain(report.expired_holders.keys());
    let all = faults.chain(restored).chain(still).chain(busy).chain(refused);
    all.filter(|name| seen.insert(*name)).take(MOST_DIMENSIONS).collect()
}

fn of_bucket(
    report: &SweepReport,
    leaked: &BTreeMap<Dimension, Amount>,
    dimension: &Dimension,
) -> Vec<Reading> {
    let restored = report.dimensions.get(dimension).copied().unwrap_or_default();
    let drift = report.drift.get(dimension).copied().unwrap_or_default();
    let leaked = leaked.get(dimension).copied().unwrap_or_default();
    let refusals = report.caller_refusals.get(dimension).copied().unwrap_or_default();
    let counts = [
        (Needs::Scan, "Restored", COUNT, json!(restored.leases)),
        (Needs::Scan, "RestoredSlots", COUNT, json!(restored.slots)),
        (Needs::Recount, "Drift", COUNT, slots(drift.abs())),
        (Needs::Recount, "LeakSuspected", COUNT, slots(leaked)),
        (Needs::Recount, "CallerRefusals", COUNT, json!(refusals)),
    ];
    let known = counts.into_iter().filter(|(needs, _, _, value)| needs.are_met(report, value));
    let mut readings: Vec<Reading> = known.map(|(_, name, unit, value)| (name, unit, value)).collect();
    if let Some(load) = report.loads.get(dimension) {
        readings.push(("Pending", COUNT, slots(load.pending())));
        let rate = load.drain_rate().map(|rate| rate.to_string().parse::<f64>().unwrap_or(f64::MAX));
        readings.extend(rate.map(|rate| ("DrainRate", "Count/Second", json!(rate))));
    }
    readings
}

/// The sum of lost and minted slots.
fn total(by_dimension: &BTreeMap<Dimension, Amount>) -> Amount {
    by_dimension.values().fold(Amount::ZERO, |sum, slots| sum.plus(slots.abs()))
}

/// Slots may be fractions; a metric is a double.
fn slots(slots: Amount) -> Value {
    json!(slots.to_string().parse::<f64>().unwrap_or(f64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_one_of_the_two_is_refused() {
        let with = |value: &'static str| Published::from_lookup(|_| Some(value.into()));
        assert_eq!(Published::from_lookup(|_| None), Ok(Published::All));
        assert_eq!((with("all"), with("alarms")), (Ok(Published::All), Ok(Published::Alarms)));
        assert!(with("emf").unwrap_err().to_string().contains("SLUICE_METRICS"), "{:?}", with("emf"));
    }

    /// A name that no sweep publishes would be an alarm that stays silent.
    #[test]
    fn each_name_of_an_alarm_is_published() {
        let mut whole = SweepReport::default();
        (whole.is_scanned, whole.is_measured, whole.requests) = (true, true, 1);
        let mut names: BTreeSet<&str> = BTreeSet::from(["ClockOffset"]);
        names.extend(of_environment(&whole, &BTreeMap::new(), Ended::Well).iter().map(|(name, ..)| *name));
        assert!(ALARMS.iter().all(|name| names.contains(name)), "{ALARMS:?} and {names:?}");
    }
}
