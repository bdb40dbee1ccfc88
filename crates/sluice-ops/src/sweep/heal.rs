//! What a process heals: a page of the table, whatever its leases' buckets, and a bucket's inline leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::schema::KEY;
use sluice_core::{Bucket, CLOCK_ERROR, Dimension, HEAL_EVERY, InlineLeases, Lease, Timestamp};
use tokio::task::JoinSet;

use super::reclaim::{self, BucketRead, EndedLeases, Reclaimed};
use super::scan::{MOST_UNITS, Query};
use super::{Deadlines, is_over};
use crate::ops::Ops;
use sluice_table::{StoreError, row_key, value_text};

/// How many buckets are given back to at once. Fewer disturb callers less.
const AT_ONCE: usize = 4;

/// The most bytes of an inline lease: an id of 36 bytes, a cost, an end, and what DynamoDB adds.
const BYTES_OF_A_LEASE: usize = 60;

/// A page to be read.
#[derive(Clone, Copy, Debug)]
pub struct HealPage<'a> {
    /// The key of the row before the page; `None` at the start of the table.
    pub from: Option<&'a str>,
    /// The most rows of the page.
    pub rows: u32,
    /// The most that the page may cost, in read units. The page itself is read in any case.
    pub units: u64,
    /// How long the page may take.
    pub time: Duration,
}

/// The result of healing a page.
#[derive(Clone, Debug)]
pub struct HealedPage {
    /// Leases given back.
    pub restored: usize,
    /// Read units spent: on the page, and on the buckets of its leases.
    pub read_units: u64,
    /// Where the next page begins.
    pub next: NextPage,
    /// Why the page could not be read, or could not be finished.
    pub error: Option<StoreError>,
}

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPage {
    /// After the row of this key.
    After(String),
    /// At the start of the table: this page was the last.
    Start,
    /// Where this page began: it was unreadable, or there was not time for all of its ended leases.
    Again,
}

impl HealPage<'_> {
    /// Reads the page, and gives back what its ended leases hold, inline or in rows of their own. Leases of
    /// rate buckets, and of buckets that are gone, are deleted: each would cost a read in every scan. Only
    /// then is the page done: if the process ends before, the next turn reads it. A lease in conflict, and
    /// what DynamoDB rejects for one bucket, is left to the next scan. A page of one row is never read again:
    /// it would stop the scan for ever.
    pub async fn heal(self, ops: &Ops) -> HealedPage {
        let deadlines = Deadlines::of(Some(self.time));
        let now = match ops.store.time().await {
            Ok(now) => now,
            Err(error) => return HealedPage::unread(error),
        };
        let query = Query::of_ended(now);
        let from = self.from.map(row_key);
        let read = match ops.store.scan_once(&query.ended(from, self.rows)).await {
            Ok(read) => read,
            Err(error) => return HealedPage::unread(error),
        };
        let page = query.read(&read);
        let mut rows: BTreeMap<Dimension, Vec<Lease>> = BTreeMap::new();
        for lease in page.ended {
            rows.entry(lease.dimension().clone()).or_default().push(lease);
        }
        let rows = rows.into_iter().map(|(dimension, leases)| (dimension, EndedLeases::Rows(leases)));
        let inline =
            page.ended_inline.into_iter().map(|(dimension, leases)| (dimension, EndedLeases::Inline(leases)));
        let mut ended: Vec<_> = rows.chain(inline).collect();
        // In random order: a process that is cut off again and again begins with other buckets each time.
        fastrand::shuffle(&mut ended);
        let units = self.units.saturating_sub(page.read_units);
        let given =
            PageRun { ops, now, deadlines, units, given: PageTotals::default() }.give_back(ended).await;
        let is_done = given.left == 0 || self.rows <= 1;
        let next = match read.next.as_ref().map(|key| value_text(key, KEY)) {
            _ if !is_done => NextPage::Again,
            Some(key) => NextPage::After(key),
            None => NextPage::Start,
        };
        let read_units = page.read_units + given.read_units;
        HealedPage { restored: given.restored, read_units, next, error: given.error }
    }
}

impl HealedPage {
    /// If the reply was lost, the cost is not known, and counts as that of the largest page.
    fn unread(error: StoreError) -> Self {
        let read_units = if error.is_unavailable() { MOST_UNITS } else { 0 };
        // DynamoDB may have rejected the key at which the page began.
        let next =
            if matches!(error, StoreError::Rejected { .. }) { NextPage::Start } else { NextPage::Again };
        Self { restored: 0, read_units, next, error: Some(error) }
    }
}

impl Ops {
    /// Gives back the inline leases of `bucket` that have ended, and returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn heal_inline(&self, bucket: Arc<Bucket>) -> Result<usize, StoreError> {
        let now = self.store.time().await?;
        let cutoff = now.before(CLOCK_ERROR);
        let ended = bucket.inline().map_or(0, |leases| leases.ended(cutoff).count());
        if ended == 0 {
            return Ok(0);
        }
        let (sweep, dimension) =
            (sweep(self, now, Deadlines::of(Some(HEAL_EVERY))), bucket.dimension().clone());
        finish(
            self,
            reclaim::reclaim(sweep, dimension, Some(BucketRead::Bucket(bucket)), EndedLeases::Inline(ended))
                .await,
        )
    }
}

