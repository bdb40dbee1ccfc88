//! Group commit: what several callers take from one rate bucket, in one write.
//!
//! The callers stand in line. With S the tokens of a caller and of all before it, its start is when the line of the bucket
//! reaches S; it is granted where that is within its patience, and passed over where it is not. One write takes the sum, on
//! condition that each of them still starts within its patience: `T >= S - x - patience * R` for every S.

use alloc::vec::Vec;

use crate::amount::{Amount, Cost};
use crate::line::Line;
use crate::plan::Plan;
use crate::plan::claim::{Claim, judge};
use crate::plan::rate::{Anchor, Lot, Planned, RatePlanner};
use crate::timestamp::Timestamp;

/// Fewer calls are not worth a lot.
pub(crate) const LEAST_CALLS: i64 = 3;

/// What a write promises of the starts that it books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Each within its caller's patience; the reply shows the row, and so the start.
    InReply,
    /// Each as this reading says: the condition fails where others spent in between. For writes whose reply does not show the
    /// row (transactions).
    Pinned,
}

/// The plan for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The one write. Where nobody is granted anything it is `None`, but for a repair of the anchor.
    pub write: Option<Planned>,
    /// For each caller in order; `Write` holds S, the tokens taken for it and for all before it. Shorter than the line if a caller has
    /// to be the first of a write: it and those behind it are for the next one.
    pub answers: Vec<Plan<Amount>>,
    /// What the write takes.
    pub total: Amount,
    /// Of that, what nobody asked for yet.
    pub prefetched: Amount,
}

/// A batch in the making, for callers who take from other buckets too, and are granted all or nothing.
#[derive(Clone, Debug)]
pub struct RateBatch<'a> {
    planner: RatePlanner<'a>,
    /// The line that the starts follow: the bucket's, or the one through the capacity where it is full.
    base: Line,
    now: Timestamp,
    starts: Starts,
    total: Amount,
    lowest: Amount,
    lot: Lot,
    anchor: Anchor,
}

impl<'a> RatePlanner<'a> {
    /// The write for as many of `claims` as fit, in their order. It takes up to `prefetch` more, as long as the bucket stays half
    /// full: below that, every token is for those who need it now.
    #[must_use]
    pub fn plan_batch(self, claims: &[Claim], now: Timestamp, starts: Starts, prefetch: Amount) -> Batch {
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
        Batch { total: batch.total, write: batch.write().or_else(|| self.repair(now)), answers, prefetched }
    }

    /// A batch without callers.
    #[must_use]
    pub fn batch(self, now: Timestamp, starts: Starts) -> RateBatch<'a> {
        let bucket = self.bucket();
        let base = match bucket.tokens() > self.brim(now) {
            // A full write leaves an anchor of the future where it is.
            true => Line::new(bucket.limit().capacity(), bucket.line().effect(now), bucket.limit().refill_rate()),
            false => self.line(now),
        };
        let lowest = Amount::from_micros(i64::MIN);
        let (lot, anchor) = (Lot::Without, Anchor::Stays);
        RateBatch { planner: self, base, now, starts, total: Amount::ZERO, lowest, lot, anchor }
    }
}

impl RateBatch<'_> {
    /// Whether `claim` has to be the first of another write. A large call that may be booked moves the anchor, so that what was taken before
    /// it does not come back beside its start (`RateReceipt`). What the same write took for others before it would.
    #[must_use]
    pub fn is_closed_to(&self, claim: Claim) -> bool {
        self.total > Amount::ZERO && self.planner.anchor_for(claim) == Anchor::Moves
    }

    /// Whether `claim` fits behind those that it has; `Write` holds S.
    #[must_use]
    pub fn judge(&self, claim: Claim) -> Plan<Amount> {
        let upto = self.total.plus(claim.cost.amount());
        self.planner.with_next_repair(judge(self.planner.bucket(), self.base, claim, upto, self.now), self.now)
    }

    /// Takes the tokens up to `upto`, as [`judge`](Self::judge) said of `claim`.
    pub fn take(&mut self, claim: Claim, upto: Amount) {
        let ahead = match self.starts {
            Starts::InReply => self.planner.flowing_in(self.now, claim.patience),
            Starts::Pinned => self.ahead(upto),
        };
        if self.planner.anchor_for(claim) == Anchor::Moves {
            self.anchor = Anchor::Moves;
        }
        self.total = upto;
        self.lowest = self.lowest.max(upto.minus(self.planner.accrued(self.now)).minus(ahead));
    }

    /// Takes up to `most` that nobody asked for, and says how much.
    fn prefetch(&mut self, most: Amount) -> Amount {
        let limit = self.planner.bucket().limit();
        let half = limit.capacity().fraction(1, 2);
        let spare = self.base.at(self.now).minus(self.total).minus(half);
        let prefetched = worth_a_lot(most.min(spare), limit.cost_per_call());
        if self.total == Amount::ZERO || prefetched == Amount::ZERO {
            return Amount::ZERO;
        }
        self.lot = Lot::With;
        self.total = self.total.plus(prefetched);
        self.lowest = self.lowest.max(self.total.minus(self.planner.accrued(self.now)));
        prefetched
    }

    /// What it takes.
    #[must_use]
    pub const fn total(&self) -> Amount {
        self.total
    }

    /// The write, where it takes anything.
    #[must_use]
    pub fn write(self) -> Option<Planned> {
        (self.total > Amount::ZERO)
            .then(|| self.planner.write(self.now, self.total, self.lowest, self.lot, self.anchor))
    }

    /// What flows in between now and the start of the caller that ends at `upto`.
    fn ahead(&self, upto: Amount) -> Amount {
        let start = self.base.reaches(upto).unwrap_or(Timestamp::from_micros(i64::MAX)).max(self.now);
        let line = self.planner.line(self.now);
        line.accrued_floor(start).minus(line.accrued_floor(self.now))
    }
}

/// Whole calls, and none where there are few.
fn worth_a_lot(amount: Amount, call: Cost) -> Amount {
    let call = call.amount().micros();
    match amount.micros() / call {
        ..LEAST_CALLS => Amount::ZERO,
        calls => Amount::from_micros(calls * call),
    }
}
