//! Settling: a call is charged what it used, and not what it was expected to use.
//!
//! If a call took too much, the surplus goes back, as far as it still fits below the brim (see
//! [`RateReceipt`]). If a call took too little, the rest is taken now, below zero if need be: a debt, which
//! refill pays before the next call. Calls of one process that are settled at the same time share a write.
//!
//! A use that is wrong by orders of magnitude (dollars, characters, a sum over many calls) would stop every
//! process for hours. So a debt is [capped](Debt::Capped), unless the caller asks otherwise. Let L be the
//! level, C the capacity, and r what a call had reserved. The call takes at most `max(L + C, r)` in addition:
//! the settlement leaves the level at -C or above, or takes no more than as much again as was reserved.

use alloc::vec::Vec;

use crate::amount::Amount;
use crate::plan::rate::RatePlanner;
use crate::plan::receipt::RateReceipt;
use crate::schema::{LAST_REFILL_AT, LOTS, RETURNED, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops: those of a return of tokens whose start is past. If the condition
/// holds, the bucket is not full, so nothing in reserve swallows what the same write takes.
static SETTLE: Statement = Statement::fixed(
    "SET #tokens = #tokens + :step, #returned = if_not_exists(#returned, :0) + :returned, #version = #version + :1",
    "#last_refill_at = :read_anchor AND (attribute_not_exists(#returned) OR #returned <= :most_returned) \
     AND (attribute_not_exists(#lots) OR #lots = :read_lots)",
    &[TOKENS, LAST_REFILL_AT, VERSION, RETURNED, LOTS],
);

/// The same if calls take so much that the cap depends on the level. Interleaving that `:lowest` stops:
/// others took tokens since the reading, and the settlement would lower the bucket further than a debt may.
static SETTLE_CAPPED: Statement = Statement::fixed(
    "SET #tokens = #tokens + :step, #returned = if_not_exists(#returned, :0) + :returned, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens >= :lowest \
     AND (attribute_not_exists(#returned) OR #returned <= :most_returned) \
     AND (attribute_not_exists(#lots) OR #lots = :read_lots)",
    &[TOKENS, LAST_REFILL_AT, VERSION, RETURNED, LOTS],
);

/// How far settlements may lower a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Debt {
    /// To minus the capacity. If starts are booked further ahead than that, a call may still take as much
    /// again as it had reserved.
    #[default]
    Capped,
    /// As far as the calls state that they used.
    Uncapped,
}

/// One call to settle.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The grant that the call was made under.
    pub receipt: RateReceipt,
    /// What the call counts as so far: its cost, until it is settled.
    pub counted: Amount,
    /// What the call counts as so far, less what it used. Above zero: to give back. Below zero: to take.
    pub surplus: Amount,
}

impl Settle {
    /// What the call may take in addition, whatever the level is: as much again as it had reserved, less what
    /// it has taken in addition before.
    fn own_share(&self) -> Amount {
        let reserved = self.receipt.cost().amount();
        reserved.plus(reserved).minus(self.counted).max(Amount::ZERO)
    }
}

/// The plan for several calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// The write; `None` if there is nothing to give back or to take.
    pub write: Option<Update>,
    /// For each call, in order: what the write gives back (above zero) or takes (below zero). Less than the
    /// call's surplus if the rest has flowed back by itself, or has no room. Less than the call owes if the
    /// debt is capped.
    pub changes: Vec<Amount>,
}

impl RatePlanner<'_> {
    /// The write that settles `calls`, according to this reading of their bucket.
    #[must_use]
    pub fn settle(self, calls: &[Settle], debt: Debt, now: Timestamp) -> Settling {
        let mut changes = alloc::vec![Amount::ZERO; calls.len()];
        let (returned, most_before) = self.give(calls, &mut changes, now);
        let (taken, lowest) = self.charge(calls, &mut changes, debt, returned, now);
        let write = match (returned > Amount::ZERO, taken > Amount::ZERO) {
            (true, _) => Some(self.give_and_take(returned, taken, most_before, lowest)),
            (false, true) => Some(self.lower_above(lowest, taken, now)),
            (false, false) => None,
        };
        Settling { write, changes }
    }

    /// What calls give back. Returns the sum, and the most that the bucket may count as returned before.
    fn give(self, calls: &[Settle], changes: &mut [Amount], now: Timestamp) -> (Amount, Amount) {
        let bucket = self.bucket();
        let mut returns: Vec<(Amount, Amount, &mut Amount)> = Vec::new();
        for (call, change) in calls.iter().zip(changes) {
            if call.surplus > Amount::ZERO && call.receipt.is_on_line(bucket) {
                returns.push((call.receipt.most_returned(now), call.surplus, change));
            }
        }
        // As if one call returned after the other, each within its own bound. The calls with the least room
        // return first, because the others would take that room.
        returns.sort_by_key(|(allowed, ..)| *allowed);
        let (mut returned, mut most_before) = (Amount::ZERO, Amount::from_micros(i64::MAX));
        for (allowed, surplus, change) in returns {
            let back = surplus.min(allowed.minus(bucket.returned()).minus(returned));
            if back > Amount::ZERO {
                returned = returned.plus(back);
                most_before = most_before.min(allowed.minus(returned));
                *change = back;
            }
        }
        (returned, most_before)
    }

    /// What calls take in addition, one after the other. Returns the sum, and the least number of tokens for
    /// which the cap allows it; `None` if the cap allows it whatever the level is.
    fn charge(
        self,
        calls: &[Settle],
        changes: &mut [Amount],
        debt: Debt,
        returned: Amount,
        now: Timestamp,
    ) -> (Amount, Option<Amount>) {
        let bucket = self.bucket();
        let mut room = bucket.level(now).plus(returned).plus(bucket.limit().capacity());
        let (mut taken, mut lowest) = (Amount::ZERO, None);
        for (call, change) in calls.iter().zip(changes).filter(|(call, _)| call.surplus < Amount::ZERO) {
            let owed = Amount::ZERO.minus(call.surplus);
            let takes = match debt {
                Debt::Capped => owed.min(room.max(call.own_share())),
                Debt::Uncapped => owed,
            };
            taken = taken.plus(takes);
            if debt == Debt::Capped && takes > call.own_share() {
                // The room that is left over may be gone when the write arrives.
                let least = bucket.tokens().minus(room.minus(takes));
                lowest = lowest.max(Some(least));
            }
            room = room.minus(takes);
            *change = Amount::ZERO.minus(takes);
        }
        (taken, lowest)
    }

    fn give_and_take(
        self,
        returned: Amount,
        taken: Amount,
        most_before: Amount,
        lowest: Option<Amount>,
    ) -> Update {
        let mut values = alloc::vec![
            (":step", Operand::number(returned.minus(taken))),
            (":returned", Operand::number(returned)),
            (":most_returned", Operand::number(most_before)),
            (":read_lots", Operand::number(self.bucket().lots())),
            (":0", Operand::number(0)),
        ];
        values.extend(lowest.map(|lowest| (":lowest", Operand::number(lowest))));
        self.update(if lowest.is_some() { &SETTLE_CAPPED } else { &SETTLE }, values)
    }
}
