//! The lane of a rate bucket: one conditional write for all callers in the queue.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Amount, BatchPlan, Bucket, Claim, Cost, Dimension, Plan, Planned, RatePlanner, Starts, Take, Timestamp,
};
use sluice_table::{Resend, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::refusal::{contended, refused};
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::fallback::hold;
use crate::lane::inner::Inner;
use crate::lane::no_grant::too_late;
use crate::lane::parallel::stopped;
use crate::lane::part::Part;
use crate::lane::poll::{Others, Poll};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, QueueAsk, QueueResult, Service, Waiter, Waiting, stay};
use crate::lane::reading::{apply_read, known, refresh, unknown};
use crate::lane::round::Step;
use crate::lane::setback::{Setback, Taken};
use crate::lane::terms::Terms;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::lane::wants::Want;
use crate::lane::{last_start, round};

mod replies;
mod shares;

use shares::TakenFrom;

pub(crate) type TokenLane = Lane<TokenAsk, LaneAnswer>;
type TokenWaiter = Waiter<TokenAsk, LaneAnswer>;

/// The most callers in one plan and its write: a plan for very many delays the write.
const MOST_AT_ONCE: usize = 1_024;

/// What one caller wants of a rate bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenAsk {
    cost: Cost,
    terms: Terms,
}

impl TokenAsk {
    /// Whether the caller may have what another caller left.
    pub(crate) fn would_take(&self, unclaimed: &UnclaimedGrant) -> bool {
        let latest = unclaimed.now().after(self.terms.patience());
        matches!(unclaimed.parts().as_slice(), [part] if part.cost == self.cost && part.start_at <= latest)
            && unclaimed.is_there()
    }

    fn claim(&self) -> Claim {
        Claim { cost: self.cost, patience: self.terms.patience() }
    }
}

impl QueueAsk for TokenAsk {
    fn stays_until(&self) -> Option<Instant> {
        self.terms.stays_until()
    }
}

pub(super) async fn take(inner: &Arc<Inner>, want: &Want, terms: Terms) -> LaneAnswer {
    let lane = &*want.entry.tokens;
    let serve = |leader| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(&want.entry), leader)) };
    let stays = |why: &Setback| why.is_waited_out(terms.queue_patience(inner.config.on_unavailable));
    match lane.take(|| TokenAsk { cost: want.cost, terms }, stays, serve).await {
        QueueResult::Answered(answer) => answer,
        QueueResult::Behind(setback) => setback.answer(),
        QueueResult::Lost => Err(stopped("UpdateItem").into()),
        QueueResult::Late => too_late(inner, std::slice::from_ref(want), lane.why(), lane.looks_for()),
    }
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, leader: Leader<TokenAsk, LaneAnswer>) {
    let _serving = inner.background.token();
    let (inner, entry) = (&inner, &entry);
    let batch = |waiters| {
        let (waiting, unclaimed_grants) = (None, Vec::new());
        let (has_tried_repair, has_seen_row) = (false, false);
        TokenBatch {
            inner,
            entry,
            waiters,
            waiting,
            unclaimed_grants,
            lot: None,
            has_tried_repair,
            has_seen_row,
        }
    };
    round::lead(
        inner,
        leader,
        Poll::uncounted(),
        batch,
        || Others { crowd: entry.load.crowd(), next_look: None },
        || (),
    )
    .await;
}

/// The callers of a round, in order. A write is for the first [`MOST_AT_ONCE`] of them.
struct TokenBatch<'a> {
    inner: &'a Arc<Inner>,
    entry: &'a Arc<Entry>,
    waiters: Vec<TokenWaiter>,
    /// Callers that stay in the queue.
    waiting: Waiting<TokenAsk, LaneAnswer>,
    /// What was granted to callers that had left, for the next callers.
    unclaimed_grants: Vec<UnclaimedGrant>,
    /// The tokens to take ahead in addition. Measured once, however often the batch is planned again.
    lot: Option<Amount>,
    /// Whether a write was sent that takes nothing and repairs the anchor. The write may fail beside a busy
    /// writer. Then all callers are answered by the row as it is, and nobody waits for another repair.
    has_tried_repair: bool,
    /// Whether a reply of this round showed the row, so that the reading is not out of date.
    has_seen_row: bool,
}

/// A write that is under way, with what it takes for each caller.
struct SentWrite {
    planned: Planned,
    /// The line that it takes from.
    from: TakenFrom,
    /// For each caller of the plan: the sum of tokens up to its own, if the write takes them.
    sums_to_callers: Vec<Option<Amount>>,
    total: Amount,
    prefetched: Amount,
    now: Timestamp,
    began: Instant,
}

