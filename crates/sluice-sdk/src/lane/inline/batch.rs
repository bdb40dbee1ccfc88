//! One write for callers that take and callers that release, planned and sent until each has its answer.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Bucket, Cost, Dimension, InlineAnswer, InlinePlan, InlinePlanner, InlineRelease, InlineTake, LeaseId,
    NO_SLOT_WAIT, Reason, Refusal, ReleaseAnswer, Serves, Timestamp,
};
use sluice_ops::Released;
use sluice_table::{Resend, StoreError, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason, contended, refused};
use crate::bucket::known::BucketReading;
use crate::lane::contended::Contended;
use crate::lane::entry::Entry;
use crate::lane::fallback::hold;
use crate::lane::inline::{InlineAsk, InlineOutcome, InlineWaiter, UnconfirmedLease};
use crate::lane::inner::Inner;
use crate::lane::part::{Part, Parts};
use crate::lane::queue::{QueueAsk, Waiting, stay};
use crate::lane::reading::{apply_read, known, parse, refresh, unknown};
use crate::lane::release::ReleaseError;
use crate::lane::round::Step;
use crate::lane::setback::{Setback, Taken};
use crate::lane::turns::{Look, Turns};
use crate::lane::unclaimed::{OriginLane, UnclaimedGrant};
use crate::lane::{round, slot_wait};

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

/// A plan, with the positions of the callers that it is for.
struct InlineDraft {
    plan: InlinePlan,
    takes: Vec<usize>,
    releases: Vec<usize>,
    /// Whether a caller that waits is left out because it is not its turn, and all takes behind it.
    is_cut: bool,
    /// Whether a take passes over numbers of other processes.
    passes_over: bool,
    at: Timestamp,
}

impl InlineDraft {
    /// Whether the write takes slots and gives none back. A write that gives back is sent again as it is: it
    /// needs no reading.
    fn only_takes(&self) -> bool {
        self.plan.takes.contains(&InlineAnswer::Granted) && self.plan.releases.is_empty()
    }

    fn finds_leases_gone(&self) -> bool {
        self.plan.releases.contains(&ReleaseAnswer::Gone)
    }
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

/// Whether the bucket has so many slots at all.
fn fits(cost: Cost, bucket: &Bucket) -> bool {
    cost.amount() <= bucket.limit().capacity()
}

impl InlineBatch<'_> {
    /// How many of the callers that wait may take a slot now.
    fn are_next(&self, reading: &BucketReading, now: Timestamp) -> usize {
        let bucket = &reading.bucket;
        let wants = |waiter: &InlineWaiter| match &waiter.ask {
            InlineAsk::Take { cost, terms, .. } if terms.stays && fits(*cost, bucket) => Some(cost.amount()),
            _ => None,
        };
        let mut waiting = self.waiters.iter().filter_map(wants);
        let Some(cost) = waiting.next() else { return 0 };
        if bucket.blocked_until().is_some_and(|until| until > now) {
            // The refusal says how long.
            self.turns.rest();
            return usize::MAX;
        }
        let look = Look { began: self.began, age: reading.age(now) };
        self.turns.are_next(bucket, look, 1 + waiting.count(), cost, now)
    }

    /// Sets back the callers that take, but for those that run. Those that give back go on.
    fn hold_takes(&mut self, setback: &Setback) {
        for waiter in std::mem::take(&mut self.waiters) {
            match waiter.ask.waits_for_hold() {
                true => self.refuse(waiter, setback),
                false => self.waiters.push(waiter),
            }
        }
    }

    /// `is_held`: DynamoDB has just come back. Those who hold leases that have ended may not know it yet.
    fn plan(&self, reading: &BucketReading, now: Timestamp, is_held: bool) -> InlineDraft {
        let bucket = &reading.bucket;
        let mut planner = InlinePlanner::new(bucket);
        if is_held {
            planner = planner.without_taking_over();
        }
        let mut takes: Vec<(usize, InlineTake)> = Vec::new();
        let (mut releases, mut released) = (Vec::new(), Vec::new());
        let (are_next, mut waiting, mut is_cut) = (self.are_next(reading, now), 0, false);
        for (at, waiter) in self.waiters.iter().enumerate() {
            match &waiter.ask {
                // It learns at once that it can have no slot. As one of those that wait, it would have no
                // turn, and all behind it would wait for it.
                InlineAsk::Take { cost, .. } if is_cut && fits(*cost, bucket) => {}
                InlineAsk::Take { cost, terms, .. }
                    if terms.stays && waiting == are_next && fits(*cost, bucket) =>
                {
                    is_cut = true;
                }
                InlineAsk::Take { id, cost, borrows, terms, .. } => {
                    let ends = now.after(terms.lease);
                    let mut serves = Serves::default();
                    if terms.stays && fits(*cost, bucket) {
                        serves = self.turns.serves(bucket, waiting, cost.amount(), now);
                        waiting += 1;
                    }
                    let (id, borrows) = (id.clone(), borrows.clone());
                    takes.push((at, InlineTake { id, cost: *cost, ends, serves, borrows }));
                }
                InlineAsk::Release { lease, .. } => {
                    releases.push(at);
                    released.push(lease.clone());
                }
            }
        }
        let (mut of, mut wanted): (Vec<usize>, Vec<InlineTake>) = takes.into_iter().unzip();
        let mut plan = planner.plan(&wanted, &released, now);
        // First come, first served: nobody is granted a slot before an earlier caller that waits for one.
        let is_waiting = |(at, answer): &(usize, &InlineAnswer)| match answer {
            InlineAnswer::Refused(refusal) => {
                let retry = refused(&self.entry.dimension, *refusal);
                self.waiters[of[*at]].ask.patience(self.inner).waits_for(&retry)
            }
            _ => false,
        };
        let first = plan.takes.iter().enumerate().find(is_waiting).map(|(at, _)| at);
        if let Some(first) = first.filter(|first| plan.takes[*first..].contains(&InlineAnswer::Granted)) {
            of.truncate(first + 1);
            wanted.truncate(first + 1);
            plan = planner.plan(&wanted, &released, now);
        }
        let taken = wanted.iter().zip(&plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
        let passes_over = taken.into_iter().any(|(take, _)| take.serves.passes_over);
        InlineDraft { plan, takes: of, releases, is_cut, passes_over, at: now }
    }

    /// Answers the callers as the plan says. If the plan has a write, that write has been applied. A grant
    /// whose lease has already ended counts as a failed try. A release whose lease is missing is answered
    /// only if this round `has_read` the row. An older reading may be from before the take: the release would
    /// then send nothing, and the slot would stay taken until the lease ends.
    fn settle(&mut self, draft: InlineDraft, has_read: bool, took: Duration) -> Step {
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
    fn answer_held(&mut self, bucket: &Bucket, at: Timestamp) {
        for waiter in std::mem::take(&mut self.waiters) {
            let is_held = match &waiter.ask {
                InlineAsk::Take { id, .. } => bucket.inline().is_some_and(|leases| leases.contains(id)),
                InlineAsk::Release { .. } => false,
            };
            if is_held { self.grant_held(waiter, bucket, at) } else { self.waiters.push(waiter) }
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

    /// Answers a caller, or keeps it in the queue.
    fn refuse(&mut self, waiter: InlineWaiter, why: &Setback) {
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
    fn no_bucket(&mut self, takes: &Result<RetryIn, AcquireError>) {
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