#[derive(Debug, Default)]
struct PageTotals {
    restored: usize,
    read_units: u64,
    /// Buckets for which there was no time or no budget.
    left: usize,
    /// DynamoDB is unavailable.
    error: Option<StoreError>,
}

struct PageRun<'a> {
    ops: &'a Ops,
    now: Timestamp,
    deadlines: Deadlines,
    /// Read units that the buckets may cost.
    units: u64,
    given: PageTotals,
}

impl PageRun<'_> {
    /// Gives back the leases of a few buckets at once. If DynamoDB is unavailable, the page ends: otherwise
    /// every bucket would cost its retries. What DynamoDB rejects for one bucket, such as a write to a key
    /// that the role may not write, does not stop the other buckets.
    async fn give_back(mut self, ended: Vec<(Dimension, EndedLeases)>) -> PageTotals {
        let (mut tasks, mut waiting) = (JoinSet::new(), ended.into_iter());
        let mut refused = 0;
        loop {
            while tasks.len() < AT_ONCE
                && self.may_begin()
                && let Some((dimension, ended)) = waiting.next()
            {
                // Until the row is read, it counts as the least that a row costs.
                self.given.read_units += 1;
                let sweep = sweep(self.ops, self.now, self.deadlines);
                tasks.spawn(give_back(sweep, dimension, ended));
            }
            let done = match tasks.join_next().await {
                None => break,
                Some(Ok(done)) => done,
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            };
            self.given.read_units += units_of(&done).saturating_sub(1);
            self.given.left += usize::from(done.tally.left > 0 && is_over(self.deadlines.work));
            let dimension = done.dimension.clone();
            match finish(self.ops, done) {
                Ok(leases) => self.given.restored += leases,
                Err(error) if error.is_unavailable() => self.given.error = Some(error),
                Err(error) => {
                    // Logged once a page: most of the time, the others are refused for the same reason.
                    if refused == 0 {
                        tracing::warn!(event = "heal.refused", %dimension, %error, "the ended leases of this bucket wait for another process");
                    }
                    refused += 1;
                }
            }
        }
        self.given.left += waiting.len() + usize::from(self.given.error.is_some());
        self.given
    }

    fn may_begin(&self) -> bool {
        self.given.error.is_none() && self.given.read_units < self.units && !is_over(self.deadlines.work)
    }
}

/// Gives back what one bucket's leases hold. A bucket that became a rate bucket has no slots for them.
async fn give_back(sweep: reclaim::Sweep, dimension: Dimension, ended: EndedLeases) -> Reclaimed {
    let known = reclaim::known_of(&sweep.store, &dimension).await;
    let has_slots = |bucket: &Bucket| bucket.limit().is_concurrent();
    match (known, ended) {
        (Ok(BucketRead::Bucket(bucket)), EndedLeases::Inline(_)) if !has_slots(&bucket) => Reclaimed {
            dimension,
            known: Some(BucketRead::Bucket(bucket)),
            tally: Default::default(),
            result: Ok(()),
        },
        (Ok(known), ended) => reclaim::reclaim(sweep, dimension, Some(known), ended).await,
        // Throttled in every try: left to the next scan.
        (Err(StoreError::Contended { .. }), _) => {
            Reclaimed { dimension, known: None, tally: Default::default(), result: Ok(()) }
        }
        (Err(error), _) => {
            Reclaimed { dimension, known: None, tally: Default::default(), result: Err(error) }
        }
    }
}

/// Read units of a bucket's strongly consistent read: one for each 4 KB, mostly inline leases.
fn units_of(done: &Reclaimed) -> u64 {
    let Some(BucketRead::Bucket(bucket)) = &done.known else { return 1 };
    let leases = bucket.inline().map_or(0, InlineLeases::len);
    1 + u64::try_from(leases * BYTES_OF_A_LEASE / 4_096).unwrap_or(0)
}

/// A sweep as of `now`, before the page was read: leases are judged by that instant even if the process
/// freezes.
fn sweep(ops: &Ops, now: Timestamp, deadlines: Deadlines) -> reclaim::Sweep {
    reclaim::Sweep { store: ops.store.clone(), deadlines, cutoff: now.before(CLOCK_ERROR) }
}

/// Tells the observer, and with it the callers that wait in this process for the slots.
fn finish(ops: &Ops, done: Reclaimed) -> Result<usize, StoreError> {
    let restored = done.tally.restored;
    if restored > 0 {
        ops.observer.restored(&done.dimension, restored);
        tracing::info!(event = "heal.restored", dimension = %done.dimension, leases = restored);
    }
    done.result.map(|()| restored)
}
