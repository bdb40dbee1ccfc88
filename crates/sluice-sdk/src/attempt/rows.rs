//! The lane of a set of dimensions with lease rows: every bucket and every lease of all who are in line changes in one
//! transaction, or none does.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Claim, Cost, Dimension, Lease, LeaseId, Plan, RateBatch, RatePlanner, RateReceipt, SlotPlanner,
    Starts, Timestamp, Update, Verdict, Write,
};
use tokio::time::Instant;

use super::fresh::Via;
use super::{
    Answer, Fresh, Taken, Terms, Want, contended, known, longest, refresh, refused, saw, stopped, try_again, unknown,
};
use crate::acquire::AcquireError;
use crate::cache::{Entry, Reading};
use crate::client::Inner;
use crate::config::Leases;
use crate::grant::{Part, Parts};
use crate::lane::{Lane, NoAnswer, Seat, Service, Turn};
use crate::outcome::RetryIn;
use crate::retry::Poll;
use crate::store::{Cancelled, StoreError, Transacted, Transaction};

pub(crate) type RowLane = Lane<RowAsk, Answer>;
type RowTurn = Turn<RowAsk, Answer>;

/// DynamoDB takes 100 actions in a transaction: one for each bucket, and one for each lease.
const MOST_ACTIONS: usize = 100;

/// What one caller wants of each dimension of the set, in their order.
#[derive(Clone, Debug)]
pub(crate) struct RowAsk {
    costs: Vec<Cost>,
    /// The same in every try: a lease under one of them can only be its own.
    ids: Vec<LeaseId>,
    terms: Terms,
}

impl RowAsk {
    /// Whether it may have what another caller left: as much, for as long, and not later.
    pub(crate) fn would_take(&self, fresh: &Fresh) -> bool {
        let now = fresh.now();
        let (until, latest) = (now.after(self.terms.lease.length()), now.after(self.terms.patience()));
        let fits = |(part, cost): (&Part, &Cost)| {
            part.cost == *cost && part.start_at <= latest && part.lease_ends().is_none_or(|ends| ends >= until)
        };
        fresh.parts().len() == self.costs.len() && fresh.parts().iter().zip(&self.costs).all(fits)
    }
}

/// Takes the costs of all `wants` through the lane of their set, waiting in line for slots where `terms` allow.
pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> Answer {
    let entries: Vec<_> = wants.iter().map(|want| Arc::clone(&want.entry)).collect();
    let lane = inner.cache.row_lane(&entries);
    let ask = RowAsk {
        costs: wants.iter().map(|want| want.cost).collect(),
        ids: wants.iter().map(|_| inner.config.lease_ids.next()).collect(),
        terms,
    };
    loop {
        if let Some(retry) = lane.blocked().filter(|retry| !terms.waits_for(retry)) {
            return Ok(Taken::Refused(retry));
        }
        let service =
            |seat| -> Service { Box::pin(serve(Arc::clone(inner), entries.clone(), Arc::clone(&lane), seat)) };
        let ticket = lane.join(ask.clone(), service);
        match ticket.answer().await {
            Ok(answer) => return answer,
            Err(NoAnswer::NotServed) => {}
            Err(NoAnswer::Lost) => return Err(stopped("TransactWriteItems").into()),
        }
    }
}

async fn serve(inner: Arc<Inner>, entries: Vec<Arc<Entry>>, lane: Arc<RowLane>, mut seat: Seat<RowAsk, Answer>) {
    let mut poll = Poll::default();
    let most = (MOST_ACTIONS - entries.len()) / entries.len();
    while let Some(turns) = seat.next(most).await {
        let served = turns.len();
        let batch = Batch { inner: &inner, entries: &entries, lane: &lane, turns, waiting: None, orphans: Vec::new() };
        let (waiting, orphans) = batch.serve().await;
        let Some((waiting, why)) = waiting else {
            poll = Poll::default();
            seat.batch_is_over();
            // To those in line, if they ask for just that, or back to the buckets.
            drop(orphans);
            continue;
        };
        drop(orphans);
        if waiting.len() < served {
            poll = Poll::default();
        }
        let pause = poll.next(&why);
        seat.pause(waiting, why, pause).await;
        entries.iter().for_each(|entry| entry.doubt());
    }
}

/// The callers of one transaction, in order.
struct Batch<'a> {
    inner: &'a Arc<Inner>,
    entries: &'a [Arc<Entry>],
    lane: &'a Arc<RowLane>,
    turns: Vec<RowTurn>,
    /// Those who would rather wait than be refused, and what for.
    waiting: Option<(Vec<RowTurn>, RetryIn)>,
    /// What was granted to callers who had gone away.
    orphans: Vec<Fresh>,
}

