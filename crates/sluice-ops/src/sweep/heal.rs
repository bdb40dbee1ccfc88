//! What a process heals: a page of the table, whichever buckets its leases are of, and the inline leases of
//! one bucket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::schema::KEY;
use sluice_core::{Bucket, CLOCK_ERROR, Dimension, HEAL_EVERY, InlineLeases, Lease, Timestamp};
use tokio::task::JoinSet;

use super::reclaim::{self, Done, Ended, Known};
use super::scan::{MOST_UNITS, Query};
use super::{Deadlines, is_over};
use crate::ops::Ops;
use sluice_table::{StoreError, row_key, value_text};

/// Buckets that are given back to at once: fewer disturb callers less.
const AT_ONCE: usize = 4;

/// An inline lease in its bucket's row, at most: an id of 36 bytes, a cost, an end, and what DynamoDB adds to
/// them.
const BYTES_OF_A_LEASE: usize = 60;

/// A page that is to be read.
#[derive(Clone, Copy, Debug)]
pub struct HealPage<'a> {
    /// The key of the row before it; `None` at the start of the table.
    pub from: Option<&'a str>,
    /// Its rows at most.
    pub rows: u32,
    /// What it may cost at most, in read units. The page itself is read in any case.
    pub units: u64,
    /// How long it may take.
    pub time: Duration,
}

/// What a page came to.
#[derive(Clone, Debug)]
pub struct HealedPage {
    /// Leases given back.
    pub restored: usize,
    /// What was read for it: the page, and the buckets of its leases.
    pub read_units: u64,
    /// Where the next page begins.
    pub next: NextPage,
    /// Why it could not be read, or not be dealt with.
    pub error: Option<StoreError>,
}

/// Where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPage {
    /// After the row of this key.
    After(String),
    /// At the start of the table: this page was the last.
    Start,
    /// Where this one began: it could not be read, or there was not time for all that had ended.
    Again,
}

impl HealPage<'_> {
    /// Reads the page, and gives back what the leases hold that have ended in it: those with rows of their own, and the inline ones of
    /// the bucket rows. Those of rate buckets, and of buckets that are gone, are deleted: each of them would cost a reading of its
    /// bucket with every scan.
    ///
    /// Only then is the page done: a process that ends before leaves it to the next turn. Conflicts leave a lease to the next scan,
    /// and so does whatever DynamoDB refuses of one bucket. A page of one row is never read again: it would stop the scan for ever.
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
        let rows = rows.into_iter().map(|(dimension, leases)| (dimension, Ended::Rows(leases)));
        let inline = page.ended_inline.into_iter().map(|(dimension, leases)| (dimension, Ended::Inline(leases)));
        let mut ended: Vec<_> = rows.chain(inline).collect();
        // Of many buckets, a process that is cut off again and again does not always begin with the same.
        fastrand::shuffle(&mut ended);
        let units = self.units.saturating_sub(page.read_units);
        let given = Giving { ops, now, deadlines, units, given: Given::default() }.give_back(ended).await;
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
    /// What it cost is not known if its reply was lost.
    fn unread(error: StoreError) -> Self {
        let read_units = if error.is_unavailable() { MOST_UNITS } else { 0 };
        // The place where it began may be what DynamoDB refuses.
        let next = if matches!(error, StoreError::Rejected { .. }) { NextPage::Start } else { NextPage::Again };
        Self { restored: 0, read_units, next, error: Some(error) }
    }
}

impl Ops {
    /// Gives back the inline leases of `bucket` that have ended; how many.
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
        let (sweep, dimension) = (sweep(self, now, Deadlines::of(Some(HEAL_EVERY))), bucket.dimension().clone());
        finish(self, reclaim::reclaim(sweep, dimension, Some(Known::Bucket(bucket)), Ended::Inline(ended)).await)
    }
}

/// What was given back of a page so far.
#[derive(Debug, Default)]
struct Given {
    restored: usize,
    read_units: u64,
    /// Buckets that there was no time for, or no budget.
    left: usize,
    /// DynamoDB is out.
    error: Option<StoreError>,
}

/// Giving back what a page has found.
struct Giving<'a> {
    ops: &'a Ops,
    now: Timestamp,
    deadlines: Deadlines,
    /// What the buckets may cost.
    units: u64,
    given: Given,
}

impl Giving<'_> {
    /// A few buckets at once. A table that is out would cost every bucket its retries: it ends the page. What DynamoDB refuses of one
    /// bucket, such as to a role that may not write its key, keeps nobody from the others.
    async fn give_back(mut self, ended: Vec<(Dimension, Ended)>) -> Given {
        let (mut tasks, mut waiting) = (JoinSet::new(), ended.into_iter());
        let mut refused = 0;
        loop {
            while tasks.len() < AT_ONCE
                && self.may_begin()
                && let Some((dimension, ended)) = waiting.next()
            {
                // As of the least that its row costs, until it is read.
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
                    // Said once a page: the others are refused for the same reason, most of the time.
                    if refused == 0 {
                        tracing::warn!(event = "heal.refused", %dimension, %error, "its leases wait for another process");
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

/// What one bucket's leases hold. A bucket that became a rate has no slots for those that stand in its row.
async fn give_back(sweep: reclaim::Sweep, dimension: Dimension, ended: Ended) -> Done {
    let known = reclaim::known_of(&sweep.store, &dimension).await;
    let has_slots = |bucket: &Bucket| bucket.limit().is_concurrent();
    match (known, ended) {
        (Ok(Known::Bucket(bucket)), Ended::Inline(_)) if !has_slots(&bucket) => {
            Done { dimension, known: Some(Known::Bucket(bucket)), tally: Default::default(), result: Ok(()) }
        }
        (Ok(known), ended) => reclaim::reclaim(sweep, dimension, Some(known), ended).await,
        // Throttled in every try: the next scan's.
        (Err(StoreError::Contended { .. }), _) => {
            Done { dimension, known: None, tally: Default::default(), result: Ok(()) }
        }
        (Err(error), _) => Done { dimension, known: None, tally: Default::default(), result: Err(error) },
    }
}

/// What the strongly consistent reading of a bucket costs: a unit for each 4 KB, of which inline leases take most.
fn units_of(done: &Done) -> u64 {
    let Some(Known::Bucket(bucket)) = &done.known else { return 1 };
    let leases = bucket.inline().map_or(0, InlineLeases::len);
    1 + u64::try_from(leases * BYTES_OF_A_LEASE / 4_096).unwrap_or(0)
}

/// As of `now`, before the page was read: what it judges by gets no later while the process is frozen.
fn sweep(ops: &Ops, now: Timestamp, deadlines: Deadlines) -> reclaim::Sweep {
    reclaim::Sweep { store: ops.store.clone(), deadlines, cutoff: now.before(CLOCK_ERROR) }
}

/// Tells those who wait in this process for the slots.
fn finish(ops: &Ops, done: Done) -> Result<usize, StoreError> {
    let restored = done.tally.restored;
    if restored > 0 {
        ops.observer.restored(&done.dimension, restored);
        tracing::info!(event = "heal.restored", dimension = %done.dimension, leases = restored);
    }
    done.result.map(|()| restored)
}
