//! The sweep: gives back what crashed callers held. What the reconciler runs; any process may, at any time, beside others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{COST, DIMENSION, KEY, LEASE_PREFIX, TTL};
use sluice_core::{Bucket, Chunk, Dimension, Lease, MAX_LEASES_PER_TRANSACTION};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, Inner};
use crate::give_back::{Tally, settle};
use crate::store::{Attributes, Item, Scan, StoreError, value_text};

mod report;

pub use report::{SweepOptions, SweepReport};

/// A lease counts as ended this long after its `ttl`, by this process's clock: the clock of its holder may lag.
const CLOCK_ERROR: Duration = Duration::from_secs(2);

/// Conflicts that a lease is waited for before it is left to the next sweep: at most half a second.
const TRIES: u32 = 5;

/// Ended leases, and rows whose end cannot be read. A lease without `ttl` would otherwise never be seen by anyone.
const EXPIRED: &str =
    "begins_with(#pk, :lease) AND (#e < :cutoff OR attribute_not_exists(#e) OR NOT attribute_type(#e, :n))";
const NAMES: &[(&str, &str)] = &[("#pk", KEY), ("#e", TTL), ("#d", DIMENSION), ("#k", COST)];

/// One sweep under way.
struct Sweep {
    inner: Arc<Inner>,
    deadline: Option<Instant>,
    /// The scan ends earlier, so that what it found is given back in the same sweep.
    scan_deadline: Option<Instant>,
    places: Semaphore,
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
        let until = |budget: Option<Duration>| budget.and_then(|budget| began.checked_add(budget));
        let sweep = Arc::new(Sweep {
            inner: Arc::clone(&self.inner),
            deadline: until(options.budget),
            scan_deadline: until(options.budget.map(|budget| budget / 10 * 6)),
            places: Semaphore::new(usize::from(options.concurrency.max(1))),
        });
        let (pages, found) = mpsc::channel(usize::from(options.concurrency.max(1)));
        // In a set of its own: a sweep that is dropped takes its scan with it.
        let mut scanning = JoinSet::new();
        scanning.spawn(Arc::clone(&sweep).scan(options.segments, options.concurrency, pages));
        let (mut report, given_back) = Arc::clone(&sweep).give_back(found).await;
        let scanned = match scanning.join_next().await {
            Some(Ok((scan, result))) => {
                report.add(scan);
                result
            }
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => Ok(()),
        };
        let scan_cut_off = report.segments_unscanned > 0 && is_over(sweep.scan_deadline);
        report.deadline_hit = scan_cut_off || is_over(sweep.deadline);
        report.duration = began.elapsed();
        report.log();
        scanned.and(given_back).map(|()| report)
    }
}

