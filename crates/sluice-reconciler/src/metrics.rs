//! The figures of a sweep as CloudWatch metrics, in the Embedded Metric Format: log lines that CloudWatch
//! reads as metrics.
//!
//! Source: "Specification: Embedded metric format", Amazon CloudWatch User Guide.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sluice_core::{Amount, Dimension, Timestamp};
use sluice_ops::SweepReport;

const NAMESPACE: &str = "Sluice";
const COUNT: &str = "Count";

/// Whether a sweep did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sweep did its work, although perhaps not all of it in time.
    Well,
    /// The table stopped the sweep, or never answered.
    InError,
}

/// The most buckets with a line of their own: CloudWatch bills each metric.
const MOST_DIMENSIONS: usize = 100;

/// The log lines: one for the environment, and one for each concurrency bucket that has something to report.
pub fn metrics(environment: &str, report: &SweepReport, ended: Ended, now: Timestamp) -> impl Iterator<Item = Value> {
    let leaked = report.leaked();
    let all = [
        ("Sweeps", COUNT, json!(u8::from(ended == Ended::Well))),
        ("Restored", COUNT, json!(report.restored)),
        ("RestoredSlots", COUNT, json!(report.restored_slots)),
        ("AlreadyCapped", COUNT, json!(report.already_capped)),
        ("RowsScanned", COUNT, json!(report.rows_scanned)),
        ("Expired", COUNT, json!(report.expired)),
        ("LostRaces", COUNT, json!(report.lost_races)),
        ("ConflictsRetried", COUNT, json!(report.conflicts_retried)),
        ("Unparsable", COUNT, json!(report.unparsable)),
        ("UnreadableBuckets", COUNT, json!(report.unreadable_buckets)),
        ("Left", COUNT, json!(report.left)),
        ("Refused", COUNT, json!(report.refused)),
        ("Recounted", COUNT, json!(report.recounted)),
        ("Drift", COUNT, slots(total(&report.drift))),
        ("Corrected", COUNT, slots(total(&report.corrected))),
        ("Pending", COUNT, slots(report.pending())),
        ("LeakSuspected", COUNT, slots(total(&leaked))),
        ("ExpiredButAlive", COUNT, json!(report.expired_holders.values().sum::<u64>())),
        ("SegmentsUnscanned", COUNT, json!(report.segments_unscanned)),
        ("DeadlineHit", COUNT, json!(u8::from(report.deadline_hit))),
        ("Requests", COUNT, json!(report.requests)),
        ("Duration", "Milliseconds", json!(report.duration.as_millis())),
    ];
    let of_dimension = move |dimension: &Dimension| {
        let metrics = of_bucket(report, &leaked, dimension);
        line(&[("Environment", environment), ("VendorDimension", dimension.as_str())], &metrics, now)
    };
    let clock = report.clock_offset.map(|offset| ("ClockOffset", "Milliseconds", json!(offset.millis().abs())));
    let all: Vec<_> = all.into_iter().chain(clock).collect();
    std::iter::once(line(&[("Environment", environment)], &all, now))
        .chain(buckets_to_report(report).into_iter().map(of_dimension))
}

/// The buckets with a line of their own: first those with a fault, then those with pending work.
fn buckets_to_report(report: &SweepReport) -> Vec<&Dimension> {
    let restored = report.dimensions.iter().filter(|(_, restored)| restored.slots > 0).map(|(name, _)| name);
    let still = report.loads.iter().filter(|(_, load)| load.still_since().is_some()).map(|(name, _)| name);
    let busy = report.loads.iter().filter(|(_, load)| load.pending() > Amount::ZERO).map(|(name, _)| name);
    let mut seen = BTreeSet::new();
    let all = report.drift.keys().chain(report.expired_holders.keys()).chain(restored).chain(still).chain(busy);
    all.filter(|name| seen.insert(*name)).take(MOST_DIMENSIONS).collect()
}

fn of_bucket(
    report: &SweepReport,
    leaked: &BTreeMap<Dimension, Amount>,
    dimension: &Dimension,
) -> Vec<(&'static str, &'static str, Value)> {
    let restored = report.dimensions.get(dimension).copied().unwrap_or_default();
    let drift = report.drift.get(dimension).copied().unwrap_or_default();
    let mut metrics = vec![
        ("Restored", COUNT, json!(restored.leases)),
        ("RestoredSlots", COUNT, json!(restored.slots)),
        ("Drift", COUNT, slots(drift.abs())),
        ("LeakSuspected", COUNT, slots(leaked.get(dimension).copied().unwrap_or_default())),
    ];
    if let Some(load) = report.loads.get(dimension) {
        metrics.push(("Pending", COUNT, slots(load.pending())));
        let rate = load.drain_rate().map(|rate| rate.to_string().parse::<f64>().unwrap_or(f64::MAX));
        metrics.extend(rate.map(|rate| ("DrainRate", "Count/Second", json!(rate))));
    }
    metrics
}

/// The sum of lost and minted slots.
fn total(by_dimension: &BTreeMap<Dimension, Amount>) -> Amount {
    by_dimension.values().fold(Amount::ZERO, |sum, slots| sum.plus(slots.abs()))
}

fn line(dimensions: &[(&str, &str)], metrics: &[(&str, &str, Value)], now: Timestamp) -> Value {
    let names: Vec<&str> = dimensions.iter().map(|(name, _)| *name).collect();
    let defined: Vec<Value> = metrics.iter().map(|(name, unit, _)| json!({ "Name": name, "Unit": unit })).collect();
    let mut line = Map::new();
    line.insert(
        "_aws".into(),
        json!({
            "Timestamp": now.micros() / 1_000,
            "CloudWatchMetrics": [{ "Namespace": NAMESPACE, "Dimensions": [names], "Metrics": defined }],
        }),
    );
    line.extend(dimensions.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    line.extend(metrics.iter().map(|(name, _, value)| ((*name).to_owned(), value.clone())));
    Value::Object(line)
}

/// Slots may be fractions; a metric is a double.
fn slots(slots: Amount) -> Value {
    json!(slots.to_string().parse::<f64>().unwrap_or(f64::MAX))
}
