//! What the process knows of the load of a concurrency bucket: its load row as last seen, and who waits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Amount, Bucket, Cost, Load, NO_SLOT_WAIT, Reason, Refusal, Timestamp};
use tokio::time::Instant;

use crate::attempt::refused;
use crate::cache::Entry;
use crate::client::Inner;
use crate::refusal::{RetryIn, RetryReason};
use sluice_table::Backoff;
use sluice_table::{Attributes, Item};

/// A load row that was seen longer ago says nothing: two sweeps have measured anew since.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// A crowd that was seen longer ago says nothing: two notes of this process have failed since.
const CROWD_KNOWN_FOR: Duration = Duration::from_secs(20);

/// A refused caller is told no shorter wait: sooner it would only ask more often than those who wait in line do.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// Nor a longer one: the rate is an average, and many slots may come free at once.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The load of one bucket, as far as the process knows.
#[derive(Debug, Default)]
pub(crate) struct LoadSeen {
    row: Mutex<Option<(Arc<Load>, Timestamp)>>,
    /// What those want who wait in this process, in millionths.
    waiting: AtomicI64,
    /// How many processes wanted slots, as this one's last note found, and when.
    crowd: Mutex<Option<(u32, Instant)>>,
}

/// One who waits for slots of a bucket, until it is dropped.
#[derive(Debug)]
pub(crate) struct InLine {
    entry: Arc<Entry>,
    cost: Amount,
}

impl LoadSeen {
    /// The load row as seen within `span`.
    pub(crate) fn within(&self, span: Duration, now: Timestamp) -> Option<Arc<Load>> {
        let seen = self.row.lock();
        let (load, seen_at) = seen.as_ref()?;
        (now.since(*seen_at) <= span).then(|| Arc::clone(load))
    }

    /// The load row as last seen, however long ago.
    pub(crate) fn last(&self) -> Option<Arc<Load>> {
        let seen = self.row.lock();
        seen.as_ref().map(|(load, _)| Arc::clone(load))
    }

    /// How many processes of the fleet wait for slots of the bucket, or were refused of late, this one among them. `None` if this
    /// process has not noted itself within [`CROWD_KNOWN_FOR`], as with `SLUICE_SELF_HEAL=off` or without the right to.
    pub(crate) fn crowd(&self) -> Option<u32> {
        let (crowd, at) = (*self.crowd.lock())?;
        (at.elapsed() <= CROWD_KNOWN_FOR).then_some(crowd)
    }

    /// Takes in the crowd that a note of this process found.
    pub(crate) fn saw_crowd(&self, crowd: u32) {
        *self.crowd.lock() = Some((crowd, Instant::now()));
    }

    /// What those want who wait in this process.
    pub(crate) fn waiting(&self) -> Amount {
        Amount::from_micros(self.waiting.load(Ordering::Relaxed).max(0))
    }
}

impl Entry {
    /// Takes in the load row as a reply showed it. One that cannot be read says nothing, as one that is not there: the next sweep
    /// replaces it. No gauge is set: of a bucket that nobody asks for any more it would stand still.
    pub(crate) fn saw_load(&self, row: &Item, now: Timestamp) -> Arc<Load> {
        let load =
            Arc::new(Load::read(&self.dimension, &Attributes(row)).unwrap_or_else(|_| Load::none(&self.dimension)));
        let mut seen = self.load.row.lock();
        *seen = Some((Arc::clone(&load), now));
        load
    }
}

impl InLine {
    /// Stands in line for `cost`.
    pub(crate) fn join(entry: &Arc<Entry>, cost: Cost) -> Self {
        let cost = cost.amount();
        entry.load.waiting.fetch_add(cost.micros(), Ordering::Relaxed);
        Self { entry: Arc::clone(entry), cost }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.entry.load.waiting.fetch_sub(self.cost.micros(), Ordering::Relaxed);
    }
}

/// Slots that are not free.
pub(crate) fn taken(bucket: &Bucket) -> Amount {
    bucket.limit().capacity().minus(bucket.tokens()).max(Amount::ZERO)
}

/// The refusal of a concurrency bucket. A full one tells how long it takes until those who wait here and this caller have a slot,
/// by the rate at which its slots come free, where that is known. `in_line` says that the caller is one of those who wait.
pub(crate) fn refusal(inner: &Inner, entry: &Entry, cost: Cost, in_line: bool, mut refusal: Refusal) -> RetryIn {
    let besides = if in_line { Amount::ZERO } else { cost.amount() };
    if refusal.reason == Reason::NoFreeSlot
        && let Some(measured) = measured_wait(entry, besides, inner.now())
    {
        // The end of an inline lease is known, and nobody need wait for longer.
        let is_known = refusal.wait < NO_SLOT_WAIT;
        refusal.wait = if is_known { refusal.wait.min(measured) } else { measured };
    }
    refused(&entry.dimension, refusal)
}

/// What a caller is told who stands behind those who wait here for `retry`, and would not wait itself.
pub(crate) fn behind(entry: &Entry, cost: Cost, mut retry: RetryIn, now: Timestamp) -> RetryIn {
    if retry.reason == RetryReason::NoFreeSlot
        && let Some(measured) = measured_wait(entry, cost.amount(), now)
    {
        retry.wait = retry.wait.max(measured);
    }
    retry
}

/// What a caller is told whose patience ended before it had a slot, and who stands in line no more.
pub(crate) fn in_vain(entry: &Entry, cost: Cost, now: Timestamp) -> RetryIn {
    let wait = measured_wait(entry, cost.amount(), now).unwrap_or(Backoff::POLL.cap());
    RetryIn::new(wait, entry.dimension.clone(), RetryReason::NoFreeSlot)
}

/// Until those who wait here have slots, and `besides` are free.
fn measured_wait(entry: &Entry, besides: Amount, now: Timestamp) -> Option<Duration> {
    let load = entry.load.within(KNOWN_FOR, now)?;
    let rate = load.drain_rate_of(taken(&entry.reading()?.bucket))?;
    let wait = rate.time_for(entry.load.waiting().plus(besides))?;
    Some(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_was_seen_long_ago_is_not_known() {
        let load = LoadSeen::default();
        assert_eq!(load.crowd(), None);
        load.saw_crowd(7);
        tokio::time::advance(CROWD_KNOWN_FOR).await;
        assert_eq!(load.crowd(), Some(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(load.crowd(), None);
    }
}
