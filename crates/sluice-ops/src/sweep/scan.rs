//! Part 1: the scan, in parallel segments and random order. Passes on ended leases, and a census of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use sluice_core::schema::{
    COST, CREATED_AT, DIMENSION, KEY, LEASE_PREFIX, LEASES, LIMIT_TYPE, LOAD_PREFIX, OF_BUCKET,
    TICKET_PREFIX, TTL,
};
use sluice_core::{
    AttributeNames, Bucket, CLOCK_ERROR, Census, Dimension, InlineLeases, Lease, LimitType, Operand, ReadAt,
    RowError, Timestamp, inline_key,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Deadlines, MOST_LOGGED, SweepOptions, is_over, text};
use sluice_table::{Attributes, Consistency, Item, Scan, Store, StoreError, value_text};

/// The most buckets that the filter names. DynamoDB takes 100 values in an `IN`, and 4 KB and 300 operators
/// in an expression. Each bucket takes two operators and 36 bytes, and the rest of the filter about 240.
const MOST_NAMED: usize = 100;

/// Rows of a page: half the leases in a megabyte. Smaller pages take less memory, of which a small function
/// has little (about 3 MB a page, and a few are read at once). Larger pages take fewer requests.
pub const ROWS_PER_PAGE: u32 = 2_500;

/// Read units of the largest page, with an eventually consistent read.
pub const MOST_UNITS: u64 = 128;

/// What a scan looks for.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// When the buckets were read.
    pub(super) read_at: ReadAt,
    /// Leases that ended before this instant have ended by every clock.
    pub(super) cutoff: Timestamp,
    /// The concurrency buckets that are recounted: the scan passes on their leases, ended or not.
    pub(super) recounted: Arc<BTreeSet<Dimension>>,
    /// Rows that could not be read so far.
    pub(super) unparsable: Arc<AtomicUsize>,
}

/// What the scan passes on.
#[derive(Debug)]
pub(super) enum Found {
    Page(LeasePage),
    SegmentDone,
    Failed(StoreError),
}

/// What a page contained.
#[derive(Debug, Default)]
pub(super) struct LeasePage {
    pub(super) rows_scanned: usize,
    /// Rounded up. If the reply does not state the units, as of some local engines: those of a megabyte.
    pub(super) read_units: u64,
    pub(super) unparsable: usize,
    pub(super) ended: Vec<Lease>,
    pub(super) census: BTreeMap<Dimension, Census>,
    /// Concurrency buckets in the page.
    pub(super) buckets: Vec<Dimension>,
    /// Buckets of any type whose rows cannot be read. Only a scan of the whole table finds them.
    pub(super) unreadable_buckets: Vec<(Dimension, RowError)>,
    /// Buckets with inline leases that have ended, and how many leases.
    pub(super) ended_inline: Vec<(Dimension, usize)>,
}

/// Scans all segments, a few at once. If dropped, the scan stops. The receiver sets the pace of the scan.
pub(super) async fn scan(
    store: Store,
    options: SweepOptions,
    deadlines: Deadlines,
    query: Query,
    found: mpsc::Sender<Found>,
) {
    let segments = i32::from(options.segments.max(1));
    let mut waiting: Vec<i32> = (0..segments).collect();
    fastrand::shuffle(&mut waiting);
    let mut tasks = JoinSet::new();
    while !found.is_closed() {
        while tasks.len() < usize::from(options.concurrency.max(1))
            && !is_over(deadlines.scan)
            && let Some(segment) = waiting.pop()
        {
            let scan = query.scan(segment, segments);
            tasks.spawn(scan_segment(store.clone(), deadlines, query.clone(), scan, found.clone()));
        }
        match tasks.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => break,
        }
    }
}

async fn scan_segment(
    store: Store,
    deadlines: Deadlines,
    query: Query,
    mut scan: Scan,
    found: mpsc::Sender<Found>,
) {
    while !is_over(deadlines.scan) {
        let page = match store.scan(&scan).await {
            Ok(page) => page,
            // Throttled in every try: left to the next sweep.
            Err(StoreError::Contended { .. }) => return,
            Err(error) => {
                // If the sweep has ended, nobody receives.
                let _ = found.send(Found::Failed(error)).await;
                return;
            }
        };
        let mut read = query.read(&page);
        read.unreadable_buckets = unreadable_buckets(&page.rows).collect();
        scan.from = page.next;
        if found.send(Found::Page(read)).await.is_err() {
            return;
        }
        if scan.from.is_none() {
            let _ = found.send(Found::SegmentDone).await;
            return;
        }
    }
}

