//! The lane of a concurrency bucket whose leases stand in its own row: those who take and those who release join in one write.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Bucket, Cost, Dimension, InlineAnswer, InlinePlan, InlinePlanner, InlineTake, LeaseId, MOST_CHANGES, ReleaseAnswer,
    Timestamp,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::fresh::Via;
use super::{
    Answer, Fresh, PLANS_AT_ONCE, Taken, Terms, Want, contended, known, refresh, refused, saw, stopped, try_again,
    unknown,
};
use crate::acquire::AcquireError;
use crate::cache::Entry;
use crate::client::Inner;
use crate::give_back::{RELEASE_TRIES, ReleaseError, Released};
use crate::grant::{Part, Parts};
use crate::lane::{Lane, NoAnswer, Seat, Service, Turn};
use crate::outcome::RetryIn;
use crate::retry::Poll;
use crate::store::{IfAmbiguous, StoreError, Written};

pub(crate) type InlineLane = Lane<InlineAsk, Reply>;
type InlineTurn = Turn<InlineAsk, Reply>;

/// What one caller wants.
#[derive(Debug)]
pub(crate) enum InlineAsk {
    Take {
        /// The same in every try: a lease under it can only be its own.
        id: LeaseId,
        cost: Cost,
        terms: Terms,
        /// Once a write that named it has gone unanswered.
        trace: Option<Trace>,
    },
    Release(LeaseId),
}

/// A lease that may be there without its caller knowing. Dropped with a caller that left, or that was told of a failure, it is
/// given back, so that its slot need not wait for its end.
#[derive(Debug)]
pub(crate) struct Trace {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    id: Option<LeaseId>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let (inner, entry) = (Arc::clone(&self.inner), Arc::clone(&self.entry));
        runtime.spawn(async move {
            if let Err(error) = release(&inner, &entry, &id).await {
                tracing::debug!(event = "release.failed", dimension = %entry.dimension, %error);
            }
        });
    }
}

/// The answer to either.
#[derive(Debug)]
pub(crate) enum Reply {
    Taken(Answer),
    Released(Result<Released, ReleaseError>),
}

impl InlineAsk {
    /// Whether it may have what another caller left: as much, for as long.
    pub(crate) fn would_take(&self, fresh: &Fresh) -> bool {
        let Self::Take { cost: wanted, terms, .. } = self else { return false };
        let until = fresh.now().after(terms.lease.length());
        matches!(fresh.parts().as_slice(), [part] if part.cost == *wanted && part.lease_ends().is_some_and(|ends| ends >= until))
    }

    fn waits_for(&self, retry: &RetryIn) -> bool {
        matches!(self, Self::Take { terms, .. } if terms.waits_for(retry))
    }
}

/// Takes slots, waiting in line for them where `terms` allow.
pub(super) async fn take(inner: &Arc<Inner>, want: &Want, terms: Terms) -> Answer {
    let id = inner.config.lease_ids.next();
    let lane = &want.entry.inline;
    loop {
        if let Some(retry) = lane.blocked().filter(|retry| !terms.waits_for(retry)) {
            return Ok(Taken::Refused(retry));
        }
        match join(inner, &want.entry, InlineAsk::Take { id: id.clone(), cost: want.cost, terms, trace: None }).await {
            Ok(Reply::Taken(answer)) => return answer,
            Ok(Reply::Released(_)) | Err(NoAnswer::Lost) => return Err(stopped("UpdateItem").into()),
            Err(NoAnswer::NotServed) => {}
        }
    }
}

/// Gives back what the lease holds.
pub(crate) async fn release(inner: &Arc<Inner>, entry: &Arc<Entry>, id: &LeaseId) -> Result<Released, ReleaseError> {
    loop {
        let answer = join(inner, entry, InlineAsk::Release(id.clone()));
        match answer.await {
            Ok(Reply::Released(released)) => return released,
            Ok(Reply::Taken(_)) | Err(NoAnswer::Lost) => return Err(stopped("UpdateItem").into()),
            Err(NoAnswer::NotServed) => {}
        }
    }
}

