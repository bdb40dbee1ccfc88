//! The callers that wait in this process for slots, and the wait in a refusal of a full bucket.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Load, NO_SLOT_WAIT, Reason, Refusal, Timestamp};
use sluice_table::{Attributes, Backoff, Item};

use crate::api::refusal::{RetryIn, RetryReason, refused};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;

/// How long a load row is believed. When this time has passed, two sweeps have measured again since.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// The shortest wait in a refusal: sooner, the caller would ask more often than callers in the queue.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// The longest wait in a refusal: the rate is an average, and many slots may come free at once.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A caller that waits for slots of a bucket, until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitingForSlot {
    entry: Arc<Entry>,
    cost: Amount,
}

impl Entry {
    /// Stores the load row of a reply. An unreadable row counts as missing: the next sweep replaces it. No
    /// gauge is set: that of a bucket that nobody asks for any more would keep its value.
    pub(crate) fn apply_load(&self, row: &Item, now: Timestamp) -> Arc<Load> {
        let load =
            Arc::new(Load::read(&self.dimension, &Attributes(row)).unwrap_or_else(|_| Load::none(&self.dimension)));
        self.load.apply_read(Arc::clone(&load), now);
        load
    }
}

impl WaitingForSlot {
    pub(crate) fn join(entry: &Arc<Entry>, cost: Cost) -> Self {
        let cost = cost.amount();
        entry.load.wants(cost);
        Self { entry: Arc::clone(entry), cost }
    }
}

impl Drop for WaitingForSlot {
    fn drop(&mut self) {
        self.entry.load.wants(Amount::ZERO.minus(self.cost));
    }
}

pub(crate) fn taken(bucket: &Bucket) -> Amount {
    bucket.limit().capacity().minus(bucket.tokens()).max(Amount::ZERO)
}

/// Returns the refusal of a concurrency bucket. If it is full and its drain rate is known, the wait is until
/// the waiters of this process and this caller have slots. `is_waiting`: the caller is one of the waiters.
pub(crate) fn refusal(inner: &Inner, entry: &Entry, cost: Cost, is_waiting: bool, mut refusal: Refusal) -> RetryIn {
    let extra = if is_waiting { Amount::ZERO } else { cost.amount() };
    if refusal.reason == Reason::NoFreeSlot
        && let Some(measured) = measured_wait(entry, extra, inner.now())
    {
        // The end of an inline lease is known, and nobody has to wait longer than that.
        let is_known = refusal.wait < NO_SLOT_WAIT;
        refusal.wait = if is_known { refusal.wait.min(measured) } else { measured };
    }
    refused(&entry.dimension, refusal)
}

/// Returns the refusal for a caller that does not wait, behind callers of this process that wait for `retry`.
pub(crate) fn behind(entry: &Entry, cost: Cost, mut retry: RetryIn, now: Timestamp) -> RetryIn {
    if retry.reason == RetryReason::NoFreeSlot
        && let Some(measured) = measured_wait(entry, cost.amount(), now)
    {
        retry.wait = retry.wait.max(measured);
    }
    retry
}

/// Returns the refusal for a caller whose patience ended before it had a slot, and that has left the queue.
pub(crate) fn deadline_passed(entry: &Entry, cost: Cost, now: Timestamp) -> RetryIn {
    let wait = measured_wait(entry, cost.amount(), now).unwrap_or(Backoff::POLL.cap());
    RetryIn::new(wait, entry.dimension.clone(), RetryReason::NoFreeSlot)
}

/// Returns the time until the callers that wait in this process have slots and `extra` more slots are free.
fn measured_wait(entry: &Entry, extra: Amount, now: Timestamp) -> Option<Duration> {
    let load = entry.load.within(KNOWN_FOR, now)?;
    let rate = load.drain_rate_of(taken(&entry.reading()?.bucket))?;
    let wait = rate.time_for(entry.load.waiting().plus(extra))?;
    Some(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT))
}
