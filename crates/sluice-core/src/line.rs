//! The line of a rate bucket. The only place that says where it stands: no plan has arithmetic of its own for it.
//!
//! With T the tokens, A the anchor and R the refill rate, the line stands at `T + max(0, t - A) * R` for a writer whose clock shows
//! t. It is flat before its anchor: a writer takes effect at `u = max(t, A)`. The level is the line, capped at the capacity C.
//!
//! # The bound: any window W of true time starts calls worth at most C + R * (W + 2e)
//!
//! Let every clock be off by e at most, and take all writes whose calls start in one window `[s, s + W]` of true time, in the order
//! in which DynamoDB applied them.
//!
//! 1. *A lies no further ahead than a clock may be.* An anchor is the clock of the write that set it, or of one before (an anchor
//!    never moves back). That write came first, at a true time of `s + W` at most, so that `A <= s + W + e`. (A write whose clock
//!    lags may have to move it all the same, and then by a microsecond. Writes to one row lie further apart than that, so that the
//!    true time moves on by more.)
//! 2. *So each write takes effect within the window, extended by e on both sides.* Its own clock t lies in `[s - e, s + W + e]`, and
//!    `max(t, A)` is t or lies between t and `s + W + e`. A booked start is where the line reaches zero, and the caller waits for it by
//!    its own clock: the same holds of it.
//! 3. *Between the first of these writes and the last the line gains no more than its rise between their effects.* A spend lowers it by
//!    what it takes; a re-anchor too, and puts it on another anchor, never on one from which it stands higher; a full write asks that it
//!    stands above C, and lowers it to C. A return lifts it by tokens that were taken and are not used.
//! 4. *It stands at C at most right before the first, and at 0 at least right after the last*, each at its own effect: that is what the
//!    conditions ask for. So the writes take at most `C + R * (u_last - u_first) <= C + R * (W + 2e)`.
//!
//! # Why it is flat
//!
//! Unclamped, the line falls before A by R a second without end, and a writer with an exact clock finds `T - (A - t) * R` where
//! another, whose clock is ahead, has just set A: nothing at all, as soon as the difference is worth the capacity. It starves beside
//! that writer for as long as both ask. The proof needs no more than step 2: to reckon with `max(t, A)` in place of t moves an effect
//! forward, and never past the window's end and e.
//!
//! It needs step 1 too. A client that moves an anchor back makes the line rise over the same time twice: see
//! `docs/semantics.md`, *What cannot be promised*.

use core::time::Duration;

use crate::amount::Amount;
use crate::rate::Rate;
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// A straight line through `tokens` at `anchor`, flat before it, and not capped.
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

    /// When a writer whose clock shows `now` takes effect: u.
    pub(crate) fn effect(self, now: Timestamp) -> Timestamp {
        now.max(self.anchor)
    }

    /// Whether its anchor lies further in the future than the errors of both clocks explain, of the one that shows `now` and of the
    /// one that set it: the latter is wrong.
    pub(crate) fn is_far_ahead(self, now: Timestamp) -> bool {
        self.anchor > now.after(CLOCK_ERROR.saturating_mul(2))
    }

    /// From when on it and another line rise side by side, as `now` shows it: at its anchor, before which it stands still. An anchor that is
    /// far ahead will be moved back, and the lines are compared as they stand.
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

    /// Where it stands, rounded down.
    pub(crate) fn at(self, now: Timestamp) -> Amount {
        self.tokens.plus(self.accrued_floor(now))
    }

    /// Where it stands, rounded up.
    pub(crate) fn at_most(self, now: Timestamp) -> Amount {
        self.tokens.plus(self.accrued_ceil(now))
    }

    /// Whether it stands at `amount` by `now`.
    pub(crate) fn has(self, amount: Amount, now: Timestamp) -> bool {
        self.rate.has_accrued(self.span(now), amount.minus(self.tokens))
    }

    /// When it reaches `amount`, rounded up: the beginning of time where it stands there at its anchor already, and `None` where it
    /// never does.
    pub(crate) fn reaches(self, amount: Amount) -> Option<Timestamp> {
        if amount <= self.tokens {
            return Some(Timestamp::from_micros(i64::MIN));
        }
        let wait = self.rate.micros_for(amount.minus(self.tokens));
        (wait < i64::MAX).then(|| Timestamp::from_micros(self.anchor.micros().saturating_add(wait)))
    }

    /// Time since the anchor; none before it.
    fn span(self, now: Timestamp) -> Duration {
        now.since(self.anchor)
    }
}