/// The buckets among these rows whose attributes cannot be read. All callers of such a bucket get errors.
fn unreadable_buckets(rows: &[Item]) -> impl Iterator<Item = (Dimension, RowError)> {
    rows.iter().filter_map(|row| {
        // A key of another kind is not a dimension.
        let dimension = Dimension::new(&value_text(row, KEY)).ok()?;
        let fault = Bucket::read(&dimension, &Attributes(row)).err()?;
        Some((dimension, fault))
    })
}

/// What a scan of the whole table reads: all of a bucket, and what a sweep needs of a lease.
static ATTRIBUTES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| OF_BUCKET.into_iter().chain([KEY, TTL, DIMENSION, COST, CREATED_AT]).collect());

static PROJECTION: LazyLock<String> = LazyLock::new(|| {
    let names = AttributeNames::of(&ATTRIBUTES);
    names.iter().map(|(placeholder, _)| placeholder).collect::<Vec<_>>().join(", ")
});

impl Query {
    /// A query for the leases that have ended by `now`. Unreadable rows are not logged: the sweeps log them,
    /// and every 8 s would be too often.
    pub(super) fn of_ended(now: Timestamp) -> Self {
        Self {
            read_at: ReadAt { begun: now, done: now },
            cutoff: now.before(CLOCK_ERROR),
            recounted: Arc::default(),
            unparsable: Arc::new(AtomicUsize::new(MOST_LOGGED)),
        }
    }

    /// Finds leases that have ended, leases that are recounted, leases whose end or bucket cannot be read
    /// (otherwise nobody would ever see a lease without `ttl`), and all buckets. Reads are strongly
    /// consistent: a lease that a late replica does not show yet would look like a lost slot.
    fn scan(&self, segment: i32, segments: i32) -> Scan {
        let mut values = vec![
            (":lease".into(), text(LEASE_PREFIX)),
            (":cutoff".into(), Operand::Number(self.cutoff.to_string())),
            (":number".into(), text("N")),
            (":string".into(), text("S")),
            (":load".into(), text(LOAD_PREFIX)),
            (":ticket".into(), text(TICKET_PREFIX)),
        ];
        let recounted = if self.recounted.len() > MOST_NAMED {
            " OR attribute_exists(#dimension)".to_owned()
        } else if self.recounted.is_empty() {
            String::new()
        } else {
            let named =
                self.recounted.iter().enumerate().map(|(at, name)| (format!(":name{at}").into(), text(name)));
            values.extend(named);
            // By the key too: a lease whose `dimension` is corrupt still holds a slot of its bucket.
            let keys = self.recounted.iter().enumerate();
            values.extend(
                keys.map(|(at, name)| (format!(":key{at}").into(), text(format!("{LEASE_PREFIX}{name}#")))),
            );
            let names: Vec<String> = (0..self.recounted.len()).map(|at| format!(":name{at}")).collect();
            let keys: String =
                (0..self.recounted.len()).map(|at| format!(" OR begins_with(#key,:key{at})")).collect();
            format!(" OR #dimension IN ({}){keys}", names.join(","))
        };
        let lease = "begins_with(#key, :lease)";
        let ended = "#ttl < :cutoff OR attribute_not_exists(#ttl) OR NOT attribute_type(#ttl, :number)";
        let nameless = "attribute_not_exists(#dimension) OR NOT attribute_type(#dimension, :string)";
        let bucket = "NOT begins_with(#key, :lease) AND NOT begins_with(#key, :load) AND NOT begins_with(#key, :ticket)";
        Scan {
            segment,
            segments,
            filter: format!("({lease} AND ({ended} OR {nameless}{recounted})) OR ({bucket})").into(),
            consistency: Consistency::Strong,
            names: AttributeNames::of(&ATTRIBUTES),
            values,
            projection: Some(&PROJECTION),
            page: i32::try_from(ROWS_PER_PAGE).ok(),
            from: None,
        }
    }

