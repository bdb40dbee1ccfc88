//! An anchor in the future: what a wrong clock leaves behind, and how the anchor is moved back.
//!
//! The line is flat before its anchor. A bucket whose anchor lies F ahead pays out what it holds, and then
//! nothing for F. A caller that has DynamoDB's time takes from what the bucket holds, with a plain write. If
//! that is too little, the caller moves the anchor back to the present time: in the write that books, or in a
//! write of its own.
//!
//! # What a repair does not give away
//!
//! A repair leaves the level where the flat line had it: T, less what the repair takes. From then on the line
//! rises from r, the time that the repair's own clock shows.
//!
//! - *Honest clocks never meet a repair.* Two clocks that err by `CLOCK_ERROR` at most differ by twice that
//!   at most, and an anchor is the time of a clock. So if `A > now + 2 * CLOCK_ERROR`, either the clock that
//!   set the anchor or the clock that shows `now` is wrong. Because it may be the latter, a repair requires
//!   [`FutureAnchor::Repair`](crate::FutureAnchor::Repair): a machine that lags by an hour would take every
//!   anchor for an anchor of the future. (A machine that has just resumed from a snapshot, and does not know
//!   it, sees no anchor of the future: what it remembers of the bucket is as old as its clock, and the reply
//!   that shows it anything younger also tells it the time.)
//! - *The bound holds again from the wrong write on.* After the wrong write, and until the repair, the line
//!   rises for the wrong clock alone. What the wrong clock takes there beyond T is its gain, and T is below
//!   zero after that. All others take from T. After the repair the line rises from r, so that writes that
//!   take effect by u have taken at most `T + (u - r) * R`, and T is at most C. That is the bound of
//!   `line.rs`, with r as the earliest effect. The condition `T >= T as read` keeps others from taking
//!   between the time of the repair's clock and the arrival of the repair, however long the repair is on its
//!   way. Otherwise r would lie before the effects of what they took, and the window would gain the refill of
//!   the time on the way.
//! - *No return crosses a repair.* A receipt requires the anchor of its take. But an anchor that moves back
//!   may equal an earlier anchor, to the microsecond. So a repair also counts as a lot, which no return
//!   crosses either.
//!
//! # At most one repair in C / R
//!
//! A wrong write finds the bucket full, and leaves it at C less what it takes: the writer gains C, and what
//! is booked at that moment. After that the anchor lies ahead, and the same clock finds the line where it
//! left it. What another clock took early by its error is forgotten with the anchor that it had left: such
//! errors count once more. A repair lets the wrong clock find the bucket full again. So a client that keeps
//! writing such anchors would gain C with each repair. The row therefore states when the last repair was made
//! (`repaired_at`), and a repair requires that the last one was C / R ago. The gain of such a client is then
//! R a second more, on average. Until the next repair, callers are served from what the bucket holds, and
//! refused callers learn when the anchor may be repaired.
//!
//! A client whose clock jumps further ahead each time needs no repair to find the bucket full. No condition
//! can distinguish its writes from those of a clock that is right. See `docs/semantics.md`, *What cannot be
//! promised*.

use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::Amount;
use crate::plan::rate::{Form, Planned, RatePlanner};
use crate::plan::{Plan, Reason, Refusal};
use crate::schema::{BLOCKED_UNTIL, LAST_REFILL_AT, LOTS, REPAIRED_AT, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Values};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// A repair that takes nothing. It also passes in a cool-down, because nothing is granted.
///
/// Interleavings that the condition stops:
/// - `last_refill_at`: another writer moved the anchor since the reading, and the anchor may be right now.
/// - `tokens`: others took since the reading, and would have their refill a second time.
/// - `repaired_at`: another client repaired since the reading, and a wrong clock has written again. An
///   instant that no clock can have shown counts as no repair.
static REPAIR: Statement = Statement::fixed(
    "SET #last_refill_at = :anchor, #repaired_at = :anchor, #version = #version + :1, \
     #lots = if_not_exists(#lots, :0) + :1",
    "#last_refill_at = :read_anchor AND #tokens >= :lowest \
     AND (attribute_not_exists(#repaired_at) OR #repaired_at <= :since OR #repaired_at > :ahead)",
    &[TOKENS, LAST_REFILL_AT, VERSION, LOTS, REPAIRED_AT],
);