/// A plan for callers: the write with the sums up to each of them.
fn write_of(batch: BatchPlan, from: TakenFrom, now: Timestamp) -> Option<SentWrite> {
    let sum_to_caller = |answer: &Plan<_>| if let Plan::Write(sum) = answer { Some(*sum) } else { None };
    let sums_to_callers = batch.answers.iter().map(sum_to_caller).collect();
    let (total, prefetched, began) = (batch.total, batch.prefetched, Instant::now());
    batch.write.map(|planned| SentWrite { planned, from, sums_to_callers, total, prefetched, now, began })
}

impl round::Batch for TokenBatch<'_> {
    type Ask = TokenAsk;
    type Answer = LaneAnswer;

    fn into_unfinished(self) -> round::Unfinished<TokenAsk, LaneAnswer> {
        (self.waiting, self.unclaimed_grants)
    }

    fn dimension(&self) -> &Dimension {
        &self.entry.dimension
    }

    fn waiters(&mut self) -> &mut Vec<TokenWaiter> {
        &mut self.waiters
    }

    async fn step(&mut self, has_read: bool) -> Result<Step, AcquireError> {
        let reading = known(self.inner, self.entry).await?;
        if reading.bucket.limit().is_concurrent() {
            // The bucket was just recreated as another type: the next attempt sees the new one.
            self.refuse_all();
            return Ok(Step::Served);
        }
        let now = self.inner.time().await?;
        self.serve_without_write(&reading.bucket, now);
        // After the time, which may be a request: what is planned from here on is sent at once.
        let policy = self.inner.config.on_unavailable;
        if let Some(held) = hold::refusal(&self.inner.store, policy, &self.entry.dimension) {
            self.set_back(&Setback::Refused(held));
            return Ok(Step::Served);
        }
        let sent = match self.plan(&reading, now, has_read) {
            Ok(None) => return Ok(Step::Served),
            Ok(Some(sent)) if has_read || !self.looks_first(&sent, &reading, now) => sent,
            Ok(Some(sent)) => return self.read(&sent.from).await,
            Err(Unread) => return self.read(&TakenFrom::Own).await,
        };
        // If the write is applied a second time after a lost reply, it takes the tokens twice. That is
        // against these callers, and the tokens refill.
        let written = self.inner.store.update(&sent.planned.update, Resend::Always).await?;
        self.has_seen_row = true;
        match written {
            Written::Applied(row) => self.granted(&row, &sent).map(|()| Step::Served),
            Written::ConditionFailed(Some(row)) => {
                let bucket = apply_read(self.inner, self.entry, &row)?;
                self.learn(&sent, &reading.bucket, &bucket, now);
                Ok(Step::Overtaken)
            }
            Written::ConditionFailed(None) => Err(unknown(self.inner, self.entry)),
        }
    }

    fn set_back(&mut self, setback: &Setback) {
        for waiter in std::mem::take(&mut self.waiters) {
            match setback.is_waited_out(waiter.ask.terms.queue_patience(self.inner.config.on_unavailable)) {
                true => stay(&mut self.waiting, waiter, setback),
                false => waiter.answer(setback.clone().answer()),
            }
        }
    }
}