/// Those who wait, if any, and what nobody took.
type Served = (Option<(Vec<RowTurn>, RetryIn)>, Vec<Fresh>);

/// What a transaction takes from one bucket.
enum Share<'a> {
    Slots { bucket: &'a Arc<Bucket>, total: Amount },
    Tokens(Box<RateBatch<'a>>),
}

/// A caller that the transaction takes for: its place in the batch, and in each bucket the sum up to and with its own.
struct Place {
    turn: usize,
    upto: Vec<Amount>,
    leases: Vec<Option<Lease>>,
}

/// A transaction, and what it leaves.
struct Sent {
    /// Each bucket as it will be; for slots, as it was read.
    after: Vec<Arc<Bucket>>,
    totals: Vec<Amount>,
    updates: Vec<Update>,
    served: Vec<Place>,
    now: Timestamp,
}

impl Batch<'_> {
    /// Plans and writes until each caller has its answer, or waits.
    async fn serve(mut self) -> Served {
        let mut tries = 0;
        while !self.turns.is_empty() {
            let readings = match self.readings().await {
                Ok(readings) => readings,
                Err(error) => return self.fail(&error),
            };
            let now = self.inner.now();
            let sent = match self.plan(&readings, now) {
                Some(sent) => sent,
                None if readings.iter().all(|reading| reading.may_refuse(now)) => {
                    self.answer_refused(&readings, now);
                    break;
                }
                None => {
                    // A read costs an eighth of a transaction that fails.
                    for entry in self.entries {
                        if let Err(error) = refresh(self.inner, entry).await {
                            return self.fail(&error);
                        }
                    }
                    continue;
                }
            };
            let began = Instant::now();
            match self.inner.store.transact(&Transaction::new(&sent.writes())).await {
                Ok(Transacted::Committed) => {
                    self.granted(&sent, began.elapsed());
                    continue;
                }
                Ok(Transacted::Cancelled(reasons)) => match self.learn(&sent, &reasons, began.elapsed()) {
                    Ok(Learnt::Conflict) => tries = tries.max(super::PLANS_AT_ONCE - 1),
                    Ok(Learnt::Rows) => {}
                    Ok(Learnt::WasApplied) => continue,
                    Err(error) => return self.fail(&error),
                },
                Err(error) => return self.fail(&error.into()),
            }
            tries += 1;
            if !try_again(self.inner, tries, &self.entries[0].dimension).await {
                for turn in std::mem::take(&mut self.turns) {
                    self.refuse(turn, contended(&self.entries[0].dimension));
                }
            }
        }
        (self.waiting, self.orphans)
    }

    async fn readings(&self) -> Result<Vec<Reading>, AcquireError> {
        let mut readings = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            let mut reading = known(self.inner, entry).await?;
            if reading.is_unread(self.inner.now()) {
                reading = refresh(self.inner, entry).await?;
            }
            readings.push(reading);
        }
        Ok(readings)
    }

    /// The transaction for all who fit, and nobody past one who waits; `None` where nobody fits.
    fn plan(&self, readings: &[Reading], now: Timestamp) -> Option<Sent> {
        let mut shares: Vec<Share<'_>> = readings.iter().map(|reading| Share::new(&reading.bucket, now)).collect();
        let mut served = Vec::new();
        for (at, turn) in self.turns.iter().enumerate() {
            match judge(&shares, &turn.ask, now) {
                Ok(upto) => {
                    for ((share, upto), cost) in shares.iter_mut().zip(&upto).zip(&turn.ask.costs) {
                        share.take(*cost, turn.ask.terms.patience(), *upto);
                    }
                    let leases = self.leases(readings, &turn.ask, now);
                    served.push(Place { turn: at, upto, leases });
                }
                Err(no) => {
                    let retry = self.retry(&no);
                    if retry.is_some_and(|retry| turn.ask.terms.waits_for(&retry)) {
                        break;
                    }
                }
            }
        }
        if served.is_empty() {
            return None;
        }
        let totals = shares.iter().map(Share::total).collect();
        let (updates, after) =
            shares.into_iter().map(|share| share.write(now)).collect::<Option<(Vec<_>, Vec<_>)>>()?;
        Some(Sent { after, totals, updates, served, now })
    }

    fn leases(&self, readings: &[Reading], ask: &RowAsk, now: Timestamp) -> Vec<Option<Lease>> {
        let ends = now.after(ask.terms.lease.length());
        let caller = &self.inner.config.caller;
        let parts = readings.iter().zip(self.entries).zip(ask.costs.iter().zip(&ask.ids));
        let lease = |((reading, entry), (cost, id)): ((&Reading, &Arc<Entry>), (&Cost, &LeaseId))| {
            let has_lease = reading.bucket.limit().is_concurrent() || self.inner.config.leases == Leases::All;
            has_lease.then(|| Lease::new(entry.dimension.clone(), id, *cost, now, ends, caller))
        };
        parts.map(lease).collect()
    }

    /// Why nobody was granted anything, by readings that may be believed.
    fn answer_refused(&mut self, readings: &[Reading], now: Timestamp) {
        let shares: Vec<Share<'_>> = readings.iter().map(|reading| Share::new(&reading.bucket, now)).collect();
        for turn in std::mem::take(&mut self.turns) {
            match judge(&shares, &turn.ask, now) {
                Err(no) => match self.never(&no, &turn.ask) {
                    Some(error) => turn.answer(Err(error)),
                    None => {
                        let retry = self.retry(&no).unwrap_or_else(|| contended(&self.entries[0].dimension));
                        self.refuse(turn, retry);
                    }
                },
                // It would fit, and stands behind one who waits.
                Ok(_) => {
                    let why = self.waiting.as_ref().map(|(_, why)| why.clone());
                    self.refuse(turn, why.unwrap_or_else(|| contended(&self.entries[0].dimension)));
                }
            }
        }
    }

    /// The longest wait, and who causes it.
    fn retry(&self, no: &[Plan<Amount>]) -> Option<RetryIn> {
        longest(self.entries.iter().zip(no).filter_map(|(entry, no)| match no {
            Plan::Refuse(refusal) => Some(refused(&entry.dimension, *refusal)),
            _ => None,
        }))
    }

    fn never(&self, no: &[Plan<Amount>], ask: &RowAsk) -> Option<AcquireError> {
        self.entries.iter().zip(no).zip(&ask.costs).find_map(|((entry, no), cost)| match no {
            Plan::NeverSatisfiable { capacity } => {
                let (dimension, cost, capacity) = (entry.dimension.clone(), *cost, *capacity);
                Some(AcquireError::NeverSatisfiable { dimension, cost, capacity })
            }
            _ => None,
        })
    }

    fn refuse(&mut self, turn: RowTurn, retry: RetryIn) {
        if turn.ask.terms.waits_for(&retry) {
            self.waiting.get_or_insert_with(|| (Vec::new(), retry)).0.push(turn);
        } else {
            turn.answer(Ok(Taken::Refused(retry)));
        }
    }

    /// Hands out what the transaction took. Who was passed over stays.
    fn granted(&mut self, sent: &Sent, took: Duration) {
        let now = self.inner.now();
        for ((entry, after), total) in self.entries.iter().zip(&sent.after).zip(&sent.totals) {
            match (after.limit().is_concurrent(), Cost::new(*total)) {
                (true, Ok(total)) => entry.slots_taken(total),
                (true, Err(_)) => {}
                (false, _) => entry.predicted(Arc::clone(after), now),
            }
        }
        let everyone = 0..sent.served.len();
        self.hand_out(sent, &everyone.collect::<Vec<_>>(), took);
    }

    /// Answers those callers of `sent` that are named.
    fn hand_out(&mut self, sent: &Sent, which: &[usize], took: Duration) {
        let mut turns: Vec<Option<RowTurn>> = std::mem::take(&mut self.turns).into_iter().map(Some).collect();
        for served in which.iter().map(|at| &sent.served[*at]) {
            let Some(turn) = turns[served.turn].take() else { continue };
            let parts: Parts = self.parts(sent, served, &turn.ask).collect();
            let lane = Via::Rows(Arc::clone(self.lane));
            let fresh = Fresh::new(Arc::clone(self.inner), parts, sent.now, took, Some(lane));
            match turn.is_left() {
                true => self.orphans.push(fresh),
                false => turn.answer(Ok(Taken::Granted(fresh))),
            }
        }
        self.turns = turns.into_iter().flatten().collect();
    }

    fn parts(&self, sent: &Sent, served: &Place, ask: &RowAsk) -> impl Iterator<Item = Part> {
        (0..self.entries.len()).map(|at| {
            let (entry, cost, after) = (&self.entries[at], ask.costs[at], Arc::clone(&sent.after[at]));
            match (&served.leases[at], after.limit().is_concurrent()) {
                (Some(lease), true) => Part::slots(entry, cost, after, lease.clone()),
                (lease, _) => {
                    let behind = sent.totals[at].minus(served.upto[at]);
                    Part::tokens(entry, cost, RateReceipt::in_batch(after, behind, cost), sent.now, lease.clone())
                }
            }
        })
    }

    /// Takes in what the reasons of a cancellation say. A lease that is there under an id of our own can only stem from a try
    /// whose reply was lost: that one was applied, and whoever has such a lease is granted.
    fn learn(&mut self, sent: &Sent, reasons: &[Cancelled], took: Duration) -> Result<Learnt, AcquireError> {
        if let Some(permanent) = reasons.iter().find(|cancelled| cancelled.reason.verdict == Verdict::Permanent) {
            return Err(AcquireError::Store(StoreError::Rejected {
                operation: "TransactWriteItems",
                table: self.inner.store.table().to_owned(),
                message: permanent.reason.message.clone(),
            }));
        }
        let failed = |cancelled: &Cancelled| cancelled.reason.verdict == Verdict::ConditionFailed;
        let (buckets, mut leases) = reasons.split_at(self.entries.len().min(reasons.len()));
        let mut theirs = Vec::new();
        for (at, served) in sent.served.iter().enumerate() {
            let (own, rest) = leases.split_at(served.leases.iter().flatten().count().min(leases.len()));
            leases = rest;
            if own.iter().any(failed) {
                theirs.push(at);
            }
        }
        if !theirs.is_empty() {
            self.hand_out(sent, &theirs, took);
            // What the buckets are now is for the next plan to read.
            self.entries.iter().for_each(|entry| entry.doubt());
            return Ok(Learnt::WasApplied);
        }
        for (entry, cancelled) in self.entries.iter().zip(buckets).filter(|(_, cancelled)| failed(cancelled)) {
            match &cancelled.row {
                Some(row) => saw(self.inner, entry, row)?,
                None => return Err(unknown(self.inner, entry)),
            };
        }
        let transient = reasons.iter().any(|cancelled| cancelled.reason.verdict.is_transient());
        Ok(if transient { Learnt::Conflict } else { Learnt::Rows })
    }

    fn fail(self, error: &AcquireError) -> Served {
        for turn in self.turns {
            turn.answer(Err(error.clone()));
        }
        (self.waiting, self.orphans)
    }
}

