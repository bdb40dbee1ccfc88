//! One transaction for all callers in the queue, planned and sent until each has its answer.

use std::sync::Arc;

use sluice_core::{Dimension, Lease, Timestamp, behind_those_that_wait};
use sluice_table::{Resend, Transacted, Transaction, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::bucket::known::BucketReading;
use crate::config::Leases;
use crate::lane::contended::Contended;
use crate::lane::entry::Entry;
use crate::lane::fallback::hold;
use crate::lane::inner::Inner;
use crate::lane::queue::Waiting;
use crate::lane::reading::{apply_read, refresh_all, unknown};
use crate::lane::round;
use crate::lane::round::Step;
use crate::lane::rows::transaction::{PlannedCaller, SentTransaction, Share, judge};
use crate::lane::rows::{RowAsk, RowLane, RowWaiter};
use crate::lane::setback::{QueuePatience, Setback};
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};

mod refusals;
mod replies;

/// DynamoDB takes at most 100 actions in a transaction: one for each bucket, and one for each lease.
const MOST_ACTIONS: usize = 100;

pub(super) struct RowBatch<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) entries: &'a [Arc<Entry>],
    pub(super) lane: &'a Arc<RowLane>,
    pub(super) waiters: Vec<RowWaiter>,
    /// Callers that stay in the queue.
    pub(super) waiting: Waiting<RowAsk, LaneAnswer>,
    /// What was granted to callers that had left.
    pub(super) unclaimed_grants: Vec<UnclaimedGrant>,
}

impl round::Batch for RowBatch<'_> {
    type Ask = RowAsk;
    type Answer = LaneAnswer;

    fn into_unfinished(self) -> round::Unfinished<RowAsk, LaneAnswer> {
        (self.waiting, self.unclaimed_grants)
    }

    fn dimension(&self) -> &Dimension {
        &self.entries[0].dimension
    }

    fn waiters(&mut self) -> &mut Vec<RowWaiter> {
        &mut self.waiters
    }

    async fn step(&mut self, has_read: bool) -> Result<Step, AcquireError> {
        self.follow();
        if self.waiters.is_empty() {
            return Ok(Step::Served);
        }
        let now = self.inner.now();
        let unread: Vec<_> =
            self.entries.iter().filter(|entry| is_unread(entry, now)).map(Arc::clone).collect();
        if !unread.is_empty() {
            return refresh_all(self.inner, &unread).await.map(|()| Step::Read);
        }
        let now = self.inner.time().await?;
        let Some(readings) = self.entries.iter().map(|entry| entry.reading()).collect::<Option<Vec<_>>>()
        else {
            // While the time was read, another caller of this process learned that a reading is not valid.
            return refresh_all(self.inner, self.entries).await.map(|()| Step::Read);
        };
        let policy = self.inner.config.on_unavailable;
        let is_running = self.waiters.iter().all(|waiter| waiter.ask.terms.is_running);
        let held = hold::refusal(&self.inner.store, policy, self.dimension());
        if let Some(held) = held.filter(|_| !is_running) {
            self.set_back(&Setback::Refused(held));
            return Ok(Step::Served);
        }
        let Some(sent) = self.plan(&readings, now) else {
            if has_read || readings.iter().all(|reading| reading.may_refuse(now)) {
                if self.repairs(&readings, now).await? {
                    return Ok(Step::Read);
                }
                self.answer_refused(&readings, now);
                return Ok(Step::Served);
            }
            // A read costs an eighth of a transaction that fails.
            return refresh_all(self.inner, self.entries).await.map(|()| Step::Read);
        };
        let began = Instant::now();
        let attempted = self.inner.store.try_transact(&Transaction::new(&sent.writes())).await;
        if attempted.maybe_applied && !matches!(attempted.answer, Ok(Transacted::Committed)) {
            // They may hold leases without knowing: a later try under the same ids finds them.
            self.waiters.iter_mut().for_each(|waiter| waiter.ask.terms.moves_on = false);
        }
        match attempted.answer? {
            Transacted::Committed => Ok(self.granted(&sent, began.elapsed())),
            Transacted::Cancelled(reasons) => {
                let step = self.learn(&sent, &reasons, began.elapsed())?;
                if matches!(step, Step::Held | Step::Overtaken) {
                    self.leave();
                }
                Ok(step)
            }
        }
    }

    fn set_back(&mut self, setback: &Setback) {
        for waiter in std::mem::take(&mut self.waiters) {
            self.refuse(waiter, setback);
        }
    }
}

