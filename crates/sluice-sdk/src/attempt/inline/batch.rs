//! One write for those who take and those who release, planned and sent until each has its answer.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Bucket, Dimension, InlineAnswer, InlinePlan, InlinePlanner, InlineRelease, InlineTake, LeaseId, ReleaseAnswer,
    Timestamp,
};
use tokio::time::Instant;

use super::super::fresh::Via;
use super::super::{Fresh, PLANS_AT_ONCE, Taken, contended, known, parse, refresh, refused, saw, try_again, unknown};
use super::{InlineAsk, InlineTurn, Reply, Trace};
use crate::acquire::AcquireError;
use crate::cache::Entry;
use crate::client::Inner;
use crate::give_back::{RELEASE_TRIES, ReleaseError, Released};
use crate::grant::{Part, Parts};
use crate::heal;
use crate::load;
use crate::outcome::RetryIn;
use crate::store::{IfAmbiguous, StoreError, Written};

/// The callers of one write, in order.
pub(super) struct Batch<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) entry: &'a Arc<Entry>,
    pub(super) turns: Vec<InlineTurn>,
    /// Those who would rather wait than be refused, and what for.
    pub(super) waiting: Option<(Vec<InlineTurn>, RetryIn)>,
    /// What was granted to callers who had gone away.
    pub(super) orphans: Vec<Fresh>,
}

/// Those who wait, if any, and what nobody took.
pub(super) type Served = (Option<(Vec<InlineTurn>, RetryIn)>, Vec<Fresh>);

/// A plan, with the turns that it is for.
struct Draft {
    plan: InlinePlan,
    takes: Vec<usize>,
    releases: Vec<usize>,
    at: Timestamp,
}

/// Who gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Takers,
    All,
}

