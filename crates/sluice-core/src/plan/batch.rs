//! Group commit: what several callers take from one rate bucket, in one write.
//!
//! The callers stand in line. With S the tokens of a caller and of all before it, its start is when the line of the bucket
//! reaches S; it is granted where that is within its patience, and passed over where it is not. One write takes the sum, on
//! condition that each of them still starts within its patience: `T >= S - x - patience * R` for every S.

use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::plan::rate::{Planned, RatePlanner, span_micros};
use crate::plan::{NEVER, Plan, Reason, Refusal};
use crate::timestamp::Timestamp;

/// One caller of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Tokens.
    pub cost: Cost,
    /// How far ahead it is willing to book a start; zero takes nothing that is not there yet.
    pub patience: Duration,
}

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
    /// The one write; `None` where nobody is granted anything.
    pub write: Option<Planned>,
    /// For each caller in order; `Write` holds S, the tokens taken for it and for all before it.
    pub answers: Vec<Plan<Amount>>,
    /// What the write takes.
    pub total: Amount,
    /// Of that, what nobody asked for yet.
    pub prefetched: Amount,
}

impl RatePlanner<'_> {
    /// The write for as many of `claims` as fit, in their order. It takes up to `prefetch` more, as long as the bucket stays half
    /// full: below that, every token is for those who need it now.
    #[must_use]
    pub fn plan_batch(self, claims: &[Claim], now: Timestamp, starts: Starts, prefetch: Amount) -> Batch {
        let base = self.base(now);
        let mut batch = Batch {
            write: None,
            answers: Vec::with_capacity(claims.len()),
            total: Amount::ZERO,
            prefetched: Amount::ZERO,
        };
        let mut lowest = Amount::from_micros(i64::MIN);
        for claim in claims {
            let upto = batch.total.plus(claim.cost.amount());
            let answer = judge(&base, *claim, upto, now);
            if let Plan::Write(upto) = answer {
                let ahead = match starts {
                    Starts::InReply => base.limit().refill_rate().accrued_floor(span_micros(claim.patience)),
                    Starts::Pinned => self.ahead(&base, upto, now),
                };
                batch.total = upto;
                lowest = lowest.max(upto.minus(self.accrued(now)).minus(ahead));
            }
            batch.answers.push(answer);
        }
        if batch.total > Amount::ZERO {
            let half = base.limit().capacity().fraction(1, 2);
            let spare = base.line(now).minus(batch.total).minus(half);
            batch.prefetched = prefetch.min(spare).max(Amount::ZERO);
            batch.total = batch.total.plus(batch.prefetched);
            if batch.prefetched > Amount::ZERO {
                lowest = lowest.max(batch.total.minus(self.accrued(now)));
            }
            batch.write = Some(self.write(now, batch.total, lowest));
        }
        batch
    }

    /// The line that the starts follow: the bucket's, or the one through the capacity where it is full.
    fn base(self, now: Timestamp) -> Bucket {
        let bucket = self.bucket();
        match bucket.tokens() > self.brim(now) {
            true => bucket.moved(bucket.limit().capacity(), now.max(bucket.anchor())),
            false => bucket.clone(),
        }
    }

    /// What flows in between `now` and the start of the caller that ends at `upto`.
    fn ahead(self, base: &Bucket, upto: Amount, now: Timestamp) -> Amount {
        let (rate, anchor) = (base.limit().refill_rate(), self.bucket().anchor());
        let start = base.reaches(upto).unwrap_or(Timestamp::from_micros(i64::MAX)).max(now);
        rate.accrued_floor(start.micros_since(anchor)).minus(self.accrued(now))
    }
}

/// Whether the tokens up to `upto`, of which `claim` is the last, are there within its patience.
pub(super) fn judge(base: &Bucket, claim: Claim, upto: Amount, now: Timestamp) -> Plan<Amount> {
    let capacity = base.limit().capacity();
    if claim.cost.amount() > capacity {
        return Plan::NeverSatisfiable { capacity };
    }
    if let Some(wait) = base.cooling_down(now) {
        return Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown });
    }
    let wait = base.reaches(upto).map_or(NEVER, |at| at.since(now));
    if wait > claim.patience {
        return Plan::Refuse(Refusal { wait, reason: Reason::Exhausted });
    }
    Plan::Write(upto)
}
