//! The line of a rate bucket. Only this code computes it: no plan has arithmetic of its own for it.
//!
//! With T the tokens, A the anchor and R the refill rate, the line stands at `T + max(0, t - A) * R` for a
//! writer whose clock shows t. The line is flat before its anchor: a write takes effect at `u = max(t, A)`.
//! The level is the line, capped at the capacity C.
//!
//! # The bound: any window W of true time starts calls worth at most C + R * (W + 2e)
//!
//! Let every clock be off by at most e. Take all writes whose calls start in one window `[s, s + W]` of true
//! time, in the order in which DynamoDB applied them.
//!
//! 1. *A is no further ahead than a clock may be.* An anchor is the clock of the write that set it, or of an
//!    earlier write (an anchor never moves back). That write came first, at a true time of at most `s + W`,
//!    so `A <= s + W + e`. (A write whose clock lags may have to move the anchor nevertheless, and then moves
//!    it by a microsecond. Writes to one row are further apart than that, so the true time advances by more.)
//! 2. *So each write takes effect within the window, extended by e on both sides.* Its own clock t lies in
//!    `[s - e, s + W + e]`, and `max(t, A)` is t or lies between t and `s + W + e`. A booked start is the
//!    time at which the line reaches zero, and the caller waits for it by its own clock: the same bound
//!    applies to it.
//! 3. *Between the first of these writes and the last, the line gains no more than its rise between their
//!    effects.* A spend lowers the line by what it takes. So does a re-anchor, which also moves the line to
//!    another anchor, but never to one from which the line stands higher. The condition of a full write is
//!    that the line stands above C, and the write lowers the line to C. A return lifts the line by tokens
//!    that were taken and are not used.
//! 4. *The line stands at C at most right before the first write, and at 0 at least right after the last*,
//!    each at the effect of that write: the conditions require it. So the writes take at most
//!    `C + R * (u_last - u_first) <= C + R * (W + 2e)`.
//!
//! # Why it is flat
//!
//! Without the clamp, the line falls before A by R a second without limit. If a writer whose clock is ahead
//! has just set A, a writer with an exact clock finds `T - (A - t) * R`: nothing at all, as soon as
//! `(A - t) * R` reaches the capacity. The second writer starves for as long as both ask. The clamp concerns
//! only step 2 of the proof: using `max(t, A)` in place of t moves an effect forward, and never past the end
//! of the window plus e.
//!
//! The proof also needs step 1. A client that moves an anchor back makes the line rise over the same time
//! twice: see `docs/semantics.md`, *What cannot be promised*.

use core::time::Duration;

use crate::amount::Amount;
use crate::rate::Rate;
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// A straight line through `tokens` at `anchor`, flat before the anchor, and not capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    tokens: Amount,
    anchor: Timestamp,
    rate: Rate,
}

impl Line {
    pub(crate) const fn new(tokens: Amount, anchor: Timestamp, rate: Rate) -> Self {
        Self { tokens, anchor, rate }
    }

    pub(crate) const fn rate(self) -> Rate {
        self.rate
    }

    /// Returns u, the time at which a write takes effect whose writer's clock shows `now`.
    pub(crate) fn effect(self, now: Timestamp) -> Timestamp {
        now.max(self.anchor)
    }

    /// Whether the anchor is further ahead than two clocks' errors explain: the clock that set it is wrong.
    pub(crate) fn is_far_ahead(self, now: Timestamp) -> bool {
        self.anchor > now.after(CLOCK_ERROR.saturating_mul(2))
    }

    /// The time from which this line and another rise together, for a clock that shows `now`: not before the
    /// anchor, because the line is flat before it. An anchor far ahead will be moved back, so the lines are
    /// compared at `now`.
    pub(crate) fn both_rise(self, now: Timestamp) -> Timestamp {
        if self.is_far_ahead(now) { now } else { self.effect(now) }
    }

    /// Tokens that flowed in since the anchor, rounded down.
    pub(crate) fn accrued_floor(self, now: Timestamp) -> Amount {
        self.rate.accrued_floor(self.span(now))
    }

    /// Tokens that flowed in since the anchor, rounded up.
    pub(crate) fn accrued_ceil(self, now: Timestamp) -> Amount {
        self.rate.accrued_ceil(self.span(now))
    }

    /// The height of the line at `now`, rounded down.
    pub(crate) fn at(self, now: Timestamp) -> Amount {
        self.tokens.plus(self.accrued_floor(now))
    }

    /// The height of the line at `now`, rounded up.
    pub(crate) fn at_most(self, now: Timestamp) -> Amount {
        self.tokens.plus(self.accrued_ceil(now))
    }

    pub(crate) fn has(self, amount: Amount, now: Timestamp) -> bool {
        self.rate.has_accrued(self.span(now), amount.minus(self.tokens))
    }

    /// When the line reaches `amount`, rounded up. The beginning of time if the line stands there at its
    /// anchor already; `None` if it never reaches `amount`.
    pub(crate) fn reaches(self, amount: Amount) -> Option<Timestamp> {
        if amount <= self.tokens {
            return Some(Timestamp::from_micros(i64::MIN));
        }
        let wait = self.rate.micros_for(amount.minus(self.tokens));
        (wait < i64::MAX).then(|| Timestamp::from_micros(self.anchor.micros().saturating_add(wait)))
    }

    /// Time since the anchor; zero before it.
    fn span(self, now: Timestamp) -> Duration {
        now.since(self.anchor)
    }
}
