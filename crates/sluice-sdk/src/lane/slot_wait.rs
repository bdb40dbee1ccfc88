//! The callers that wait in this process for slots, and the wait in a refusal of a full bucket.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Cost, Load, NO_SLOT_WAIT, Reason, Refusal, Timestamp, WAIT_MARK, catch_up, draw, drawn,
    is_mark_old, mark_waiting,
};
use sluice_table::{Attributes, Backoff, Item, Resend, StoreError, Written, random_wait_up_to};

use crate::api::refusal::{RetryIn, RetryReason, refused};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::turns::{Turns, Underway};

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
        let load = Arc::new(
            Load::read(&self.dimension, &Attributes(row)).unwrap_or_else(|_| Load::none(&self.dimension)),
        );
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
pub(crate) fn refusal(
    inner: &Inner,
    entry: &Entry,
    cost: Cost,
    is_waiting: bool,
    mut refusal: Refusal,
) -> RetryIn {
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

/// Draws numbers for `waiting` callers of this process that have none, and says in the row that callers wait.
/// On a task of its own: nobody waits for it.
pub(crate) fn keep_turns(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    bucket: &Bucket,
    waiting: usize,
    now: Timestamp,
) {
    let turns = entry.extensions.of::<Turns>();
    // Where others borrow, they leave its slots to those that wait.
    let is_shared = entry.share_of().is_some() || !bucket.slot_shares().is_empty();
    let is_alone = !is_shared && entry.load.crowd().is_some_and(|crowd| crowd <= 1);
    if is_alone && !bucket.is_waited_for(now) {
        return;
    }
    let Some(runtime) = inner.background.runtime() else { return };
    let served = bucket.served();
    if let Some(callers) = turns.begin_to_draw(waiting) {
        let (of, entry, turns, underway) =
            (Arc::clone(inner), Arc::clone(entry), Arc::clone(&turns), Underway::draw(&turns));
        inner.background.spawn(&runtime, async move {
            let _underway = underway;
            let drawn = try_to_draw(&of, &entry, callers, served).await;
            if let Err(error) = &drawn {
                tracing::debug!(event = "turns.not_drawn", dimension = %entry.dimension, %error);
            }
            let is_drawn = drawn.is_ok();
            turns.have_drawn(drawn, callers);
            if is_drawn {
                // It may be their turn already.
                entry.inline.wake();
            }
        });
    }
    // Not all processes at once: most would find that another has marked it.
    let later = random_wait_up_to(WAIT_MARK / 4);
    if is_mark_old(bucket.waited_until(), now.before(later)) && turns.begin_to_mark() {
        let (of, entry, underway) = (Arc::clone(inner), Arc::clone(entry), Underway::mark(&turns));
        inner.background.spawn(&runtime, async move {
            let _underway = underway;
            if let Err(error) = of.store.update(&mark_waiting(&entry.dimension, now), Resend::Always).await {
                tracing::debug!(event = "turns.not_marked", dimension = %entry.dimension, %error);
            }
        });
    }
}

/// Returns the number after the last that was drawn; `None` if the load row's count is not a number.
async fn try_to_draw(
    inner: &Inner,
    entry: &Entry,
    callers: u32,
    served: i64,
) -> Result<Option<i64>, StoreError> {
    let draw = draw(&entry.dimension, callers);
    let Written::Applied(row) = inner.store.update(&draw, Resend::Always).await? else { return Ok(None) };
    let Some(after) = drawn(&Attributes(&row)) else { return Ok(None) };
    if after.saturating_sub(i64::from(callers)) >= served {
        return Ok(Some(after));
    }
    let caught_up = catch_up(&entry.dimension, after, served, callers);
    Ok(match inner.store.update(&caught_up, Resend::Always).await? {
        Written::Applied(row) => drawn(&Attributes(&row)),
        // Others drew meanwhile, and see the same.
        Written::ConditionFailed(_) => Some(after),
    })
}