impl TokenBatch<'_> {
    /// Reads the row before a write that takes from this line.
    async fn read(&mut self, from: &TakenFrom) -> Result<Step, AcquireError> {
        self.has_seen_row = true;
        let read = refresh(self.inner, self.entry).await?;
        self.was_read(from, &read.bucket, self.inner.now());
        Ok(Step::Read)
    }

    /// Serves callers from stock, and with starts that other callers left.
    fn serve_without_write(&mut self, bucket: &Bucket, now: Timestamp) {
        let has_abandoned = self.entry.has_abandoned();
        if !has_abandoned && self.entry.stock.is_none() && self.unclaimed_grants.is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut self.waiters);
        for waiter in waiters {
            // Nobody is served before an earlier caller that is not.
            if !self.waiters.is_empty() {
                self.waiters.push(waiter);
                continue;
            }
            // What a caller that came before left.
            let fits = |unclaimed: &UnclaimedGrant| waiter.ask.would_take(unclaimed);
            if let Some(at) = self.unclaimed_grants.iter().position(fits) {
                let unclaimed = self.unclaimed_grants.swap_remove(at).renewed(now);
                waiter.answer(Ok(Taken::Granted(unclaimed)));
                continue;
            }
            let from_stock =
                self.entry.stock.as_ref().and_then(|stock| stock.take(Some(waiter.ask.cost), now));
            let part = match from_stock {
                Some(receipt) => Some(Part::from_stock(Arc::clone(self.entry), receipt, now)),
                None => take_over(self.entry, bucket, waiter.ask.claim(), now),
            };
            match part {
                Some(part) => self.grant(waiter, part, now, Duration::ZERO),
                None => self.waiters.push(waiter),
            }
        }
    }

    /// Plans the write for all callers that fit. If nobody fits, and the reading is of this round or young
    /// enough to refuse, answers all callers of the plan.
    fn plan(
        &mut self,
        reading: &BucketReading,
        now: Timestamp,
        has_read: bool,
    ) -> Result<Option<SentWrite>, Unread> {
        let claim = |waiter: &TokenWaiter| self.claim(waiter, &reading.bucket);
        let (claims, left_to_others): (Vec<Claim>, Vec<Duration>) =
            self.waiters.iter().take(MOST_AT_ONCE).map(claim).unzip();
        let Some(first) = claims.first() else { return Ok(None) };
        if let Some(sent) = self.plan_with_shares(reading, &claims, now) {
            return Ok(Some(sent));
        }
        if let Some(answers) = self.refused_from_memory(reading, &claims, &left_to_others, now) {
            self.refuse(answers, left_to_others);
            return Ok(None);
        }
        let planner = self.planner(&reading.bucket, now);
        let asked = claims.iter().fold(Amount::ZERO, |sum, claim| sum.plus(claim.cost.amount()));
        let measure = || self.entry.stock.as_ref().map(|stock| stock.next_lot(&reading.bucket, asked, now));
        self.lot = self.lot.or_else(measure);
        let batch = planner.plan_batch(&claims, now, Starts::InReply, self.lot.unwrap_or_default());
        let repairs_alone = batch.total == Amount::ZERO;
        if batch.write.is_some() && !(repairs_alone && self.has_tried_repair) {
            self.has_tried_repair |= repairs_alone;
            return Ok(write_of(batch, TakenFrom::Own, now));
        }
        if !has_read && !reading.may_refuse(now) {
            if matches!(batch.answers[0], Plan::NeverSatisfiable { .. }) {
                return Err(Unread);
            }
            // If there is more than the reading says, the head of the queue gets it. If not, the reply shows
            // the row.
            let planned = planner.probe(Take { cost: first.cost, now, patience: first.patience });
            let (total, prefetched, began) = (first.cost.amount(), Amount::ZERO, Instant::now());
            let (sums_to_callers, from) = (vec![Some(total)], TakenFrom::Own);
            return Ok(Some(SentWrite { planned, from, sums_to_callers, total, prefetched, now, began }));
        }
        self.refuse(batch.answers, left_to_others);
        Ok(None)
    }

    fn planner<'b>(&self, bucket: &'b Bucket, now: Timestamp) -> RatePlanner<'b> {
        let planner = self.inner.planner(bucket, now).with_headroom(self.entry.headroom(now));
        planner.expecting_spent(self.expects_spent(bucket))
    }

    /// Answers the first callers, none of whom is granted.
    fn refuse(&mut self, answers: Vec<Plan<Amount>>, left_to_others: Vec<Duration>) {
        let later = self.waiters.split_off(answers.len());
        let refused = std::mem::replace(&mut self.waiters, later).into_iter().zip(left_to_others);
        for ((waiter, left_to_others), answer) in refused.zip(answers) {
            let answer = self.refusal_answer(answer, &waiter.ask, left_to_others);
            waiter.answer(answer);
        }
    }

    fn refusal_answer(&self, answer: Plan<Amount>, ask: &TokenAsk, left_to_others: Duration) -> LaneAnswer {
        let (dimension, cost) = (&self.entry.dimension, ask.cost);
        match answer {
            Plan::NeverSatisfiable { capacity } => {
                let share = self.entry.line();
                Err(AcquireError::NeverSatisfiable { dimension: dimension.clone(), cost, capacity, share })
            }
            Plan::Refuse(refusal) => {
                let refusal = last_start::refused(refusal, ask.terms.patience(), left_to_others);
                Ok(Taken::Refused(refused(dimension, refusal)))
            }
            Plan::Write(_) => Ok(Taken::Refused(contended(dimension))),
        }
    }

    fn refuse_all(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            waiter.answer(Ok(Taken::Refused(contended(&self.entry.dimension))));
        }
    }
}

/// The reading says that the request can never be granted, but is too old to be believed.
struct Unread;

/// Returns a start that another caller of this process left, if it is no later than a start booked now.
fn take_over(entry: &Entry, bucket: &Bucket, claim: Claim, now: Timestamp) -> Option<Part> {
    let is_blocked = bucket.blocked_until().is_some_and(|until| until > now);
    let booked_now = bucket.reaches(claim.cost.amount())?;
    let latest = booked_now.min(now.after(claim.patience));
    if is_blocked { None } else { entry.take_over(claim.cost, now, latest) }
}
