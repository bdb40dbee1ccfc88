//! Taking tokens without granting them to anybody: a penalty after a 429, and what a call used beyond what it
//! had taken.
//!
//! Both apply whatever else is going on: below zero, and in a cool-down.

use core::time::Duration;

use crate::amount::Amount;
use crate::factor::Factor;
use crate::plan::lines::{charge_lines, lower_lines};
use crate::plan::rate::RatePlanner;
use crate::plan::settle::Debt;
use crate::schema::{LAST_REFILL_AT, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

const NAMES: &[&str] = &[TOKENS, LAST_REFILL_AT, VERSION];

/// Interleaving that the condition stops: the bucket filled up, or its anchor moved, since the reading, and
/// the refill that the bucket has in reserve would swallow what is taken.
static LOWER: Statement = Statement::fixed(
    "SET #tokens = #tokens - :amount, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens <= :brim",
    NAMES,
);

/// The same if so much is taken that a cap depends on the level. Interleaving that `:lowest` stops: others
/// took tokens since the reading, and the write would lower the bucket below the cap.
static LOWER_CAPPED: Statement = Statement::fixed(
    "SET #tokens = #tokens - :amount, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens <= :brim AND #tokens >= :lowest",
    NAMES,
);

/// The same for a full bucket: the condition ensures that its level is C.
static LOWER_FULL: Statement = Statement::fixed(
    "SET #tokens = :tokens, #last_refill_at = :anchor, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens > :brim",
    NAMES,
);

impl RatePlanner<'_> {
    /// The write that leaves `factor` of the present level of the whole bucket, or `None` if there is no
    /// level to take from. It takes at most what refills in `longest`; `None` is without this bound.
    #[must_use]
    pub fn penalize(self, factor: Factor, longest: Option<Duration>, now: Timestamp) -> Option<Update> {
        let (level, rate) = (self.bucket().held_by_lines(now), self.bucket().whole_limit().refill_rate());
        let penalty = level.minus(factor.of(level));
        let penalty = longest.map_or(penalty, |longest| penalty.min(rate.accrued_ceil(longest)));
        (level > Amount::ZERO).then(|| match self.bucket().lines() {
            None => self.lower(penalty, now),
            Some(lines) => lower_lines(self.bucket(), lines, penalty, now),
        })
    }

    /// What the whole bucket takes of `amount`, and the write, or `None` if that is nothing.
    ///
    /// Each line may be lowered to minus its capacity, and not further: its room is what it has above that.
    /// Lines are charged in proportion to their rooms, so none owes much while others still grant. With
    /// [`Debt::Uncapped`], what is above all rooms is taken too, in proportion to the capacities.
    #[must_use]
    pub fn charge_whole(self, amount: Amount, debt: Debt, now: Timestamp) -> Option<(Amount, Update)> {
        let bucket = self.bucket();
        let Some(lines) = bucket.lines() else {
            let room = bucket.level(now).plus(bucket.limit().capacity()).max(Amount::ZERO);
            let (taken, lowest) = match debt {
                Debt::Capped => {
                    let taken = amount.min(room);
                    (taken, Some(bucket.tokens().minus(room.minus(taken))))
                }
                Debt::Uncapped => (amount, None),
            };
            return (taken > Amount::ZERO).then(|| (taken, self.lower_above(lowest, taken, now)));
        };
        charge_lines(bucket, lines, amount, debt, now)
    }

    /// The write that takes `amount` from the level, below zero if need be.
    #[must_use]
    pub fn lower(self, amount: Amount, now: Timestamp) -> Update {
        self.lower_above(None, amount, now)
    }

    /// The same, if the bucket has at least `lowest` tokens at its anchor. A full bucket has: its level is C.
    pub(super) fn lower_above(self, lowest: Option<Amount>, amount: Amount, now: Timestamp) -> Update {
        let brim = self.brim(now);
        if self.bucket().tokens() <= brim {
            let mut values =
                alloc::vec![(":amount", Operand::number(amount)), (":brim", Operand::number(brim))];
            values.extend(lowest.map(|lowest| (":lowest", Operand::number(lowest))));
            return self.update(if lowest.is_some() { &LOWER_CAPPED } else { &LOWER }, values);
        }
        let left = self.bucket().limit().capacity().minus(amount);
        let values = alloc::vec![
            (":tokens", Operand::number(left)),
            (":anchor", Operand::number(self.bucket().line().effect(now))),
            (":brim", Operand::number(brim)),
        ];
        self.update(&LOWER_FULL, values)
    }
}