impl RowBatch<'_> {
    /// Answers the callers that move on after a conflict. Nothing that was sent for them is applied.
    fn leave(&mut self) {
        let [entry] = self.entries else { return };
        if entry.limit().is_none_or(|limit| !limit.is_concurrent()) {
            // The bucket was recreated as another type: it is planned again.
            return;
        }
        entry.extensions.of::<Contended>().note_conflict();
        self.move_on();
    }

    /// Answers the callers that move on if others of this process have: nobody passes them.
    fn follow(&mut self) {
        let [entry] = self.entries else { return };
        let is_waited = entry.inline.get().is_some_and(|lane| !lane.is_idle());
        if is_waited || entry.extensions.of::<Contended>().is_now() {
            self.move_on();
        }
    }

    fn move_on(&mut self) {
        let why = self.overtaken();
        for waiter in std::mem::take(&mut self.waiters) {
            match waiter.ask.terms.moves_on {
                true => waiter.answer(why.clone().answer()),
                false => self.waiters.push(waiter),
            }
        }
    }

    /// Returns whether a future anchor of a bucket with too little for a caller was moved back, here or
    /// before. A future anchor refuses nobody: the wait in a refusal follows from the row as it is.
    async fn repairs(&self, readings: &[BucketReading], now: Timestamp) -> Result<bool, AcquireError> {
        for (at, (reading, entry)) in readings.iter().zip(self.entries).enumerate() {
            if !self.waiters.iter().any(|waiter| waiter.ask.costs[at].amount() > reading.bucket.tokens()) {
                continue;
            }
            let Some(repair) = self.inner.planner(&reading.bucket, now).repair(now) else { continue };
            match self.inner.store.update(&repair.update, Resend::Always).await? {
                Written::Applied(row) | Written::ConditionFailed(Some(row)) => {
                    apply_read(self.inner, entry, &row)?
                }
                Written::ConditionFailed(None) => return Err(unknown(self.inner, entry)),
            };
            return Ok(true);
        }
        Ok(false)
    }

    /// Plans the transaction for all callers that fit, or `None`. Nobody passes a caller that waits.
    fn plan(&self, readings: &[BucketReading], now: Timestamp) -> Option<SentTransaction> {
        let mut shares = self.shares(readings, now);
        let mut served = Vec::new();
        for (at, waiter) in self.waiters.iter().enumerate() {
            let patience = waiter.ask.terms.patience();
            if shares.iter().zip(&waiter.ask.costs).any(|(share, cost)| share.is_closed_to(*cost, patience)) {
                break;
            }
            match judge(&shares, &waiter.ask, now) {
                Ok(sums_to_caller) => {
                    let asked = waiter.ask.amounts();
                    for ((share, sum), (cost, leaves)) in shares.iter_mut().zip(&sums_to_caller).zip(asked) {
                        share.take(cost, leaves, patience, *sum);
                    }
                    let leases = self.leases(readings, &waiter.ask, now);
                    served.push(PlannedCaller { waiter: at, sums_to_caller, leases });
                    if served.len() == (MOST_ACTIONS - self.entries.len()) / self.entries.len() {
                        break;
                    }
                }
                Err(refusals) => {
                    let retry = self.retry(&refusals, &waiter.ask);
                    // One that moves on waits as well, and nobody passes it.
                    let patience = QueuePatience {
                        moves_on: false,
                        ..waiter.ask.terms.queue_patience(self.inner.config.on_unavailable)
                    };
                    if retry.is_some_and(|retry| patience.waits_for(&retry)) {
                        break;
                    }
                }
            }
        }
        if served.is_empty() {
            return None;
        }
        let totals = shares.iter().map(Share::total).collect();
        let (mut updates, after) =
            shares.into_iter().map(|share| share.write(now)).collect::<Option<(Vec<_>, Vec<_>)>>()?;
        let are_slots = readings.iter().all(|reading| reading.bucket.limit().is_concurrent());
        if are_slots && self.waiters.iter().any(|waiter| waiter.ask.terms.moves_on) {
            updates = updates.into_iter().map(|take| behind_those_that_wait(take, now)).collect();
        }
        Some(SentTransaction { after, totals, updates, served, now })
    }

    /// What a transaction takes from each bucket before the first caller: nothing.
    fn shares<'a>(&self, readings: &'a [BucketReading], now: Timestamp) -> Vec<Share<'a>> {
        let share = |BucketReading { bucket, .. }: &'a BucketReading| match bucket.limit().is_concurrent() {
            true => Share::of_slots(bucket),
            false => Share::of_tokens(self.inner.planner(bucket, now), now),
        };
        readings.iter().map(share).collect()
    }

    fn leases(&self, readings: &[BucketReading], ask: &RowAsk, now: Timestamp) -> Vec<Option<Lease>> {
        let ends = now.after(ask.terms.lease);
        let caller = &self.inner.config.caller;
        let parts = readings.iter().zip(self.entries).enumerate();
        let lease = |(at, (reading, entry)): (usize, (&BucketReading, &Arc<Entry>))| {
            let has_lease = reading.bucket.limit().is_concurrent() || self.inner.config.leases == Leases::All;
            let lease =
                || Lease::new(entry.dimension.clone(), &ask.ids[at], ask.costs[at], now, ends, caller);
            has_lease.then(lease).map(|lease| match &ask.borrows[at] {
                Some(borrowing) => lease.borrowed(borrowing),
                None => lease,
            })
        };
        parts.map(lease).collect()
    }
}

/// Whether too little is known of the bucket to plan.
fn is_unread(entry: &Entry, now: Timestamp) -> bool {
    entry.reading().is_none_or(|reading| reading.is_unread(now))
}
