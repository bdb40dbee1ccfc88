//! Setting the level of a rate bucket, because an operator asks for it.
//!
//! A refill adds tokens that did not flow in. If it raises the line by X, a window that contains the refill
//! starts calls worth at most X more than `line.rs` allows. Starts and tickets that were booked before stay
//! as they are, and are part of X: a level below zero is raised from there.
//!
//! A refill counts as a lot, so that no tokens that were taken before it come back after it: they would lift
//! the line once more, in a window that does not contain the refill.

use crate::amount::Amount;
use crate::plan::rate::RatePlanner;
use crate::schema::{LAST_REFILL_AT, LOTS, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops:
/// - `last_refill_at`: the bucket was full since the reading, or its anchor moved, or it has other limits,
///   and the step would be taken from another line.
/// - `tokens`: another operator refilled since the reading, or a caller gave back, and both steps together
///   would leave more than was asked for.
///
/// Calls that took tokens since the reading do not make the write fail: what they took is gone from the new
/// level too.
static SET_LEVEL: Statement = Statement::fixed(
    "SET #tokens = #tokens + :step, #lots = if_not_exists(#lots, :0) + :1, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens < :more",
    &[TOKENS, LAST_REFILL_AT, LOTS, VERSION],
);

impl RatePlanner<'_> {
    /// The write that sets the level to `level`, or `None` if that is the level at `now`. The line keeps its
    /// anchor: before an anchor in the future, the level is `level` too.
    #[must_use]
    pub fn refill(self, level: Amount, now: Timestamp) -> Option<Update> {
        let present = self.bucket().level(now);
        if level == present {
            return None;
        }
        if self.bucket().tokens() > self.brim(now) {
            // The bucket is full, so this can only lower it.
            return Some(self.lower(present.minus(level), now));
        }
        // Another client may have written the tokens with more decimals, which the reading rounded down.
        let more = self.bucket().tokens().plus(Amount::from_micros(1));
        let values = alloc::vec![
            (":step", Operand::number(level.minus(present))),
            (":more", Operand::number(more)),
            (":0", Operand::number(0)),
        ];
        Some(self.update(&SET_LEVEL, values))
    }
}
