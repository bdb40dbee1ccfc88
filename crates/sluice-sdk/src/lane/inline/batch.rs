//! One write for callers that take and callers that release, planned and sent until each has its answer.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, InlineAnswer};
use sluice_table::{Resend, StoreError, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::refusal::contended;
use crate::lane::contended::Contended;
use crate::lane::entry::Entry;
use crate::lane::fallback::hold;
use crate::lane::inline::{InlineAsk, InlineOutcome, InlineWaiter, UnconfirmedLease};
use crate::lane::inner::Inner;
use crate::lane::queue::Waiting;
use crate::lane::reading::{apply_read, known, parse, refresh, unknown};
use crate::lane::round;
use crate::lane::round::Step;
use crate::lane::setback::Setback;
use crate::lane::turns::Turns;
use crate::lane::unclaimed::UnclaimedGrant;

mod answers;
mod plan;

use plan::InlineDraft;

pub(super) struct InlineBatch<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) entry: &'a Arc<Entry>,
    pub(super) waiters: Vec<InlineWaiter>,
    /// Callers that stay in the queue.
    pub(super) waiting: Waiting<InlineAsk, InlineOutcome>,
    /// What was granted to callers that had left.
    pub(super) unclaimed_grants: Vec<UnclaimedGrant>,
    /// Whether the row is read before the next plan: DynamoDB throttled a write that takes slots.
    pub(super) is_outdated: bool,
    /// Whose turn it is among the callers of all processes.
    pub(super) turns: Arc<Turns>,
    pub(super) began: Instant,
}

impl round::Batch for InlineBatch<'_> {
    type Ask = InlineAsk;
    type Answer = InlineOutcome;

    fn into_unfinished(self) -> round::Unfinished<InlineAsk, InlineOutcome> {
        (self.waiting, self.unclaimed_grants)
    }

    fn dimension(&self) -> &Dimension {
        &self.entry.dimension
    }

    fn waiters(&mut self) -> &mut Vec<InlineWaiter> {
        &mut self.waiters
    }

    async fn step(&mut self, has_read: bool) -> Result<Step, AcquireError> {
        let is_outdated = std::mem::take(&mut self.is_outdated);
        let has_read = has_read || is_outdated;
        let reading = match is_outdated {
            true => refresh(self.inner, self.entry).await?,
            false => known(self.inner, self.entry).await?,
        };
        if !reading.bucket.limit().is_concurrent() {
            // The bucket was recreated as another type: there is nothing to take or to give back.
            self.no_bucket(&Ok(contended(&self.entry.dimension)));
            return Ok(Step::Served);
        }
        let now = self.inner.time().await?;
        self.answer_held(&reading.bucket, now);
        // After the time, which may be a request: what is planned from here on is sent at once.
        let policy = self.inner.config.on_unavailable;
        let held = hold::refusal(&self.inner.store, policy, &self.entry.dimension);
        let is_held = held.is_some();
        if let Some(held) = held {
            self.hold_takes(&Setback::Refused(held));
            if self.waiters.is_empty() {
                return Ok(Step::Served);
            }
        }
        let draft = self.plan(&reading, now, is_held);
        if draft.passes_over && !has_read {
            // Slots that nobody takes were free for a while by an earlier look. By now somebody has them,
            // most likely.
            return refresh(self.inner, self.entry).await.map(|_| Step::Read);
        }
        let began = Instant::now();
        let Some(update) = &draft.plan.update else {
            let is_refused =
                draft.is_cut || draft.plan.takes.iter().any(|answer| !matches!(answer, InlineAnswer::Held));
            if !has_read && (draft.finds_leases_gone() || is_refused && !reading.may_refuse(now)) {
                // A read costs less than a write that fails, and does not disturb other writers.
                return refresh(self.inner, self.entry).await.map(|_| Step::Read);
            }
            return Ok(self.settle(draft, has_read, Duration::ZERO));
        };
        // If the write is applied a second time, it fails and finds in the row what the first one did.
        let resend = if draft.only_takes() { Resend::UnlessContended } else { Resend::Always };
        let attempted = self.inner.store.try_update(update, resend).await;
        if attempted.maybe_applied && !matches!(attempted.answer, Ok(Written::Applied(_))) {
            self.note_unconfirmed(&draft);
        }
        if matches!(attempted.answer, Err(StoreError::Contended { .. })) && draft.only_takes() {
            // The slots may be taken by now. A write that fails costs five times what a read does, and on a
            // throttled key it delays the releases.
            self.is_outdated = true;
            // While callers wait in order, the one whose turn it is keeps the short pauses: those behind it
            // do not write.
            let is_crowded = attempted.was_throttled && !reading.bucket.is_waited_for(now);
            return Ok(if is_crowded { Step::Crowded } else { Step::Throttled });
        }
        match attempted.answer? {
            Written::Applied(row) => {
                let (bucket, now) = (parse(self.entry, &row)?, self.inner.now());
                self.entry.extensions.of::<Contended>().wrote(&bucket, now);
                self.entry.apply_write(Arc::new(bucket), now);
                Ok(self.settle(draft, has_read, began.elapsed()))
            }
            Written::ConditionFailed(Some(row)) => {
                apply_read(self.inner, self.entry, &row).map(|_| Step::Overtaken)
            }
            Written::ConditionFailed(None) => {
                let error = unknown(self.inner, self.entry);
                self.no_bucket(&Err(error));
                Ok(Step::Served)
            }
        }
    }

    fn set_back(&mut self, setback: &Setback) {
        for waiter in std::mem::take(&mut self.waiters) {
            self.refuse(waiter, setback);
        }
    }
}

impl InlineBatch<'_> {
    /// Sets back the callers that take, but for those that run. Those that give back go on.
    fn hold_takes(&mut self, setback: &Setback) {
        for waiter in std::mem::take(&mut self.waiters) {
            match waiter.ask.waits_for_hold() {
                true => self.refuse(waiter, setback),
                false => self.waiters.push(waiter),
            }
        }
    }

    /// Handles a write without an answer, which may be applied at any time: notes each lease that the write
    /// grants as unconfirmed, and marks its releases as doubted.
    fn note_unconfirmed(&mut self, draft: &InlineDraft) {
        let granted =
            draft.takes.iter().zip(&draft.plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
        for at in granted.map(|(at, _)| *at) {
            let InlineAsk::Take { id, cost, .. } = &self.waiters[at].ask else { continue };
            let made = UnconfirmedLease::new(self.inner, self.entry, id.clone(), *cost);
            if let InlineAsk::Take { unconfirmed, .. } = &mut self.waiters[at].ask {
                unconfirmed.replace(made).into_iter().for_each(UnconfirmedLease::forget);
            }
        }
        for at in &draft.releases {
            if let InlineAsk::Release { is_doubted, .. } = &mut self.waiters[*at].ask {
                *is_doubted = true;
            }
        }
    }
}