/// The same, with starts that are booked on the repaired line.
///
/// Interleavings that the condition stops:
/// - `last_refill_at`, `tokens` (lower bound), `repaired_at`: as above.
/// - `tokens` (upper bound): tokens came back since the reading, above the brim.
/// - `blocked_until`: a cool-down began.
static REPAIRING_TAKE: Statement = Statement::fixed(
    "SET #tokens = #tokens + :step, #last_refill_at = :anchor, #repaired_at = :anchor, #version = #version + :1, \
     #lots = if_not_exists(#lots, :0) + :1",
    "#last_refill_at = :read_anchor AND #tokens >= :lowest AND #tokens <= :brim \
     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now) \
     AND (attribute_not_exists(#repaired_at) OR #repaired_at <= :since OR #repaired_at > :ahead)",
    &[TOKENS, LAST_REFILL_AT, VERSION, LOTS, BLOCKED_UNTIL, REPAIRED_AT],
);

impl RatePlanner<'_> {
    /// The write that moves an anchor of the future back to `now` and takes nothing. `None` if there is
    /// nothing to repair, if the last repair was less than C / R ago, or if the planner was not told to
    /// repair ([`on_future_anchor`](Self::on_future_anchor)).
    #[must_use]
    pub fn repair(self, now: Timestamp) -> Option<Planned> {
        if !self.repairs(now) {
            return None;
        }
        let tokens: Amount = self.bucket().tokens();
        let mut values = self.repaired_at(now);
        values.push((":lowest", Operand::number(tokens)));
        let after = self.bucket().repaired(tokens, now);
        Some(Planned { update: self.update(&REPAIR, values), form: Form::Reanchor, after })
    }

    /// The write that repairs the anchor and takes `total` on the repaired line, if the tokens are at least
    /// `lowest`.
    pub(super) fn repairing_take(self, now: Timestamp, total: Amount, lowest: Amount) -> Planned {
        let tokens = self.bucket().tokens();
        let mut values = self.repaired_at(now);
        values.extend([
            (":lowest", Operand::number(lowest.max(tokens))),
            (":brim", Operand::number(self.brim(now))),
            (":now", Operand::number(now)),
            (":step", Operand::number(Amount::ZERO.minus(total))),
        ]);
        let after = self.bucket().repaired(tokens.minus(total), now);
        Planned { update: self.update(&REPAIRING_TAKE, values), form: Form::Reanchor, after }
    }

    /// Whether a write that is planned at `now` may repair the anchor.
    pub(super) fn repairs(self, now: Timestamp) -> bool {
        self.is_to_repair(now) && self.may_repair_at(now) <= now
    }

    /// `answer`, with the wait until the next repair if that wait is shorter: the line of an anchor of the
    /// future says when the wrong clock would be right.
    pub(super) fn with_next_repair<T>(self, answer: Plan<T>, now: Timestamp) -> Plan<T> {
        match answer {
            Plan::Refuse(refusal) if refusal.reason == Reason::Exhausted && self.is_to_repair(now) => {
                let repair = self.may_repair_at(now).since(now);
                let wait = if repair.is_zero() { refusal.wait } else { refusal.wait.min(repair) };
                Plan::Refuse(Refusal { wait, ..refusal })
            }
            answer => answer,
        }
    }

    /// When the next repair may be made; `now` if nothing delays it.
    fn may_repair_at(self, now: Timestamp) -> Timestamp {
        let last = self.bucket().repaired_at().filter(|at| *at <= latest_shown(now));
        last.map_or(now, |at| at.after(self.time_to_fill()).max(now))
    }

    /// C / R: how long the bucket takes to fill.
    fn time_to_fill(self) -> Duration {
        let limit = self.bucket().limit();
        limit.refill_rate().time_for(limit.capacity()).unwrap_or(Duration::MAX)
    }

    fn repaired_at(self, now: Timestamp) -> Values {
        Vec::from([
            (":anchor", Operand::number(now)),
            (":since", Operand::number(now.before(self.time_to_fill()))),
            (":ahead", Operand::number(latest_shown(now))),
            (":0", Operand::number(0)),
        ])
    }
}

/// The latest time that another clock may show at `now`.
fn latest_shown(now: Timestamp) -> Timestamp {
    now.after(CLOCK_ERROR.saturating_mul(2))
}