/// What a cancellation says.
enum Learnt {
    /// Other writers were at the same items.
    Conflict,
    /// The buckets as they are now.
    Rows,
    /// An earlier try was applied.
    WasApplied,
}

impl<'a> Share<'a> {
    fn new(bucket: &'a Arc<Bucket>, now: Timestamp) -> Self {
        match bucket.limit().is_concurrent() {
            true => Self::Slots { bucket, total: Amount::ZERO },
            false => Self::Tokens(Box::new(RatePlanner::new(bucket).batch(now, Starts::Pinned))),
        }
    }

    fn judge(&self, cost: Cost, patience: Duration, now: Timestamp) -> Plan<Amount> {
        match self {
            Self::Slots { bucket, total } => SlotPlanner::new(bucket).judge(cost, *total, now),
            Self::Tokens(batch) => batch.judge(Claim { cost, patience }),
        }
    }

    fn take(&mut self, cost: Cost, patience: Duration, upto: Amount) {
        match self {
            Self::Slots { total, .. } => *total = upto,
            Self::Tokens(batch) => batch.take(Claim { cost, patience }, upto),
        }
    }

    const fn total(&self) -> Amount {
        match self {
            Self::Slots { total, .. } => *total,
            Self::Tokens(batch) => batch.total(),
        }
    }

