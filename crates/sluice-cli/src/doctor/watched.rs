//! Reads buckets twice, to learn how fast each is written, and what one write of it costs.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use sluice_sdk::core::{Bucket, MOST_INLINE_LEASES};
use sluice_table::Probe;
use tokio::time::Instant;

use super::finding::{Check, Finding};

/// The most buckets that are read twice: the busiest, by the number of their writes so far.
const MOST_BUCKETS: usize = 100;
/// The most reads under way at once.
const AT_ONCE: usize = 10;

/// Write units a second that one item takes, whatever the table's throughput ("Best practices for designing
/// and using partition keys effectively", Amazon DynamoDB Developer Guide).
const CEILING: f64 = 1_000.0;
/// Shares of the ceiling. From the first on, callers of a bucket should write it less; from the second on,
/// bursts are throttled.
const WARM: f64 = 0.5;
const HOT: f64 = 0.8;

/// The largest row that DynamoDB stores.
const LARGEST_ROW: u64 = 400 * 1_024;
const WRITE_UNIT: u64 = 1_024;
/// Write units of an acquire and a release with a lease row: two writes in each of two transactions. With an
/// inline lease they are two writes.
const UNITS_OF_ROW_LEASE: u64 = 8;

/// A bucket's row at one moment.
#[derive(Clone, Copy, Debug)]
struct RowSample {
    at: Instant,
    version: i64,
    bytes: u64,
}

/// Reads the buckets, waits, and reads them again. Buckets that cannot be read are left out: other findings
/// report them.
pub(super) async fn examine(probe: Probe<'_>, buckets: &[&Bucket], watch_for: Duration) -> Vec<Finding> {
    let mut busiest = buckets.to_vec();
    busiest.sort_by_key(|bucket| std::cmp::Reverse(bucket.version()));
    busiest.truncate(MOST_BUCKETS);
    let first = read(probe, &busiest).await;
    tokio::time::sleep(watch_for).await;
    let second = read(probe, &busiest).await;
    let mut findings = Vec::new();
    let mut fastest: f64 = 0.0;
    for bucket in busiest {
        let name = bucket.dimension().as_str();
        let Some(now) = second.get(name) else { continue };
        findings.extend(of_inline(bucket, now.bytes));
        let Some(then) = first.get(name) else { continue };
        let units = units_a_second(bucket, then, now);
        fastest = fastest.max(units);
        findings.extend(of_write_rate(name, units));
    }
    if !second.is_empty() && findings.iter().all(|finding| finding.check != Check::HotBuckets) {
        let what = format!(
            "none: the busiest row takes {fastest:.0} write units a second, and a row can take {CEILING}"
        );
        findings.push(Finding::fine(Check::HotBuckets, probe.table(), what));
    }
    findings
}

async fn read(probe: Probe<'_>, buckets: &[&Bucket]) -> HashMap<String, RowSample> {
    let one = |bucket: &Bucket| {
        let name = bucket.dimension().as_str().to_owned();
        async move {
            let row = probe.row(&name).await.given()??;
            Some((name, RowSample { at: Instant::now(), version: row.version?, bytes: row.bytes }))
        }
    };
    let requests: Vec<_> = buckets.iter().map(|bucket| one(bucket)).collect();
    futures_util::stream::iter(requests)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await
}

/// A lower bound: writes with a false condition cost units too, and leave no trace.
#[allow(clippy::cast_precision_loss, clippy::as_conversions)]
fn units_a_second(bucket: &Bucket, then: &RowSample, now: &RowSample) -> f64 {
    let secs = (now.at - then.at).as_secs_f64();
    let writes = now.version.saturating_sub(then.version).max(0);
    // If the lease is a row of its own, a slot changes in a transaction, which costs twice as much.
    let is_in_transactions =
        bucket.limit().is_concurrent() && bucket.inline().is_none_or(|leases| leases.is_empty());
    let units = now.bytes.div_ceil(WRITE_UNIT).max(1) * if is_in_transactions { 2 } else { 1 };
    if secs > 0.0 { writes as f64 * units as f64 / secs } else { 0.0 }
}

fn of_write_rate(name: &str, units: f64) -> Option<Finding> {
    if units < CEILING * WARM {
        return None;
    }
    let what = format!("written at {units:.0} write units a second or more; a row takes {CEILING} at most");
    let todo = "let its callers share lanes in fewer, longer-lived processes, turn prefetch on for a rate, or split the limit into \
                several buckets";
    Some(if units < CEILING * HOT {
        Finding::note(Check::HotBuckets, name, what, todo)
    } else {
        Finding::problem(Check::HotBuckets, name, what, todo)
    })
}

fn of_inline(bucket: &Bucket, bytes: u64) -> Option<Finding> {
    let leases = bucket.inline().filter(|leases| !leases.is_empty())?;
    let (name, count, kilobytes) = (bucket.dimension(), leases.len(), bytes.div_ceil(WRITE_UNIT));
    let units = bytes.div_ceil(WRITE_UNIT).max(1);
    let what = format!(
        "{count} inline leases in a row of {kilobytes} KB: each write of the row costs {units} units"
    );
    let todo =
        "set its callers to lease rows (SLUICE_LEASES=concurrent), or split the limit into several buckets";
    if count > MOST_INLINE_LEASES || bytes > LARGEST_ROW / 2 {
        let what = format!(
            "{what}; {MOST_INLINE_LEASES} are the most that Sluice puts into a row, and 400 KB the most that DynamoDB takes"
        );
        return Some(Finding::problem(Check::InlineLeases, name, what, todo));
    }
    if !bucket.limit().fits_inline() {
        let what = format!(
            "{what}, and the limit allows {} calls at once, above {MOST_INLINE_LEASES}",
            bucket.limit().calls_at_once()
        );
        return Some(Finding::problem(Check::InlineLeases, name, what, todo));
    }
    let is_dearer = 2 * units > UNITS_OF_ROW_LEASE;
    is_dearer.then(|| {
        let what = format!("{what}; with lease rows an acquire and a release cost {UNITS_OF_ROW_LEASE}");
        Finding::note(
            Check::InlineLeases,
            name,
            what,
            format!("{todo}; nothing, if the bucket is fast enough and its cost does not matter"),
        )
    })
}
