//! Reads buckets twice, to learn how fast each is written, and what one write of it costs.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::StreamExt as _;
use sluice_sdk::Client;
use sluice_sdk::core::schema::{KEY, VERSION};
use sluice_sdk::core::{Bucket, MOST_INLINE_LEASES};
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
struct Reading {
    at: Instant,
    version: i64,
    bytes: u64,
}

/// Reads the buckets, waits, and reads them again. Buckets that cannot be read are left out: other findings
/// report them.
pub(super) async fn examine(client: &Client, buckets: &[&Bucket], watch_for: Duration) -> Vec<Finding> {
    let mut busiest = buckets.to_vec();
    busiest.sort_by_key(|bucket| std::cmp::Reverse(bucket.version()));
    busiest.truncate(MOST_BUCKETS);
    let first = read(client, &busiest).await;
    tokio::time::sleep(watch_for).await;
    let second = read(client, &busiest).await;
    let mut findings = Vec::new();
    let mut fastest: f64 = 0.0;
    for bucket in busiest {
        let name = bucket.dimension().as_str();
        let Some(now) = second.get(name) else { continue };
        findings.extend(of_inline(bucket, now.bytes));
        let Some(then) = first.get(name) else { continue };
        let units = units_a_second(bucket, then, now);
        fastest = fastest.max(units);
        findings.extend(of_heat(name, units));
    }
    if !second.is_empty() && findings.iter().all(|finding| finding.check != Check::HotBuckets) {
        let what =
            format!("none: the busiest row takes {fastest:.0} write units a second, and a row can take {CEILING}");
        findings.push(Finding::fine(Check::HotBuckets, client.table(), what));
    }
    findings
}

async fn read(client: &Client, buckets: &[&Bucket]) -> HashMap<String, Reading> {
    let one = |bucket: &Bucket| {
        let name = bucket.dimension().as_str().to_owned();
        let request = client.dynamodb().get_item().table_name(client.table()).consistent_read(true);
        let request = request.key(KEY, AttributeValue::S(name.clone()));
        async move {
            let row = request.send().await.ok()?.item?;
            let version = row.get(VERSION)?.as_n().ok()?.parse().ok()?;
            Some((name, Reading { at: Instant::now(), version, bytes: item_size(&row) }))
        }
    };
    let requests: Vec<_> = buckets.iter().map(|bucket| one(bucket)).collect();
    futures_util::stream::iter(requests).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// A lower bound: writes with a false condition cost units too, and leave no trace.
#[allow(clippy::cast_precision_loss, clippy::as_conversions)]
fn units_a_second(bucket: &Bucket, then: &Reading, now: &Reading) -> f64 {
    let secs = (now.at - then.at).as_secs_f64();
    let writes = now.version.saturating_sub(then.version).max(0);
    // If the lease is a row of its own, a slot changes in a transaction, which costs twice as much.
    let is_in_transactions = bucket.limit().is_concurrent() && bucket.inline().is_none_or(|leases| leases.is_empty());
    let units = now.bytes.div_ceil(WRITE_UNIT).max(1) * if is_in_transactions { 2 } else { 1 };
    if secs > 0.0 { writes as f64 * units as f64 / secs } else { 0.0 }
}

fn of_heat(name: &str, units: f64) -> Option<Finding> {
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
    let what = format!("{count} inline leases in a row of {kilobytes} KB: each write of the row costs {units} units");
    let todo = "set its callers to lease rows (SLUICE_LEASES=concurrent), or split the limit into several buckets";
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

/// The size of an item in bytes ("DynamoDB item sizes and formats", Amazon DynamoDB Developer Guide).
fn item_size(item: &HashMap<String, AttributeValue>) -> u64 {
    item.iter().map(|(name, value)| length(name) + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> u64 {
    match value {
        AttributeValue::S(text) => length(text),
        AttributeValue::N(digits) => number_size(digits),
        AttributeValue::B(bytes) => u64::try_from(bytes.as_ref().len()).unwrap_or(u64::MAX),
        AttributeValue::L(items) => 3 + items.iter().map(|item| 1 + value_size(item)).sum::<u64>(),
        AttributeValue::M(map) => 3 + map.iter().map(|(name, value)| 1 + length(name) + value_size(value)).sum::<u64>(),
        AttributeValue::Ss(items) => items.iter().map(|text| length(text)).sum(),
        AttributeValue::Ns(items) => items.iter().map(|digits| number_size(digits)).sum(),
        _ => 1,
    }
}

/// The size in bytes of a number: one byte for two significant digits, plus one; a negative number has one
/// more for its sign.
fn number_size(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    length(digits.trim_matches('0')).div_ceil(2) + 1 + u64::from(text.starts_with('-'))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
