//! The sweep: gives back what crashed callers held. What the reconciler runs; any process may, at any time, beside others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{COST, DIMENSION, KEY, LEASE_PREFIX, TTL};
use sluice_core::{Bucket, Chunk, Dimension, Lease};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, Inner};
use crate::give_back::{Tally, settle};
use crate::store::{Attributes, Item, Scan, StoreError, value_text};

/// A lease counts as ended this long after its `ttl`, by this process's clock: the clock of its holder may lag.
const CLOCK_ERROR: Duration = Duration::from_secs(2);

/// Ended leases, and rows whose end cannot be read. A lease without `ttl` would otherwise never be seen by anyone.
const EXPIRED: &str =
    "begins_with(#pk, :lease) AND (#e < :cutoff OR attribute_not_exists(#e) OR NOT attribute_type(#e, :n))";
const NAMES: &[(&str, &str)] = &[("#pk", KEY), ("#e", TTL), ("#d", DIMENSION), ("#k", COST)];

/// How a sweep goes about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepOptions {
    /// Parts of the table that are scanned side by side; 4 by default. More finish sooner and read faster than a small
    /// table's throughput may allow.
    pub segments: u16,
    /// Transactions under way at once; 8 by default. More finish sooner; fewer disturb callers less.
    pub concurrency: u16,
    /// Time after which nothing new is begun; none by default. What is left is the next sweep's.
    pub budget: Option<Duration>,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { segments: 4, concurrency: 8, budget: None }
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
    /// Dimensions with a lease given back.
    pub dimensions: BTreeSet<Dimension>,
    /// Leases deleted without a slot, since their bucket was full already.
    pub already_capped: usize,
    /// Leases that were given back or renewed between the scan and the write.
    pub lost_races: usize,
    /// Conflicts and throttlings that were waited out.
    pub conflicts_retried: usize,
    /// Rows that cannot be read, left alone.
    pub unparsable: usize,
    /// Leases left for the next sweep, by conflicts or the end of the budget.
    pub left: usize,
    /// Leases whose transaction DynamoDB will never accept, left alone.
    pub failed: usize,
    /// Whether the budget ended the sweep.
    pub deadline_hit: bool,
    /// How long it took.
    pub duration: Duration,
}

/// One sweep under way.
struct Sweep {
    inner: Arc<Inner>,
    deadline: Option<Instant>,
}

impl Client {
    /// Gives back what the leases hold that have ended.
    ///
    /// Every write is conditional on the lease as it was scanned, so sweeps may run side by side, be cut off anywhere, and
    /// meet late releases and renewals.
    ///
    /// # Errors
    /// [`StoreError`] where the table does not answer. What was given back until then stays given back. A row that cannot be
    /// read is no error: it is counted, logged and left alone.
    pub async fn sweep(&self, options: SweepOptions) -> Result<SweepReport, StoreError> {
        let began = Instant::now();
        let deadline = options.budget.map(|budget| began + budget);
        let sweep = Arc::new(Sweep { inner: Arc::clone(&self.inner), deadline });
        let mut report = SweepReport::default();
        let leases = sweep.scan(options.segments, &mut report).await?;
        report.expired = leases.values().map(Vec::len).sum();
        let failure = sweep.give_back(leases, options.concurrency, &mut report).await;
        report.deadline_hit = sweep.is_over();
        report.duration = began.elapsed();
        report.log();
        failure.map_or(Ok(report), Err)
    }
}

impl SweepReport {
    fn log(&self) {
        tracing::info!(
            event = "reconciler.complete",
            restored = self.restored,
            dimensions = %self.dimensions.iter().map(Dimension::as_str).collect::<Vec<_>>().join(","),
            already_capped = self.already_capped,
            rows_scanned = self.rows_scanned,
            expired = self.expired,
            lost_races = self.lost_races,
            conflicts_retried = self.conflicts_retried,
            unparsable = self.unparsable,
            left = self.left,
            failed = self.failed,
            deadline_hit = self.deadline_hit,
            duration_ms = self.duration.as_millis(),
        );
    }

    fn add(&mut self, dimension: &Dimension, tally: &Tally) {
        self.restored += tally.restored;
        self.already_capped += tally.already_capped;
        self.lost_races += tally.lost_races;
        self.conflicts_retried += tally.conflicts_retried;
        self.left += tally.left;
        self.failed += tally.failed.len();
        if tally.restored > 0 {
            self.dimensions.insert(dimension.clone());
        }
        for (lease, message) in &tally.failed {
            tracing::error!(event = "reconciler.refused", %dimension, lease, message);
        }
    }
}

