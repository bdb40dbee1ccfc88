//! Who waits here for slots, and what a refusal of a full bucket says of the wait.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Load, NO_SLOT_WAIT, Reason, Refusal, Timestamp};
use sluice_table::{Attributes, Backoff, Item};

use crate::api::refusal::{RetryIn, RetryReason, refused};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;

/// A load row that was seen longer ago says nothing: two sweeps have measured anew since.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// A refused caller is told no shorter wait: sooner it would only ask more often than those who wait in line do.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// Nor a longer one: the rate is an average, and many slots may come free at once.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// One who waits for slots of a bucket, until it is dropped.
#[derive(Debug)]
pub(crate) struct InLine {
    entry: Arc<Entry>,
    cost: Amount,
}

impl Entry {
    /// Takes in the load row as a reply showed it. One that cannot be read says nothing, as one that is not there: the next sweep
    /// replaces it. No gauge is set: of a bucket that nobody asks for any more it would stand still.
    pub(crate) fn saw_load(&self, row: &Item, now: Timestamp) -> Arc<Load> {
        let load =
            Arc::new(Load::read(&self.dimension, &Attributes(row)).unwrap_or_else(|_| Load::none(&self.dimension)));
        self.load.apply_read(Arc::clone(&load), now);
        load
    }
}

impl InLine {
    /// Stands in line for `cost`.
    pub(crate) fn join(entry: &Arc<Entry>, cost: Cost) -> Self {
        let cost = cost.amount();
        entry.load.wants(cost);
        Self { entry: Arc::clone(entry), cost }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.entry.load.wants(Amount::ZERO.minus(self.cost));
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
