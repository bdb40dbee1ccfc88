//! Prefetch: tokens that a process takes before anybody asks for them, so that most grants need no request.
//!
//! A *lot* is what one write took beyond its callers, and is used within a second. A lot that is used late
//! must not come on top of what has flowed back in the meantime: if the bucket was full at the take and is
//! full again at the use, a burst of both would pass the capacity. So at t only as much of a lot is usable as
//! would fit below the brim:
//!
//! `usable(t) = min(left, C - (t - A) * R - T)`, with A and T the anchor and the tokens as the lot's own
//! write left them.
//!
//! That keeps the bound of the bucket exact:
//!
//! - Others only lower the line by taking.
//! - If others move the anchor of a full bucket, the formula has reached zero long before.
//! - The lots of several processes add up: a process that took later left a lower T, by its own lot, so that
//!   all that is usable together still fits below the brim.
//!
//! `tests/model` checks it over all interleavings.

use alloc::sync::Arc;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::plan::batch::LEAST_CALLS;
use crate::plan::rate::RatePlanner;
use crate::plan::receipt::RateReceipt;
use crate::statement::Update;
use crate::timestamp::{Timestamp, whole_micros};

/// How long a lot may be used. A longer time saves writes. It also keeps tokens longer from processes that
/// need them, the longest after a crash.
pub const USE_BY: Duration = Duration::from_secs(1);

/// How long a lot should last at the recent demand: less than it may be used, so that little is left over.
const LOT_SPAN: Duration = Duration::from_millis(750);

/// Least time of a measurement: a batch within a millisecond says nothing about the next second.
const LEAST_MEASURED: Duration = Duration::from_millis(50);

/// Tokens that were taken and that nobody has asked for yet.
#[derive(Clone, Debug)]
pub struct Lot {
    after: Arc<Bucket>,
    left: Amount,
    taken_at: Timestamp,
    /// Until this instant nothing of what is left overflows. The instant is later if less is left by now.
    whole_until: Timestamp,
}

impl Lot {
    /// A lot of `amount`, taken at `now`, behind all callers of the write that left the row as `after`.
    #[must_use]
    pub fn new(after: Arc<Bucket>, amount: Amount, now: Timestamp) -> Self {
        let mut lot = Self { after, left: amount, taken_at: now, whole_until: now };
        lot.spill(now);
        lot
    }

    /// Takes `cost`, or the default cost, out of the lot. `None` if the lot does not have as much any more,
    /// or if there is no default cost.
    pub fn take(&mut self, cost: Option<Cost>, now: Timestamp) -> Option<RateReceipt> {
        let cost = cost.or_else(|| self.after.limit().default_cost())?;
        if !self.is_fresh(now) || self.after.cooling_down(now).is_some() {
            return None;
        }
        if now > self.whole_until {
            self.spill(now);
        }
        if self.left < cost.amount() {
            return None;
        }
        self.left = self.left.minus(cost.amount());
        // Others may have taken their tokens, and made their calls, between the take of the lot and its use.
        Some(RateReceipt::foreseen(Arc::clone(&self.after), self.left, cost))
    }

    /// Whether nothing is left of the lot.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left.micros() <= 0
    }

    /// Whether the rest may go back to the bucket as it is known: not under a later lot, nor to another line.
    #[must_use]
    pub fn may_go_back(&self, known: &Bucket) -> bool {
        known.lots() == self.after.lots() && known.anchor() == self.after.anchor()
    }

    /// The end of the time in which the lot may be used.
    #[must_use]
    pub fn use_by(&self) -> Timestamp {
        self.taken_at.after(USE_BY)
    }

    /// Whether the lot may no longer be used, or lies in the future of a clock that went back.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        !self.is_fresh(now)
    }

    /// The write that gives back what was not used, at the end of the lot. `None` if nothing is left. Also
    /// `None` long after the end, as after a freeze: by then the tokens have been missed, and refill.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let is_late = now > self.use_by().after(USE_BY) || now < self.taken_at;
        let left = Cost::new(self.left).ok().filter(|_| !is_late)?;
        RateReceipt::in_batch(Arc::clone(&self.after), Amount::ZERO, left).give_back(now)
    }

    /// Removes what has overflowed by `now`: it is gone for good.
    fn spill(&mut self, now: Timestamp) {
        let brim = RatePlanner::new(&self.after).brim(now);
        self.left = self.left.min(brim.minus(self.after.tokens())).max(Amount::ZERO);
        // When the bucket, with the lot in it, is full.
        let full = self.after.reaches(self.after.limit().capacity().minus(self.left));
        self.whole_until = full.map_or(now, |full| full.before(Duration::from_micros(1)));
    }

    /// Whether the lot may be used. By a clock that went back, the lot was taken in the future, and nothing
    /// is known of its age.
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.taken_at <= now && now.micros_since(self.taken_at) <= whole_micros(USE_BY)
    }
}

/// What the callers of one process take from a bucket, measured from write to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    since: Option<Timestamp>,
    granted: Amount,
    per_second: Amount,
}

impl Demand {
    /// Counts a grant.
    pub const fn granted(&mut self, cost: Cost) {
        self.granted = self.granted.plus(cost.amount());
    }

    /// What to take beyond the present callers, which ask for `asked`: what callers took recently, for the
    /// time that a lot should last. Ends the measurement and begins the next one. What flows back while the
    /// lot is used shrinks the lot, so that amount is taken as well: in a full bucket it would overflow.
    pub fn next_lot(&mut self, bucket: &Bucket, asked: Amount, now: Timestamp) -> Amount {
        let since = self.since.replace(now).unwrap_or(now);
        let elapsed = now.micros_since(since).max(whole_micros(LEAST_MEASURED));
        let lately = per_second(core::mem::take(&mut self.granted).plus(asked), elapsed);
        // Demand goes up at once, and down by halves.
        self.per_second = lately.max(Amount::from_micros(self.per_second.plus(lately).micros() / 2));
        let lasting = share_of_a_second(self.per_second, LOT_SPAN);
        let refill = bucket.limit().refill_rate().accrued_ceil(LOT_SPAN);
        let room = bucket.limit().capacity().minus(bucket.level(now)).plus(asked);
        let spilled = refill.minus(lasting).minus(room).max(Amount::ZERO);
        let call = bucket.limit().cost_per_call().amount().micros();
        match lasting.micros() / call {
            ..LEAST_CALLS => Amount::ZERO,
            calls => Amount::from_micros(calls.saturating_mul(call)).plus(spilled),
        }
    }
}

fn per_second(amount: Amount, elapsed_micros: i64) -> Amount {
    Amount::clamped(i128::from(amount.micros()) * 1_000_000 / i128::from(elapsed_micros.max(1)))
}

fn share_of_a_second(per_second: Amount, span: Duration) -> Amount {
    Amount::clamped(i128::from(per_second.micros()) * i128::from(whole_micros(span)) / 1_000_000)
}