async fn join(inner: &Arc<Inner>, entry: &Arc<Entry>, ask: InlineAsk) -> Result<Reply, NoAnswer> {
    let gives = matches!(ask, InlineAsk::Release(_));
    let service = |seat| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(entry), seat)) };
    let ticket = entry.inline.join(ask, service);
    if gives {
        entry.inline.wake();
    }
    ticket.answer().await
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, mut seat: Seat<InlineAsk, Reply>) {
    let mut poll = Poll::default();
    while let Some(turns) = seat.next(MOST_CHANGES).await {
        let served = turns.len();
        let batch = Batch { inner: &inner, entry: &entry, turns, waiting: None, orphans: Vec::new() };
        let (waiting, orphans) = batch.serve().await;
        let Some((waiting, why)) = waiting else {
            poll = Poll::default();
            seat.batch_is_over();
            // To the next in line, if that asks for just as much, or back with the next write.
            drop(orphans);
            continue;
        };
        drop(orphans);
        if waiting.len() < served {
            poll = Poll::default();
        }
        let pause = poll.next(&why);
        seat.pause(waiting, why, pause).await;
        entry.doubt();
    }
}

/// The callers of one write, in order.
struct Batch<'a> {
    inner: &'a Arc<Inner>,
    entry: &'a Arc<Entry>,
    turns: Vec<InlineTurn>,
    /// Those who would rather wait than be refused, and what for.
    waiting: Option<(Vec<InlineTurn>, RetryIn)>,
    /// What was granted to callers who had gone away.
    orphans: Vec<Fresh>,
}