impl Batch<'_> {
    /// Plans and writes until each caller has its answer, or waits.
    pub(super) async fn serve(mut self) -> Served {
        // Releases that a write without an answer has named.
        let (mut tries, mut throttled, mut doubted) = (0, 0, Vec::new());
        while !self.turns.is_empty() {
            let reading = match known(self.inner, self.entry).await {
                Ok(reading) => reading,
                Err(error) => return self.fail(&error),
            };
            if !reading.bucket.limit().is_concurrent() {
                // Made anew as another type: there is nothing to take or to give back.
                let retry = contended(&self.entry.dimension);
                return self.no_bucket(&Ok(retry));
            }
            let now = match self.inner.time().await {
                Ok(now) => now,
                Err(error) => return self.fail(&error.into()),
            };
            self.answer_held(&reading.bucket, now);
            let draft = self.plan(&InlinePlanner::new(&reading.bucket), now);
            let began = Instant::now();
            let Some(update) = &draft.plan.update else {
                let is_refused = draft.plan.takes.iter().any(|answer| !matches!(answer, InlineAnswer::Held));
                if is_refused && !reading.may_refuse(now) {
                    // A read costs less than a write that fails, and disturbs nobody.
                    match refresh(self.inner, self.entry).await {
                        Ok(_) => continue,
                        Err(error) => return self.fail(&error),
                    }
                }
                self.settle(draft, &doubted, Duration::ZERO);
                continue;
            };
            // A second application fails, and finds in the row what the first one did.
            let mut in_doubt = false;
            let sent = self.inner.store.update_noting(update, IfAmbiguous::SendAgain, &mut in_doubt).await;
            if in_doubt && !matches!(sent, Ok(Written::Applied(_))) {
                doubted.extend(self.leave_traces(&draft));
            }
            match sent {
                Ok(Written::Applied(row)) => {
                    let bucket = match parse(&self.entry.dimension, &row) {
                        Ok(bucket) => Arc::new(bucket),
                        Err(error) => return self.fail(&error),
                    };
                    self.entry.wrote(bucket, self.inner.now());
                    self.settle(draft, &doubted, began.elapsed());
                    continue;
                }
                Ok(Written::ConditionFailed(Some(row))) => {
                    if let Err(error) = saw(self.inner, self.entry, &row) {
                        return self.fail(&error);
                    }
                }
                Ok(Written::ConditionFailed(None)) => {
                    let error = unknown(self.inner, self.entry);
                    return self.no_bucket(&Err(error));
                }
                Err(StoreError::Contended { .. }) => {
                    throttled += 1;
                    self.give_up(if throttled > RELEASE_TRIES { Whom::All } else { Whom::Takers });
                    continue;
                }
                Err(error) => return self.fail(&error.into()),
            }
            tries += 1;
            self.pause(tries).await;
        }
        (self.waiting, self.orphans)
    }

    /// Before the next try. Those who take are told where there were too many; a slot that is not given back is lost to all for as
    /// long as its lease lasts.
    async fn pause(&mut self, tries: u32) {
        if try_again(self.inner, tries, &self.entry.dimension).await {
            return;
        }
        self.give_up(if tries > PLANS_AT_ONCE + RELEASE_TRIES { Whom::All } else { Whom::Takers });
        if !self.turns.is_empty() {
            self.inner.store.back_off(tries).await;
        }
    }

    fn plan(&self, planner: &InlinePlanner<'_>, now: Timestamp) -> Draft {
        let mut takes: Vec<(usize, InlineTake)> = Vec::new();
        let (mut releases, mut released) = (Vec::new(), Vec::new());
        for (at, turn) in self.turns.iter().enumerate() {
            match &turn.ask {
                InlineAsk::Take { id, cost, terms, .. } => {
                    let ends = now.after(terms.lease.length());
                    takes.push((at, InlineTake { id: id.clone(), cost: *cost, ends }));
                }
                InlineAsk::Release(lease) => {
                    releases.push(at);
                    released.push(lease.clone());
                }
            }
        }
        let (mut of, mut wanted): (Vec<usize>, Vec<InlineTake>) = takes.into_iter().unzip();
        let mut plan = planner.plan(&wanted, &released, now);
        // First come, first served: nobody is granted a slot past one who waits for it.
        let is_waiting = |(at, answer): &(usize, &InlineAnswer)| match answer {
            InlineAnswer::Refused(refusal) => {
                self.turns[of[*at]].ask.waits_for(&refused(&self.entry.dimension, *refusal))
            }
            _ => false,
        };
        let first = plan.takes.iter().enumerate().find(is_waiting).map(|(at, _)| at);
        if let Some(first) = first.filter(|first| plan.takes[*first..].contains(&InlineAnswer::Granted)) {
            of.truncate(first + 1);
            wanted.truncate(first + 1);
            plan = planner.plan(&wanted, &released, now);
        }
        Draft { plan, takes: of, releases, at: now }
    }

    /// Hands out what the plan says, of which the write, if there was one, is applied.
    fn settle(&mut self, draft: Draft, doubted: &[LeaseId], took: Duration) {
        let mut turns: Vec<Option<InlineTurn>> = std::mem::take(&mut self.turns).into_iter().map(Some).collect();
        let has_written = draft.plan.update.is_some();
        for (at, answer) in draft.releases.iter().zip(&draft.plan.releases) {
            let released = match answer {
                ReleaseAnswer::GivenBack => Released::GivenBack,
                ReleaseAnswer::Capped => Released::AlreadyCapped,
                // The answer of its own write was lost, perhaps: nothing says that anyone else was there.
                ReleaseAnswer::Gone if Self::is_doubted(turns[*at].as_ref(), doubted) => Released::GivenBack,
                ReleaseAnswer::Gone => Released::LeaseGone,
                _ => continue,
            };
            if let Some(turn) = turns[*at].take() {
                told(&self.entry.dimension, &turn.ask, released);
                turn.answer(Reply::Released(Ok(released)));
            }
        }
        for (at, answer) in draft.takes.iter().zip(&draft.plan.takes) {
            let Some(turn) = turns[*at].take() else { continue };
            match answer {
                InlineAnswer::Granted => {
                    let InlineAsk::Take { terms, .. } = &turn.ask else { continue };
                    let ends = draft.at.after(terms.lease.length()).ceil_to_second();
                    if ends > self.inner.now() {
                        self.grant(turn, ends, draft.at, took);
                    } else {
                        turns[*at] = Some(self.under_another_id(turn));
                    }
                }
                // The row has changed by this very write: judged again by its reply.
                InlineAnswer::Refused(_) | InlineAnswer::NeverSatisfiable { .. } if has_written => {
                    turns[*at] = Some(turn);
                }
                InlineAnswer::Refused(refusal) => {
                    let InlineAsk::Take { cost, terms, .. } = &turn.ask else { continue };
                    let retry = load::refusal(self.inner, self.entry, *cost, terms.until.is_some(), *refusal);
                    self.refuse(turn, retry);
                }
                InlineAnswer::NeverSatisfiable { capacity } => {
                    let InlineAsk::Take { cost, .. } = &turn.ask else { continue };
                    let (dimension, cost) = (self.entry.dimension.clone(), *cost);
                    let error = AcquireError::NeverSatisfiable { dimension, cost, capacity: *capacity };
                    turn.answer(Reply::Taken(Err(error)));
                }
                _ => turns[*at] = Some(turn),
            }
        }
        let rest = turns.into_iter().flatten();
        match self.waiting.as_ref().map(|(_, why)| why.clone()) {
            // Who stands behind one who waits does so too, or is refused.
            Some(why) if !has_written => rest.for_each(|turn| self.refuse(turn, why.clone())),
            _ => self.turns = rest.collect(),
        }
    }

    fn grant(&mut self, mut turn: InlineTurn, ends: Timestamp, at: Timestamp, took: Duration) {
        let InlineAsk::Take { id, cost, trace, .. } = &mut turn.ask else { return };
        // From here on the grant holds it.
        trace.take().into_iter().for_each(Trace::forget);
        let part = Part::inline(self.entry, *cost, id.clone(), at, ends);
        let lane = Via::Inline(Arc::clone(&self.entry.inline));
        let fresh = Fresh::new(Arc::clone(self.inner), Parts::from_buf([part]), at, took, Some(lane));
        match turn.is_left() {
            true => self.orphans.push(fresh),
            false => turn.answer(Reply::Taken(Ok(Taken::Granted(fresh)))),
        }
    }

    /// A lease that an earlier try wrote, whose reply was lost. One that has ended since is no grant: it is given back, and its
    /// caller asks under another id.
    fn grant_held(&mut self, turn: InlineTurn, bucket: &Bucket, at: Timestamp) {
        let InlineAsk::Take { id, .. } = &turn.ask else { return };
        let ends = bucket.inline().and_then(|leases| leases.get(id)).map(|lease| lease.ends.get());
        match ends.filter(|ends| *ends > at) {
            Some(ends) => self.grant(turn, ends, at, Duration::ZERO),
            None => {
                let turn = self.under_another_id(turn);
                self.turns.push(turn);
            }
        }
    }

    /// The lease has ended since it was written, as where the process was frozen: it is given back, and its caller asks again.
    fn under_another_id(&self, mut turn: InlineTurn) -> InlineTurn {
        if let InlineAsk::Take { id, cost, trace, .. } = &mut turn.ask {
            let old = std::mem::replace(id, self.inner.config.lease_ids.next());
            trace.take().into_iter().for_each(Trace::forget);
            drop(Trace::new(self.inner, self.entry, old, *cost));
        }
        turn
    }

    /// Answers those whose lease is in the row already, before anything else is planned.
    fn answer_held(&mut self, bucket: &Bucket, at: Timestamp) {
        for turn in std::mem::take(&mut self.turns) {
            let is_held = match &turn.ask {
                InlineAsk::Take { id, .. } => bucket.inline().is_some_and(|leases| leases.contains(id)),
                InlineAsk::Release(_) => false,
            };
            if is_held { self.grant_held(turn, bucket, at) } else { self.turns.push(turn) }
        }
    }

    fn is_doubted(turn: Option<&InlineTurn>, doubted: &[LeaseId]) -> bool {
        matches!(turn.map(|turn| &turn.ask), Some(InlineAsk::Release(lease)) if doubted.contains(&lease.id))
    }

    /// The write that named them has gone unanswered, and may be applied at any time. Returns the leases that it gives back.
    fn leave_traces(&mut self, draft: &Draft) -> Vec<LeaseId> {
        let granted = draft.takes.iter().zip(&draft.plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
        for at in granted.map(|(at, _)| *at) {
            let InlineAsk::Take { id, cost, .. } = &self.turns[at].ask else { continue };
            let made = Trace::new(self.inner, self.entry, id.clone(), *cost);
            if let InlineAsk::Take { trace, .. } = &mut self.turns[at].ask {
                trace.replace(made).into_iter().for_each(Trace::forget);
            }
        }
        let released = |at: &usize| match &self.turns[*at].ask {
            InlineAsk::Release(lease) => Some(lease.id.clone()),
            InlineAsk::Take { .. } => None,
        };
        draft.releases.iter().filter_map(released).collect()
    }

    fn refuse(&mut self, turn: InlineTurn, retry: RetryIn) {
        if turn.ask.waits_for(&retry) {
            heal::waits(self.inner, self.entry, &retry);
            self.waiting.get_or_insert_with(|| (Vec::new(), retry)).0.push(turn);
        } else {
            heal::refused(self.inner, self.entry, &retry);
            turn.answer(Reply::Taken(Ok(Taken::Refused(retry))));
        }
    }

    /// Other writers were faster in every try.
    fn give_up(&mut self, whom: Whom) {
        for turn in std::mem::take(&mut self.turns) {
            match &turn.ask {
                InlineAsk::Take { .. } => self.refuse(turn, contended(&self.entry.dimension)),
                InlineAsk::Release(_) if whom == Whom::Takers => self.turns.push(turn),
                InlineAsk::Release(lease) => {
                    let key = format!("{}/{}", self.entry.dimension, lease.id.as_str());
                    turn.answer(Reply::Released(Err(ReleaseError::Contended { key })));
                }
            }
        }
    }

    /// The bucket is gone, and its leases with it.
    fn no_bucket(self, takes: &Result<RetryIn, AcquireError>) -> Served {
        for turn in self.turns {
            let reply = match turn.ask {
                InlineAsk::Take { .. } => Reply::Taken(takes.clone().map(Taken::Refused)),
                InlineAsk::Release(_) => Reply::Released(Ok(Released::LeaseGone)),
            };
            turn.answer(reply);
        }
        (self.waiting, self.orphans)
    }

    fn fail(self, error: &AcquireError) -> Served {
        for turn in self.turns {
            let reply = match &turn.ask {
                InlineAsk::Take { .. } => Reply::Taken(Err(error.clone())),
                InlineAsk::Release(lease) => {
                    Reply::Released(Err(release_error(error, &self.entry.dimension, &lease.id)))
                }
            };
            turn.answer(reply);
        }
        (self.waiting, self.orphans)
    }
}

fn release_error(error: &AcquireError, dimension: &Dimension, id: &LeaseId) -> ReleaseError {
    let key = format!("{dimension}/{}", id.as_str());
    match error {
        AcquireError::Store(StoreError::Contended { .. }) => ReleaseError::Contended { key },
        AcquireError::Store(error) => ReleaseError::Store(error.clone()),
        other => ReleaseError::Refused { key, message: other.to_string() },
    }
}

fn told(dimension: &Dimension, ask: &InlineAsk, released: Released) {
    let InlineAsk::Release(InlineRelease { id, .. }) = ask else { return };
    if released == Released::GivenBack {
        tracing::debug!(event = "release.ok", %dimension);
    } else {
        tracing::warn!(event = "release.late", %dimension, lease = id.as_str(), ?released);
    }
}