    /// A page of the ended leases, and of the buckets with inline leases: `rows` rows after `from`,
    /// eventually consistent, at half the price. A lease that has ended by every clock was written seconds
    /// ago, and what a late replica shows of it is part of the condition of the write that gives it back.
    pub(super) fn ended(&self, from: Option<Item>, rows: u32) -> Scan {
        Scan {
            segment: 0,
            segments: 1,
            filter: "(begins_with(#key, :lease) AND #ttl < :cutoff) OR attribute_exists(#leases)".into(),
            consistency: Consistency::Eventual,
            names: AttributeNames::of(&[KEY, TTL, DIMENSION, COST, CREATED_AT, LIMIT_TYPE, LEASES]),
            values: vec![
                (":lease".into(), text(LEASE_PREFIX)),
                (":cutoff".into(), Operand::Number(self.cutoff.to_string())),
            ],
            projection: Some("#key, #ttl, #dimension, #cost, #created_at, #limit_type, #leases"),
            page: i32::try_from(rows).ok(),
            from,
        }
    }

    pub(super) fn read(&self, read: &sluice_table::Page) -> LeasePage {
        let mut page = LeasePage {
            rows_scanned: read.scanned,
            read_units: read.read_units.map_or(MOST_UNITS, whole),
            ..LeasePage::default()
        };
        for row in &read.rows {
            let key = value_text(row, KEY);
            if key.starts_with(LEASE_PREFIX) {
                self.read_lease(&key, row, &mut page);
            } else if !key.starts_with(LOAD_PREFIX) {
                self.read_bucket(&key, row, &mut page);
            }
        }
        page
    }

    fn read_bucket(&self, key: &str, row: &Item, page: &mut LeasePage) {
        let Ok(dimension) = Dimension::new(key) else { return };
        if value_text(row, LIMIT_TYPE) != LimitType::Concurrent.as_str() {
            return;
        }
        page.buckets.push(dimension.clone());
        match InlineLeases::read(&Attributes(row)) {
            Ok(None) => {}
            Ok(Some(leases)) => {
                for id in leases.unreadable() {
                    self.unparsable(
                        page,
                        &inline_key(&dimension, id),
                        &"its cost (c) or end (t) cannot be read",
                    );
                }
                let ended = leases.ended(self.cutoff).count();
                page.ended_inline.extend((ended > 0).then_some((dimension, ended)));
            }
            Err(error) => self.unparsable(page, key, &error),
        }
    }

    fn unparsable(&self, page: &mut LeasePage, key: &str, error: &dyn std::fmt::Display) {
        page.unparsable += 1;
        if self.unparsable.fetch_add(1, Ordering::Relaxed) < MOST_LOGGED {
            tracing::error!(event = "reconciler.unparsable", lease = key, %error);
        }
    }

    fn read_lease(&self, key: &str, row: &Item, page: &mut LeasePage) {
        match Lease::read(&Attributes(row)) {
            Ok(lease) => {
                if self.recounted.contains(lease.dimension()) {
                    page.census.entry(lease.dimension().clone()).or_default().count(&lease, self.read_at);
                }
                if lease.ends() < self.cutoff {
                    page.ended.push(lease);
                }
            }
            Err(error) => {
                self.unparsable(page, key, &error);
                for dimension in Lease::dimensions_of_unreadable(&Attributes(row)) {
                    page.census.entry(dimension).or_default().count_unreadable();
                }
            }
        }
    }
}

/// Read units are whole or half, and far below 2^53.
fn whole(read_units: f64) -> u64 {
    format!("{:.0}", read_units.ceil()).parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits are 4 KB and 300 operators, according to the Developer Guide ("Service, account, and table
    /// quotas"). The engines here do not enforce them.
    #[test]
    fn the_filter_stays_within_what_dynamodb_takes() {
        let names = (0..MOST_NAMED).map(|at| Dimension::new(&format!("vendor{at}#concurrent")).unwrap());
        let now = Timestamp::from_secs(0);
        let query = Query {
            read_at: ReadAt { begun: now, done: now },
            cutoff: now,
            recounted: Arc::new(names.collect()),
            unparsable: Arc::default(),
        };
        let filter = query.scan(0, 1).filter;
        let operators = ["begins_with", "attribute_", " AND ", " OR ", "NOT ", " IN ", " < ", " = "];
        let used: usize = operators.iter().map(|operator| filter.matches(operator).count()).sum();
        assert!(filter.len() <= 4_096, "{} bytes", filter.len());
        assert!(used <= 300, "{used} operators");
    }
}
