//! An anchor in the future: what is left of a clock that was wrong, and how it is moved back.
//!
//! The line is flat before its anchor, so that a bucket whose anchor lies F ahead pays out what it holds and then nothing for F. Who has
//! DynamoDB's time moves such an anchor back to it, in the write that takes, or in one of its own where nothing can be taken.
//!
//! # What a repair does not give away
//!
//! A repair leaves the level as the flat line said: T, less what it takes. From then on the line rises from the repair's own clock r.
//!
//! - *Honest clocks never meet one.* Two clocks that err by `CLOCK_ERROR` at most differ by twice that at most, and an anchor is a clock:
//!   where `A > now + 2 * CLOCK_ERROR`, the clock that set it, or the one that shows `now`, is wrong. The latter is why a repair takes
//!   [`FutureAnchor::Repair`]: a machine that lags by an hour would take every anchor for one of the future. (One that has just resumed
//!   from a snapshot, and does not know it, sees no anchor of the future: what it remembers of the bucket is as old as its clock, and
//!   the reply that shows it anything younger tells it the time.)
//! - *The bound holds again from the wrong write on.* After it, and until the repair, the line does not rise: all take from T. After the
//!   repair it rises from r, so that writes that take effect by u have taken at most `T + (u - r) * R`, and T is C at most. That
//!   is the bound of `line.rs`, with r as the earliest effect. The condition `T >= T as read` keeps others from taking between the
//!   repair's clock and its arrival, however long it is on its way: else r would lie before their effects, and the window gain the
//!   refill of that way.
//! - *No return crosses it.* A receipt asks for the anchor of its take. An anchor that moves back may meet one that stood there before,
//!   to the microsecond, so that a repair counts as a lot, which no return crosses either.
//!
//! What the wrong write itself gained is paid out: up to C, since it found the bucket full. A client that keeps writing such anchors finds
//! it full anew after each repair, and so gains up to C for each; without repairs it would gain that once, and everyone else would starve.
//! No condition can tell its writes from those of a clock that is right. See `docs/semantics.md`, *What cannot be promised*.

use alloc::vec::Vec;

use crate::amount::Amount;
use crate::plan::rate::{Form, Planned, RatePlanner};
use crate::schema::{LAST_REFILL_AT, LOTS, TOKENS, VERSION};
use crate::statement::{Operand, Statement};
use crate::timestamp::Timestamp;

/// What a planner does with an anchor that lies further in the future than the errors of two clocks explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FutureAnchor {
    /// It stays: the time that the plan is made with may itself be wrong.
    #[default]
    Keep,
    /// The next write that takes moves it back. Only for a time that is known to be DynamoDB's.
    Repair,
}

/// A repair that takes nothing. Interleavings that the condition stops: another writer moved the anchor since the reading, which may be
/// right now (A); others took since, and would have their refill a second time (T). It holds in a cool-down too: nothing is granted.
static REPAIR: Statement = Statement::fixed(
    "SET #A = :t, #v = #v + :1, #o = if_not_exists(#o, :0) + :1",
    "#A = :a AND #T >= :lo",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#o", LOTS)],
);

impl RatePlanner<'_> {
    /// The write that moves an anchor of the future back to `now` and takes nothing; `None` where there is nothing to repair, or the
    /// planner was not told to ([`on_future_anchor`](Self::on_future_anchor)).
    #[must_use]
    pub fn repair(self, now: Timestamp) -> Option<Planned> {
        if !self.repairs(now) {
            return None;
        }
        let tokens: Amount = self.bucket().tokens();
        let values =
            Vec::from([(":t", Operand::number(now)), (":lo", Operand::number(tokens)), (":0", Operand::number(0))]);
        let after = self.bucket().moved(tokens, now).with_lot();
        Some(Planned { update: self.update(&REPAIR, values), form: Form::Reanchor, after })
    }
}
