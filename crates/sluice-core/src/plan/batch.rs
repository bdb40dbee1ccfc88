//! Group commit: one write takes what several callers need from one rate bucket.
//!
//! The callers stand in a queue. Let S be the tokens of a caller and of all before it. The caller starts when
//! the line of the bucket reaches S. If this start is within the caller's patience, the caller is granted; if
//! not, the caller is passed over. One write takes the sum, on condition that each granted caller still
//! starts within its patience: `T >= S - x - patience * R` for every S.

use alloc::vec::Vec;

use crate::amount::{Amount, Cost};
use crate::line::Line;
use crate::plan::Plan;
use crate::plan::claim::{Claim, judge};
use crate::plan::rate::{Anchor, LotCount, Planned, RatePlanner};
use crate::timestamp::Timestamp;

/// Least number of calls for which a lot is worth taking.
pub(crate) const LEAST_CALLS: i64 = 3;

/// What a write promises about the starts that it books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Each start is within its caller's patience. The reply shows the row, and so the start.
    InReply,
    /// Each start is as this reading says: the condition fails if others spent in between. For writes whose
    /// reply does not show the row (transactions).
    Pinned,
}

/// The plan for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// The one write. If nobody is granted anything, it is `None`, or a repair of the anchor.
    pub write: Option<Planned>,
    /// The answers to the callers, in order. `Write` holds S, the tokens taken for the caller and for all
    /// before it. Shorter than the queue if a caller must be the first of a write: that caller and those
    /// behind it are for the next write.
    pub answers: Vec<Plan<Amount>>,
    /// What the write takes.
    pub total: Amount,
    /// The part of `total` that nobody has asked for yet.
    pub prefetched: Amount,
}

/// A batch under construction, for callers that also take from other buckets and are granted all or nothing.
#[derive(Clone, Debug)]
pub struct RateBatch<'a> {
    planner: RatePlanner<'a>,
    /// The line that the starts follow: the bucket's line, or the line through the capacity if the bucket is
    /// full.
    base: Line,
    now: Timestamp,
    starts: Starts,
    total: Amount,
    lowest: Amount,
    lot_count: LotCount,
    anchor: Anchor,
}

impl<'a> RatePlanner<'a> {
    /// The write for as many of `claims` as fit, in their order. The write takes up to `prefetch` more, as
    /// long as the bucket stays half full: below that, every token is for callers that need it now. A
    /// borrower takes no more.
    #[must_use]
    pub fn plan_batch(self, claims: &[Claim], now: Timestamp, starts: Starts, prefetch: Amount) -> BatchPlan {
        let mut batch = self.batch(now, starts);
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            if batch.is_closed_to(*claim) {
                break;
            }
            let answer = batch.judge(*claim);
            if let Plan::Write(upto) = answer {
                batch.take(*claim, upto);
            }
            answers.push(answer);
        }
        let prefetched = batch.prefetch(prefetch);
        BatchPlan {
            total: batch.total,
            write: batch.write().or_else(|| self.repair(now)),
            answers,
            prefetched,
        }
    }

    /// A batch without callers.
    #[must_use]
    pub fn batch(self, now: Timestamp, starts: Starts) -> RateBatch<'a> {
        let bucket = self.bucket();
        let base = match bucket.tokens() > self.brim(now) {
            // A full write does not move an anchor of the future.
            true => {
                Line::new(bucket.limit().capacity(), bucket.line().effect(now), bucket.limit().refill_rate())
            }
            false => self.line(now),
        };
        let lowest = Amount::from_micros(i64::MIN);
        let (lot_count, anchor) = (LotCount::Stays, Anchor::Stays);
        RateBatch { planner: self, base, now, starts, total: Amount::ZERO, lowest, lot_count, anchor }
    }
}

impl RateBatch<'_> {
    /// Whether `claim` must be the first of another write.
    ///
    /// A large call that may be booked moves the anchor, so that what was taken before it does not come back
    /// beside its start (`RateReceipt`). But tokens that the same write took for callers before it would come
    /// back.
    #[must_use]
    pub fn is_closed_to(&self, claim: Claim) -> bool {
        self.total > Amount::ZERO && self.planner.anchor_for(claim) == Anchor::Moves
    }

    /// Whether `claim` fits behind those that the batch has already. `Write` holds S.
    #[must_use]
    pub fn judge(&self, claim: Claim) -> Plan<Amount> {
        let upto = self.total.plus(claim.cost.amount());
        let answer =
            judge(self.planner.bucket(), self.base, claim, upto.plus(self.planner.floor()), self.now);
        let answer = if let Plan::Write(_) = answer { Plan::Write(upto) } else { answer };
        self.planner.with_next_repair(answer, self.now)
    }

    /// Takes the tokens up to `upto`, as [`judge`](Self::judge) returned for `claim`.
    pub fn take(&mut self, claim: Claim, upto: Amount) {
        let ahead = match self.starts {
            Starts::InReply => self.planner.flowing_in(self.now, claim.patience),
            Starts::Pinned => self.ahead(upto),
        };
        if self.planner.anchor_for(claim) == Anchor::Moves {
            self.anchor = Anchor::Moves;
        }
        self.total = upto;
        let upto = upto.plus(self.planner.floor());
        self.lowest = self.lowest.max(upto.minus(self.planner.accrued(self.now)).minus(ahead));
    }

    /// Takes up to `most` tokens that nobody has asked for yet, and returns how many.
    fn prefetch(&mut self, most: Amount) -> Amount {
        let limit = self.planner.bucket().limit();
        let half = limit.capacity().fraction(1, 2);
        let spare = self.base.at(self.now).minus(self.total).minus(half);
        let prefetched = worth_a_lot(most.min(spare), limit.cost_per_call());
        // The reading says full, but others most likely spent since: less than half may be there.
        let is_guess = self.planner.expects_spent_of_full(self.now);
        let takes_none = is_guess || !self.planner.takes_lots();
        if self.total == Amount::ZERO || prefetched == Amount::ZERO || takes_none {
            return Amount::ZERO;
        }
        self.lot_count = LotCount::Rises;
        self.total = self.total.plus(prefetched);
        self.lowest = self.lowest.max(self.total.minus(self.planner.accrued(self.now)));
        prefetched
    }

    /// What the batch takes.
    #[must_use]
    pub const fn total(&self) -> Amount {
        self.total
    }

    /// The write, if the batch takes anything.
    #[must_use]
    pub fn write(self) -> Option<Planned> {
        (self.total > Amount::ZERO)
            .then(|| self.planner.write(self.now, self.total, self.lowest, self.lot_count, self.anchor))
    }

    /// What flows in between now and the start of the caller whose tokens end at `upto`.
    fn ahead(&self, upto: Amount) -> Amount {
        let start = self.base.reaches(upto).unwrap_or(Timestamp::from_micros(i64::MAX)).max(self.now);
        let line = self.planner.line(self.now);
        line.accrued_floor(start).minus(line.accrued_floor(self.now))
    }
}

/// `amount` in whole calls; zero if these are fewer than `LEAST_CALLS`.
fn worth_a_lot(amount: Amount, call: Cost) -> Amount {
    let call = call.amount().micros();
    match amount.micros() / call {
        ..LEAST_CALLS => Amount::ZERO,
        calls => Amount::from_micros(calls * call),
    }
}