    fn write(self, now: Timestamp) -> Option<(Update, Arc<Bucket>)> {
        match self {
            Self::Slots { bucket, total } => Some((SlotPlanner::new(bucket).write(total, now), Arc::clone(bucket))),
            Self::Tokens(batch) => batch.write().map(|planned| (planned.update, Arc::new(planned.after))),
        }
    }
}

/// The sums up to and with this caller, or what each bucket says where one of them refuses.
fn judge(shares: &[Share<'_>], ask: &RowAsk, now: Timestamp) -> Result<Vec<Amount>, Vec<Plan<Amount>>> {
    let patience = ask.terms.patience();
    let plans: Vec<_> = shares.iter().zip(&ask.costs).map(|(share, cost)| share.judge(*cost, patience, now)).collect();
    let upto = |plan: &Plan<Amount>| if let Plan::Write(upto) = plan { Some(*upto) } else { None };
    plans.iter().map(upto).collect::<Option<Vec<_>>>().ok_or(plans)
}

impl Sent {
    /// The buckets in their order, then the leases of each caller.
    fn writes(&self) -> Vec<Write> {
        let updates = self.updates.iter().map(|update| Write::Update(update.clone()));
        let leases = self.served.iter().flat_map(|served| served.leases.iter().flatten());
        updates.chain(leases.map(|lease| Write::Put(lease.put()))).collect()
    }
}

/// Names a set of dimensions.
pub(crate) fn name(entries: &[Arc<Entry>]) -> Vec<Dimension> {
    entries.iter().map(|entry| entry.dimension.clone()).collect()
}
