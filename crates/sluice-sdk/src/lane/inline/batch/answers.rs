//! What each caller is told, by the row and by what was written.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Bucket, Cost, Dimension, InlineAnswer, InlineRelease, LeaseId, NO_SLOT_WAIT, Reason, Refusal,
    ReleaseAnswer, Timestamp,
};
use sluice_ops::Released;

use super::InlineBatch;
use super::plan::InlineDraft;
use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::lane::inline::{InlineAsk, InlineOutcome, InlineWaiter, UnconfirmedLease};
use crate::lane::part::{Part, Parts};
use crate::lane::queue::{QueueAsk, stay};
use crate::lane::release::ReleaseError;
use crate::lane::round::Step;
use crate::lane::setback::{Setback, Taken};
use crate::lane::slot_wait;
use crate::lane::unclaimed::{OriginLane, UnclaimedGrant};

impl InlineBatch<'_> {
    /// Answers the callers as the plan says. If the plan has a write, that write has been applied. A grant
    /// whose lease has already ended counts as a failed try. A release whose lease is missing is answered
    /// only if this round `has_read` the row. An older reading may be from before the take: the release would
    /// then send nothing, and the slot would stay taken until the lease ends.
    pub(super) fn settle(&mut self, draft: InlineDraft, has_read: bool, took: Duration) -> Step {
        let mut came_late = false;
        let mut waiters: Vec<Option<InlineWaiter>> =
            std::mem::take(&mut self.waiters).into_iter().map(Some).collect();
        let has_written = draft.plan.update.is_some();
        let mut served = 0;
        for (at, answer) in draft.releases.iter().zip(&draft.plan.releases) {
            let released = match answer {
                ReleaseAnswer::GivenBack => Released::GivenBack,
                ReleaseAnswer::Capped => Released::AlreadyCapped,
                ReleaseAnswer::Gone if !has_read => continue,
                // The reply to this release's own write may be lost: nothing shows that anybody else removed
                // the lease.
                ReleaseAnswer::Gone if waiters[*at].as_ref().is_some_and(is_doubted) => Released::GivenBack,
                ReleaseAnswer::Gone => Released::LeaseGone,
                _ => continue,
            };
            if let Some(waiter) = waiters[*at].take() {
                log_release(&self.entry.dimension, &waiter.ask, released);
                waiter.answer(InlineOutcome::Released(Ok(released)));
            }
        }
        for (at, answer) in draft.takes.iter().zip(&draft.plan.takes) {
            let Some(waiter) = waiters[*at].take() else { continue };
            match answer {
                InlineAnswer::Granted => {
                    let InlineAsk::Take { terms, .. } = &waiter.ask else { continue };
                    let ends = draft.at.after(terms.lease).ceil_to_second();
                    served += usize::from(terms.stays);
                    if self.inner.store.clock().known().is_some_and(|now| ends > now) {
                        self.grant(waiter, ends, draft.at, took);
                    } else {
                        came_late = true;
                        waiters[*at] = Some(self.under_another_id(waiter));
                    }
                }
                // This write itself has changed the row: the caller is judged again by the row in the reply.
                InlineAnswer::Refused(_) | InlineAnswer::NeverSatisfiable { .. } if has_written => {
                    waiters[*at] = Some(waiter);
                }
                InlineAnswer::Refused(refusal) => {
                    let InlineAsk::Take { cost, terms, .. } = &waiter.ask else { continue };
                    let retry = slot_wait::refusal(self.inner, self.entry, *cost, terms.stays, *refusal);
                    self.refuse(waiter, &Setback::Refused(retry));
                }
                InlineAnswer::NeverSatisfiable { capacity } => {
                    let InlineAsk::Take { cost, .. } = &waiter.ask else { continue };
                    let (dimension, cost) = (self.entry.dimension.clone(), *cost);
                    let error =
                        AcquireError::NeverSatisfiable { dimension, cost, capacity: *capacity, share: None };
                    waiter.answer(InlineOutcome::Taken(Err(error)));
                }
                _ => waiters[*at] = Some(waiter),
            }
        }
        self.turns.were_served(served);
        let rest = waiters.into_iter().flatten();
        let why = self.waiting.as_ref().map(|(_, why)| why.clone());
        match why.or_else(|| draft.is_cut.then(|| self.not_next())) {
            // A caller behind one that waits also waits, or is refused.
            Some(why) if !has_written => rest.for_each(|waiter| self.refuse(waiter, &why)),
            _ => self.waiters = rest.collect(),
        }
        self.keep_turns();
        if came_late { Step::Overtaken } else { Step::Served }
    }

    /// Why a caller waits whose turn it is not.
    fn not_next(&self) -> Setback {
        let refusal = Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot };
        Setback::Refused(slot_wait::refusal(self.inner, self.entry, Cost::ONE, true, refusal))
    }

    /// Lets the callers that stay draw their numbers.
    fn keep_turns(&self) {
        let Some((waiting, Setback::Refused(retry))) = &self.waiting else { return };
        let Some(reading) = self.entry.reading().filter(|_| retry.reason == RetryReason::NoFreeSlot) else {
            return;
        };
        let count = waiting.iter().filter(|waiter| waiter.ask.takes()).count();
        if count > 0 {
            slot_wait::keep_turns(self.inner, self.entry, &reading.bucket, count, self.inner.now());
        }
    }

    fn grant(&mut self, mut waiter: InlineWaiter, ends: Timestamp, at: Timestamp, took: Duration) {
        let InlineAsk::Take { id, cost, borrows, unconfirmed, .. } = &mut waiter.ask else { return };
        // From here on the grant holds the lease.
        unconfirmed.take().into_iter().for_each(UnconfirmedLease::forget);
        let part = Part::inline(self.entry, *cost, id.clone(), at, ends);
        // What was borrowed goes back if its caller left: the lease names the borrower.
        let lane = borrows.is_none().then(|| OriginLane::Inline(Arc::clone(&self.entry.inline)));
        let unclaimed = UnclaimedGrant::new(Arc::clone(self.inner), Parts::from_buf([part]), at, took, lane);
        match waiter.is_left() {
            true => self.unclaimed_grants.push(unclaimed),
            false => waiter.answer(InlineOutcome::Taken(Ok(Taken::Granted(unclaimed)))),
        }
    }

    /// Grants a lease that an earlier try wrote, and whose reply was lost. A lease that has ended since is
    /// not granted: it is given back, and its caller asks under another id.
    fn grant_held(&mut self, waiter: InlineWaiter, bucket: &Bucket, at: Timestamp) {
        let InlineAsk::Take { id, .. } = &waiter.ask else { return };
        let ends = bucket.inline().and_then(|leases| leases.get(id)).map(|lease| lease.ends.get());
        match ends.filter(|ends| *ends > at) {
            Some(ends) => {
                if waiter.ask.stays_until().is_some() {
                    self.turns.were_served(1);
                }
                self.grant(waiter, ends, at, Duration::ZERO);
            }
            None => {
                let waiter = self.under_another_id(waiter);
                self.waiters.push(waiter);
            }
        }
    }

    /// Gives back a lease that ended after it was written, as in a frozen process. Its caller asks again.
    fn under_another_id(&self, mut waiter: InlineWaiter) -> InlineWaiter {
        if let InlineAsk::Take { id, cost, unconfirmed, .. } = &mut waiter.ask {
            let old = std::mem::replace(id, self.inner.config.lease_ids.next_inline());
            unconfirmed.take().into_iter().for_each(UnconfirmedLease::forget);
            drop(UnconfirmedLease::new(self.inner, self.entry, old, *cost));
        }
        waiter
    }

    /// Answers callers whose lease is already in the row, before anything else is planned.
    pub(super) fn answer_held(&mut self, bucket: &Bucket, at: Timestamp) {
        for waiter in std::mem::take(&mut self.waiters) {
            let is_held = match &waiter.ask {
                InlineAsk::Take { id, .. } => bucket.inline().is_some_and(|leases| leases.contains(id)),
                InlineAsk::Release { .. } => false,
            };
            if is_held { self.grant_held(waiter, bucket, at) } else { self.waiters.push(waiter) }
        }
    }

    /// Answers a caller, or keeps it in the queue.
    pub(super) fn refuse(&mut self, waiter: InlineWaiter, why: &Setback) {
        let stays = why.is_waited_out(waiter.ask.patience(self.inner));
        // For one that runs already, nobody heals at once: its process may be the first to find the return.
        if let (InlineAsk::Take { terms, .. }, Setback::Refused(retry)) = (&waiter.ask, why)
            && !terms.is_running
        {
            match stays {
                true => self.inner.waits(self.entry, retry),
                false => self.inner.refused(self.entry, retry),
            }
        }
        if stays {
            return stay(&mut self.waiting, waiter, why);
        }
        let reply = match &waiter.ask {
            InlineAsk::Take { .. } => InlineOutcome::Taken(why.clone().answer()),
            InlineAsk::Release { lease, .. } => {
                InlineOutcome::Released(Err(release_error(why, &self.entry.dimension, &lease.id)))
            }
        };
        waiter.answer(reply);
    }

    /// Answers all callers: the bucket is gone, and its leases with it.
    pub(super) fn no_bucket(&mut self, takes: &Result<RetryIn, AcquireError>) {
        for waiter in std::mem::take(&mut self.waiters) {
            let reply = match waiter.ask {
                InlineAsk::Take { .. } => InlineOutcome::Taken(takes.clone().map(Taken::Refused)),
                InlineAsk::Release { .. } => InlineOutcome::Released(Ok(Released::LeaseGone)),
            };
            waiter.answer(reply);
        }
    }
}

fn release_error(why: &Setback, dimension: &Dimension, id: &LeaseId) -> ReleaseError {
    let key = format!("{dimension}/{}", id.as_str());
    match why.clone().refusal() {
        Ok(_) => ReleaseError::Contended { key },
        Err(AcquireError::Store(error)) => ReleaseError::Store(error),
        Err(other) => ReleaseError::Refused { key, message: other.to_string() },
    }
}

fn is_doubted(waiter: &InlineWaiter) -> bool {
    matches!(waiter.ask, InlineAsk::Release { is_doubted: true, .. })
}

fn log_release(dimension: &Dimension, ask: &InlineAsk, released: Released) {
    let InlineAsk::Release { lease: InlineRelease { id, .. }, .. } = ask else { return };
    if released == Released::GivenBack {
        tracing::debug!(event = "release.ok", %dimension);
    } else {
        tracing::warn!(event = "release.late", %dimension, lease = id.as_str(), ?released);
    }
}
