//! Prefetch: tokens that a process takes before they are asked for, so that most grants need no request.
//!
//! A *lot* is what one write took beyond its callers, and is used within a second. Used late, it must not come on top of what
//! has flowed back meanwhile: with a bucket full at the take and full again at the use, a burst of both would pass the
//! capacity. So of a lot only as much is there at t as would fit below the brim:
//!
//! `usable(t) = min(left, C - (t - A) * R - T)`, with A and T the anchor and the tokens as its own write left them.
//!
//! That keeps the bound of the bucket exact. Others only lower the line by taking; where they move the anchor of a full
//! bucket, the formula has long reached zero; and the lots of several processes add up: who took later left a lower T, by
//! its own lot, so that all that is usable together still fits below the brim. `tests/model` checks it over all interleavings.

use alloc::sync::Arc;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::plan::batch::LEAST_CALLS;
use crate::plan::rate::{RatePlanner, span_micros};
use crate::plan::receipt::RateReceipt;
use crate::statement::Update;
use crate::timestamp::Timestamp;

/// How long a lot may be used. Longer saves writes, and keeps tokens longer from processes that need them, the longest after a
/// crash.
pub const USE_BY: Duration = Duration::from_secs(1);

/// What a lot should last for, at the demand there was: less than it may be used, so that little is left over.
const LOT_SPAN: Duration = Duration::from_millis(750);

/// Demand is measured over as long at least: a batch that arrives within a millisecond says nothing of the next second.
const LEAST_MEASURED: Duration = Duration::from_millis(50);

/// Tokens that were taken and that nobody asked for yet.
#[derive(Clone, Debug)]
pub struct Lot {
    after: Arc<Bucket>,
    left: Amount,
    taken_at: Timestamp,
    /// Until then nothing of what is left runs over the brim. Less may be left by now, and more time be left for that.
    whole_until: Timestamp,
}

impl Lot {
    /// A lot of `amount`, taken at `now` by a write after which the row was `after`, behind all of its callers.
    #[must_use]
    pub fn new(after: Arc<Bucket>, amount: Amount, now: Timestamp) -> Self {
        let mut lot = Self { after, left: amount, taken_at: now, whole_until: now };
        lot.spill(now);
        lot
    }

    /// Takes `cost` out of it, or one call's worth where none is named; nothing where it has not as much any more.
    pub fn take(&mut self, cost: Option<Cost>, now: Timestamp) -> Option<RateReceipt> {
        let cost = cost.unwrap_or_else(|| self.after.limit().cost_per_call());
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
        // Others may have taken theirs, and called, between the lot and its use.
        Some(RateReceipt::foreseen(Arc::clone(&self.after), self.left, cost))
    }

    /// Whether nothing is left of it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left.micros() <= 0
    }

    /// Whether what is left may be given back to the bucket as it is known to be: not under a later lot, nor to another line.
    #[must_use]
    pub fn may_go_back(&self, known: &Bucket) -> bool {
        known.lots() == self.after.lots() && known.anchor() == self.after.anchor()
    }

    /// When it may be used no more.
    #[must_use]
    pub fn use_by(&self) -> Timestamp {
        self.taken_at.after(USE_BY)
    }

    /// Whether it may be used no more, or lies in the future of a clock that went back.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        !self.is_fresh(now)
    }

    /// The write that gives back what was not used, at its end. `None` where nothing is left, and long after the end, as after
    /// a freeze: the tokens have been missed by then, and refill.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let is_late = now > self.use_by().after(USE_BY) || now < self.taken_at;
        let left = Cost::new(self.left).ok().filter(|_| !is_late)?;
        RateReceipt::in_batch(Arc::clone(&self.after), Amount::ZERO, left).give_back(now)
    }

    /// What ran over the brim by `now` is gone for good.
    fn spill(&mut self, now: Timestamp) {
        let brim = RatePlanner::new(&self.after).brim(now);
        self.left = self.left.min(brim.minus(self.after.tokens())).max(Amount::ZERO);
        // The bucket, with the lot in it, is full then.
        let full = self.after.reaches(self.after.limit().capacity().minus(self.left));
        self.whole_until = full.map_or(now, |full| full.before(Duration::from_micros(1)));
    }

    /// By a clock that went back it was taken in the future, and nothing is known of its age.
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.taken_at <= now && now.micros_since(self.taken_at) <= span_micros(USE_BY)
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

    /// What to take beyond the present callers, who ask for `asked`: what they took lately, for the time that a lot should
    /// last. Ends the measurement and begins the next.
    ///
    /// A bucket at the brim refills over it: what flows back while the lot is used shrinks the lot, so that this is taken
    /// besides. It would be nobody's otherwise.
    pub fn next_lot(&mut self, bucket: &Bucket, asked: Amount, now: Timestamp) -> Amount {
        let since = self.since.replace(now).unwrap_or(now);
        let elapsed = now.micros_since(since).max(span_micros(LEAST_MEASURED));
        let lately = per_second(core::mem::take(&mut self.granted).plus(asked), elapsed);
        // Up at once, down by halves.
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
    Amount::clamped(i128::from(per_second.micros()) * i128::from(span_micros(span)) / 1_000_000)
}