impl Sweep {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Reads the whole table, its segments side by side and in random order, so that a sweep that is always cut off does not
    /// always miss the same rows.
    async fn scan(
        self: &Arc<Self>,
        segments: u16,
        report: &mut SweepReport,
    ) -> Result<BTreeMap<Dimension, Vec<Lease>>, StoreError> {
        let segments = i32::from(segments.max(1));
        let mut order: Vec<i32> = (0..segments).collect();
        fastrand::shuffle(&mut order);
        let mut tasks = JoinSet::new();
        for segment in order {
            let sweep = Arc::clone(self);
            tasks.spawn(async move { sweep.scan_segment(segment, segments).await });
        }
        let mut leases: BTreeMap<Dimension, Vec<Lease>> = BTreeMap::new();
        while let Some(segment) = tasks.join_next().await {
            let (found, scanned, unparsable) = match segment {
                Ok(result) => result?,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            report.rows_scanned += scanned;
            report.unparsable += unparsable;
            for lease in found {
                leases.entry(lease.dimension().clone()).or_default().push(lease);
            }
        }
        Ok(leases)
    }

    async fn scan_segment(&self, segment: i32, segments: i32) -> Result<(Vec<Lease>, usize, usize), StoreError> {
        let cutoff = self.inner.now().before(CLOCK_ERROR);
        let mut scan = Scan {
            segment,
            segments,
            filter: EXPIRED,
            names: NAMES,
            values: vec![
                (":lease", AttributeValue::S(LEASE_PREFIX.into())),
                (":cutoff", AttributeValue::N(cutoff.to_string())),
                (":n", AttributeValue::S("N".into())),
            ],
            projection: Some("#pk, #e, #d, #k"),
            from: None,
        };
        let (mut leases, mut scanned, mut unparsable) = (Vec::new(), 0, 0);
        while !self.is_over() {
            let page = self.inner.store.scan(&scan).await?;
            scanned += page.scanned;
            for row in &page.rows {
                match Lease::read(&Attributes(row)) {
                    Ok(lease) => leases.push(lease),
                    Err(error) => {
                        unparsable += 1;
                        let lease = value_text(row, KEY);
                        tracing::error!(event = "reconciler.unparsable", lease, %error);
                    }
                }
            }
            scan.from = page.next;
            if scan.from.is_none() {
                break;
            }
        }
        Ok((leases, scanned, unparsable))
    }

    /// Gives the leases back, bucket by bucket, several side by side. The first failure of the table is returned after all
    /// the others had their turn.
    async fn give_back(
        self: &Arc<Self>,
        leases: BTreeMap<Dimension, Vec<Lease>>,
        concurrency: u16,
        report: &mut SweepReport,
    ) -> Option<StoreError> {
        let places = Arc::new(Semaphore::new(usize::from(concurrency.max(1))));
        let mut groups: Vec<_> = leases.into_iter().collect();
        fastrand::shuffle(&mut groups);
        let mut tasks = JoinSet::new();
        for (dimension, leases) in groups {
            let (sweep, places) = (Arc::clone(self), Arc::clone(&places));
            tasks.spawn(async move {
                let _place = places.acquire().await;
                let mut tally = Tally::default();
                let result = sweep.give_back_bucket(&dimension, leases, &mut tally).await;
                (dimension, tally, result)
            });
        }
        let mut failure = None;
        while let Some(task) = tasks.join_next().await {
            let (dimension, tally, result) = match task {
                Ok(done) => done,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            report.add(&dimension, &tally);
            if let Err(error) = result {
                tracing::error!(event = "reconciler.failed", %dimension, %error);
                failure = Some(error);
            }
        }
        failure
    }

    async fn give_back_bucket(
        &self,
        dimension: &Dimension,
        leases: Vec<Lease>,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        if self.is_over() {
            tally.left += leases.len();
            return Ok(());
        }
        let store = &self.inner.store;
        let row: Option<Item> = store.read(dimension.as_str()).await?;
        let bucket = match row.map(|row| Bucket::read(dimension, &Attributes(&row))).transpose() {
            Ok(bucket) => bucket,
            Err(error) => {
                tally.failed.extend(leases.iter().map(|lease| (lease.key().to_owned(), error.to_string())));
                return Ok(());
            }
        };
        for chunk in Chunk::reclaim(bucket.as_ref(), leases) {
            settle(store, chunk, store.max_retries(), || !self.is_over(), tally).await?;
        }
        Ok(())
    }
}
