//! Settling: a call is charged what it used, and not what it was expected to use.
//!
//! If a call took too much, the surplus goes back, as far as it still fits below the brim (see
//! [`RateReceipt`]). If a call took too little, the rest is taken now, below zero if need be: a debt, which
//! refill pays before the next call. Calls of one process that are settled at the same time share a write.

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

/// One call to settle.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The grant that the call was made under.
    pub receipt: RateReceipt,
    /// What the call counts as so far, less what it used. Above zero: to give back. Below zero: to take.
    pub surplus: Amount,
}

/// The plan for several calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// The write; `None` if there is nothing to give back or to take.
    pub write: Option<Update>,
    /// For each call, in order: what the write gives back (above zero) or takes (below zero). Less than the
    /// call's surplus if the rest has flowed back by itself, or has no room.
    pub changes: Vec<Amount>,
}

impl RatePlanner<'_> {
    /// The write that settles `calls`, according to this reading of their bucket.
    #[must_use]
    pub fn settle(self, calls: &[Settle], now: Timestamp) -> Settling {
        let bucket = self.bucket();
        let mut changes = alloc::vec![Amount::ZERO; calls.len()];
        let (mut returned, mut taken) = (Amount::ZERO, Amount::ZERO);
        let mut returns: Vec<(Amount, Amount, &mut Amount)> = Vec::new();
        for (call, change) in calls.iter().zip(&mut changes) {
            if call.surplus <= Amount::ZERO {
                taken = taken.minus(call.surplus);
                *change = call.surplus;
            } else if call.receipt.is_on_line(bucket) {
                returns.push((call.receipt.most_returned(now), call.surplus, change));
            }
        }
        // As if one call returned after the other, each within its own bound. The calls with the least room
        // return first, because the others would take that room.
        returns.sort_by_key(|(allowed, ..)| *allowed);
        let mut most_before = Amount::from_micros(i64::MAX);
        for (allowed, surplus, change) in returns {
            let back = surplus.min(allowed.minus(bucket.returned()).minus(returned));
            if back > Amount::ZERO {
                returned = returned.plus(back);
                most_before = most_before.min(allowed.minus(returned));
                *change = back;
            }
        }
        let write = match (returned > Amount::ZERO, taken > Amount::ZERO) {
            (true, _) => Some(self.give_and_take(returned, taken, most_before)),
            (false, true) => Some(self.lower(taken, now)),
            (false, false) => None,
        };
        Settling { write, changes }
    }

    fn give_and_take(self, returned: Amount, taken: Amount, most_before: Amount) -> Update {
        let values = alloc::vec![
            (":step", Operand::number(returned.minus(taken))),
            (":returned", Operand::number(returned)),
            (":most_returned", Operand::number(most_before)),
            (":read_lots", Operand::number(self.bucket().lots())),
            (":0", Operand::number(0)),
        ];
        self.update(&SETTLE, values)
    }
}