/// Those who wait, if any, and what nobody took.
type Served = (Option<(Vec<InlineTurn>, RetryIn)>, Vec<Fresh>);

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
    async fn serve(mut self) -> Served {
        let (mut tries, mut throttled, mut ambiguous) = (0, 0, false);
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
            let now = self.inner.now();
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
                self.settle(draft, ambiguous, Duration::ZERO);
                break;
            };
            // A second application fails, and finds in the row what the first one did.
            let mut in_doubt = false;
            let sent = self.inner.store.update_noting(update, IfAmbiguous::SendAgain, &mut in_doubt).await;
            if in_doubt && !matches!(sent, Ok(Written::Applied(_))) {
                ambiguous = true;
                self.leave_traces(&draft);
            }
            match sent {
                Ok(Written::Applied(row)) => {
                    let bucket = match super::parse(&self.entry.dimension, &row) {
                        Ok(bucket) => Arc::new(bucket),
                        Err(error) => return self.fail(&error),
                    };
                    self.entry.wrote(bucket, self.inner.now());
                    self.settle(draft, ambiguous, began.elapsed());
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
                    // Throttled in every try. Those who take may be told; a slot that is not given back is lost to all for as
                    // long as its lease lasts.
                    self.give_up(Whom::Takers);
                    throttled += 1;
                    if throttled > RELEASE_TRIES {
                        self.give_up(Whom::All);
                    }
                    continue;
                }
                Err(error) => return self.fail(&error.into()),
            }
            tries += 1;
            if !try_again(self.inner, tries, &self.entry.dimension).await {
                self.give_up(Whom::Takers);
                if tries > PLANS_AT_ONCE + RELEASE_TRIES {
                    self.give_up(Whom::All);
                } else {
                    self.inner.store.back_off(tries).await;
                }
            }
        }
        (self.waiting, self.orphans)
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
                InlineAsk::Release(id) => {
                    releases.push(at);
                    released.push(id.clone());
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
    fn settle(&mut self, draft: Draft, ambiguous: bool, took: Duration) {
        let mut turns: Vec<Option<InlineTurn>> = std::mem::take(&mut self.turns).into_iter().map(Some).collect();
        let has_written = draft.plan.update.is_some();
        for (at, answer) in draft.releases.iter().zip(&draft.plan.releases) {
            let released = match answer {
                ReleaseAnswer::GivenBack => Released::GivenBack,
                ReleaseAnswer::Capped => Released::AlreadyCapped,
                // The answer of its own write was lost, perhaps: nothing says that anyone else was there.
                ReleaseAnswer::Gone if ambiguous => Released::GivenBack,
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
                    self.grant(turn, ends, draft.at, took);
                }
                // The row has changed by this very write: judged again by its reply.
                InlineAnswer::Refused(_) | InlineAnswer::NeverSatisfiable { .. } if has_written => {
                    turns[*at] = Some(turn);
                }
                InlineAnswer::Refused(refusal) => self.refuse(turn, refused(&self.entry.dimension, *refusal)),
                InlineAnswer::NeverSatisfiable { capacity } => {
                    let InlineAsk::Take { cost, .. } = &turn.ask else { continue };
                    let (dimension, cost) = (self.entry.dimension.clone(), *cost);
                    let error = AcquireError::NeverSatisfiable { dimension, cost, capacity: *capacity };
                    turn.answer(Reply::Taken(Err(error)));
                }
                _ => turns[*at] = Some(turn),
            }
        }
        // Who stood behind one who waits does too.
        let rest: Vec<_> = turns.into_iter().flatten().collect();
        match &mut self.waiting {
            Some((waiting, _)) if !has_written => waiting.extend(rest),
            _ => self.turns = rest,
        }
    }

    fn grant(&mut self, mut turn: InlineTurn, ends: Timestamp, at: Timestamp, took: Duration) {
        let InlineAsk::Take { id, cost, trace, .. } = &mut turn.ask else { return };
        // From here on the grant holds it.
        trace.iter_mut().for_each(|trace| trace.id = None);
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
    fn grant_held(&mut self, mut turn: InlineTurn, bucket: &Bucket, at: Timestamp) {
        let InlineAsk::Take { id, trace, .. } = &mut turn.ask else { return };
        let ends = bucket.inline().and_then(|leases| leases.get(id)).map(|lease| lease.ends.get());
        match ends.filter(|ends| *ends > at) {
            Some(ends) => self.grant(turn, ends, at, Duration::ZERO),
            None => {
                let old = std::mem::replace(id, self.inner.config.lease_ids.next());
                drop(trace.take());
                drop(self.trace(old));
                self.turns.push(turn);
            }
        }
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

    fn trace(&self, id: LeaseId) -> Trace {
        Trace { inner: Arc::clone(self.inner), entry: Arc::clone(self.entry), id: Some(id) }
    }

    /// The write that named them has gone unanswered, and may be applied at any time.
    fn leave_traces(&mut self, draft: &Draft) {
        let granted = draft.takes.iter().zip(&draft.plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
        for at in granted.map(|(at, _)| *at) {
            let InlineAsk::Take { id, .. } = &self.turns[at].ask else { continue };
            let made = self.trace(id.clone());
            if let InlineAsk::Take { trace, .. } = &mut self.turns[at].ask {
                let before = trace.replace(made);
                before.into_iter().for_each(|mut before| before.id = None);
            }
        }
    }

    fn refuse(&mut self, turn: InlineTurn, retry: RetryIn) {
        if turn.ask.waits_for(&retry) {
            self.waiting.get_or_insert_with(|| (Vec::new(), retry)).0.push(turn);
        } else {
            turn.answer(Reply::Taken(Ok(Taken::Refused(retry))));
        }
    }

    /// Other writers were faster in every try.
    fn give_up(&mut self, whom: Whom) {
        for turn in std::mem::take(&mut self.turns) {
            match &turn.ask {
                InlineAsk::Take { .. } => self.refuse(turn, contended(&self.entry.dimension)),
                InlineAsk::Release(_) if whom == Whom::Takers => self.turns.push(turn),
                InlineAsk::Release(id) => {
                    let key = format!("{}/{}", self.entry.dimension, id.as_str());
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
        (None, self.orphans)
    }

    fn fail(self, error: &AcquireError) -> Served {
        for turn in self.turns {
            let reply = match &turn.ask {
                InlineAsk::Take { .. } => Reply::Taken(Err(error.clone())),
                InlineAsk::Release(id) => Reply::Released(Err(release_error(error, &self.entry.dimension, id))),
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
    let InlineAsk::Release(id) = ask else { return };
    if released == Released::GivenBack {
        tracing::debug!(event = "release.ok", %dimension);
    } else {
        tracing::warn!(event = "release.late", %dimension, lease = id.as_str(), ?released);
    }
}
