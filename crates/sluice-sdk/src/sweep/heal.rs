//! What a process heals: a page of the table, whichever buckets its leases are of, and the inline leases of
//! one bucket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::KEY;
use sluice_core::{Bucket, CLOCK_ERROR, Dimension, HEAL_EVERY, Lease, Timestamp};
use tokio::task::JoinSet;

use super::reclaim::{self, Done, Ended, Known};
use super::scan::Query;
use super::{Deadlines, is_over};
use crate::client::Inner;
use crate::metrics;
use crate::store::{StoreError, value_text};

/// Buckets that are given back to at once: fewer disturb callers less.
const AT_ONCE: usize = 4;

/// What a page came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealedPage {
    /// Leases given back.
    pub(crate) restored: usize,
    /// What the page cost.
    pub(crate) read_units: u64,
    /// The key after which the next page begins; `None` at the end of the table.
    pub(crate) next: Option<String>,
    /// Whether there was time for all that had ended; else the next turn reads the page once more.
    pub(crate) is_done: bool,
}

/// Reads the page after the row `from`, and gives back what its leases hold that have ended: those with rows
/// of their own, and the inline ones of the bucket rows in it. Leases of rate buckets hold nothing that
/// anybody waits for; they are the reconciler's.
///
/// Only then is the page done: a process that ends before leaves it to the next turn. Conflicts leave a lease
/// to the next scan.
///
/// # Errors
/// [`StoreError`] if the table does not answer; [`StoreError::Contended`] if the page was throttled in every
/// try.
pub(crate) async fn heal_page(inner: &Inner, from: Option<&str>) -> Result<HealedPage, StoreError> {
    let now = inner.time().await?;
    let query = Query::of_ended(now);
    let from = from.map(|key| HashMap::from([(KEY.to_owned(), AttributeValue::S(key.to_owned()))]));
    let read = inner.store.scan(&query.ended(from)).await?;
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
    // Another process may begin its turn then.
    let deadlines = Deadlines::of(Some(HEAL_EVERY));
    let restored = give_back(inner, now, deadlines, ended).await?;
    let next = read.next.as_ref().map(|key| value_text(key, KEY));
    Ok(HealedPage { restored, read_units: page.read_units, next, is_done: !is_over(deadlines.work) })
}

/// Gives back the inline leases of `bucket` that have ended; how many.
///
/// # Errors
/// [`StoreError`] if the table does not answer.
pub(crate) async fn heal_inline(inner: &Inner, bucket: Arc<Bucket>) -> Result<usize, StoreError> {
    let now = inner.time().await?;
    let cutoff = now.before(CLOCK_ERROR);
    let ended = bucket.inline().map_or(0, |leases| leases.ended(cutoff).count());
    if ended == 0 {
        return Ok(0);
    }
    let (sweep, dimension) = (sweep(inner, now, Deadlines::of(Some(HEAL_EVERY))), bucket.dimension().clone());
    finish(inner, reclaim::reclaim(sweep, dimension, Some(Known::Bucket(bucket)), Ended::Inline(ended)).await)
}

/// A few buckets at once.
async fn give_back(
    inner: &Inner,
    now: Timestamp,
    deadlines: Deadlines,
    ended: Vec<(Dimension, Ended)>,
) -> Result<usize, StoreError> {
    let (mut tasks, mut restored, mut waiting) = (JoinSet::new(), 0, ended.into_iter());
    let mut result = Ok(());
    loop {
        // The first failure ends it: a table that is out would cost every bucket its retries.
        while tasks.len() < AT_ONCE
            && result.is_ok()
            && let Some((dimension, ended)) = waiting.next()
        {
            tasks.spawn(slots_of(sweep(inner, now, deadlines), dimension, ended));
        }
        match tasks.join_next().await {
            None => return result.map(|()| restored),
            Some(Ok(done)) => match finish(inner, done) {
                Ok(leases) => restored += leases,
                Err(error) => result = Err(error),
            },
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// What one bucket's leases hold, where it has slots.
async fn slots_of(sweep: reclaim::Sweep, dimension: Dimension, ended: Ended) -> Done {
    match reclaim::known_of(&sweep.store, &dimension).await {
        Ok(Known::Bucket(bucket)) if bucket.limit().is_concurrent() => {
            reclaim::reclaim(sweep, dimension, Some(Known::Bucket(bucket)), ended).await
        }
        Ok(known) => Done { dimension, known: Some(known), tally: Default::default(), result: Ok(()) },
        // Throttled in every try: the next scan's.
        Err(StoreError::Contended { .. }) => Done { dimension, known: None, tally: Default::default(), result: Ok(()) },
        Err(error) => Done { dimension, known: None, tally: Default::default(), result: Err(error) },
    }
}

/// As of `now`, before the page was read: what it judges by gets no later while the process is frozen.
fn sweep(inner: &Inner, now: Timestamp, deadlines: Deadlines) -> reclaim::Sweep {
    reclaim::Sweep { store: inner.store.clone(), deadlines, cutoff: now.before(CLOCK_ERROR) }
}

/// Those who wait here for the slots look again.
fn finish(inner: &Inner, done: Done) -> Result<usize, StoreError> {
    let restored = done.tally.restored;
    if restored > 0 {
        let entry = inner.entry(&done.dimension);
        entry.slots_reclaimed();
        metrics::restored(entry.swept_label(), restored);
        tracing::info!(event = "heal.restored", dimension = %done.dimension, leases = restored);
    }
    done.result.map(|()| restored)
}