impl Sweep {
    /// Scans the table and passes on the ended leases, page by page.
    async fn scan(
        self: Arc<Self>,
        segments: u16,
        at_once: u16,
        pages: mpsc::Sender<Vec<Lease>>,
    ) -> (SweepReport, Result<(), StoreError>) {
        let segments = i32::from(segments.max(1));
        let mut waiting: Vec<i32> = (0..segments).collect();
        fastrand::shuffle(&mut waiting);
        let (mut report, mut result) = (SweepReport::default(), Ok(()));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < usize::from(at_once.max(1)) && !is_over(self.scan_deadline) && result.is_ok() {
                let Some(segment) = waiting.pop() else { break };
                let (sweep, pages) = (Arc::clone(&self), pages.clone());
                tasks.spawn(async move {
                    let mut report = SweepReport::default();
                    let result = sweep.scan_segment(segment, segments, &pages, &mut report).await;
                    (report, result)
                });
            }
            match tasks.join_next().await {
                Some(Ok((part, scanned))) => {
                    report.add(part);
                    result = result.and(scanned);
                }
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            }
        }
        report.segments_unscanned += waiting.len();
        (report, result)
    }

    async fn scan_segment(
        &self,
        segment: i32,
        segments: i32,
        pages: &mpsc::Sender<Vec<Lease>>,
        report: &mut SweepReport,
    ) -> Result<(), StoreError> {
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
        while !is_over(self.scan_deadline) {
            let page = match self.inner.store.scan(&scan).await {
                Ok(page) => page,
                // Throttled in every try: the next sweep reads it.
                Err(StoreError::Contended { .. }) => break,
                Err(error) => return Err(error),
            };
            report.rows_scanned += page.scanned;
            let leases = read(&page.rows, report);
            if !leases.is_empty() && pages.send(leases).await.is_err() {
                break;
            }
            scan.from = page.next;
            if scan.from.is_none() {
                return Ok(());
            }
        }
        report.segments_unscanned += 1;
        Ok(())
    }

    /// Gives back what the scan finds: a transaction as soon as a bucket has leases for one, and the rest at the scan's end.
    /// The first failure of the table is returned after all had their turn.
    async fn give_back(
        self: Arc<Self>,
        mut found: mpsc::Receiver<Vec<Lease>>,
    ) -> (SweepReport, Result<(), StoreError>) {
        let mut groups: BTreeMap<Dimension, Vec<Lease>> = BTreeMap::new();
        // Transactions of one bucket take turns: side by side they would only conflict.
        let mut turns: BTreeMap<Dimension, Arc<Mutex<()>>> = BTreeMap::new();
        let mut turn = |dimension: &Dimension| Arc::clone(turns.entry(dimension.clone()).or_default());
        let mut tasks = JoinSet::new();
        while let Some(leases) = found.recv().await {
            for lease in leases {
                let dimension = lease.dimension().clone();
                let group = groups.entry(dimension.clone()).or_default();
                group.push(lease);
                if group.len() == MAX_LEASES_PER_TRANSACTION {
                    let (leases, turn) = (std::mem::take(group), turn(&dimension));
                    tasks.spawn(Arc::clone(&self).give_back_group(dimension, leases, turn));
                }
            }
        }
        let mut rest: Vec<_> = groups.into_iter().filter(|(_, leases)| !leases.is_empty()).collect();
        fastrand::shuffle(&mut rest);
        for (dimension, leases) in rest {
            let turn = turn(&dimension);
            tasks.spawn(Arc::clone(&self).give_back_group(dimension, leases, turn));
        }
        let (mut report, mut result) = (SweepReport::default(), Ok(()));
        while let Some(task) = tasks.join_next().await {
            let (dimension, tally, given_back) = match task {
                Ok(done) => done,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            report.count(&dimension, &tally);
            if let Err(error) = given_back {
                tracing::error!(event = "reconciler.failed", %dimension, %error);
                result = result.and(Err(error));
            }
        }
        (report, result)
    }

    async fn give_back_group(
        self: Arc<Self>,
        dimension: Dimension,
        leases: Vec<Lease>,
        turn: Arc<Mutex<()>>,
    ) -> (Dimension, Tally, Result<(), StoreError>) {
        let _turn = turn.lock().await;
        let _place = self.places.acquire().await;
        let mut tally = Tally::default();
        let result = self.give_back_bucket(&dimension, leases, &mut tally).await;
        (dimension, tally, result)
    }

    async fn give_back_bucket(
        &self,
        dimension: &Dimension,
        leases: Vec<Lease>,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        if is_over(self.deadline) {
            tally.left += leases.len();
            return Ok(());
        }
        let store = &self.inner.store;
        let row: Option<Item> = match store.read(dimension.as_str()).await {
            Err(StoreError::Contended { .. }) => {
                tally.left += leases.len();
                return Ok(());
            }
            row => row?,
        };
        let bucket = match row.map(|row| Bucket::read(dimension, &Attributes(&row))).transpose() {
            Ok(bucket) => bucket,
            Err(error) => {
                tally.failed.extend(leases.iter().map(|lease| (lease.key().to_owned(), error.to_string())));
                return Ok(());
            }
        };
        for chunk in Chunk::reclaim(bucket.as_ref(), leases) {
            settle(store, chunk, TRIES, || !is_over(self.deadline), tally).await?;
        }
        Ok(())
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// The leases of a page.
fn read(rows: &[Item], report: &mut SweepReport) -> Vec<Lease> {
    let mut leases = Vec::new();
    for row in rows {
        match Lease::read(&Attributes(row)) {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                report.unparsable += 1;
                tracing::error!(event = "reconciler.unparsable", lease = value_text(row, KEY), %error);
            }
        }
    }
    report.expired += leases.len();
    leases
}
