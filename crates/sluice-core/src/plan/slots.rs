//! Concurrency buckets: a slot and its lease change together, in one transaction.
//!
//! | action | lease | bucket |
//! |---|---|---|
//! | acquire | put if `attribute_not_exists(key)` | T -= k, admitted += k if concurrent, T >= k, not blocked |
//! | release | delete if `attribute_exists(key)` | T += k if concurrent, capacity as read, and T <= C - k |
//! | reclaim | delete if ttl as read (so it exists) | T += k if capacity is as read, and T <= C - k |
//! | fill | delete, as in release or reclaim | T += room, capped += rest if C and T are as read |
//! | renew | ttl, `purge_at` if ttl <= :ends (so it exists) | - |
//!
//! The condition of the delete makes giving back exactly-once. The capacity guard says only that there is
//! room. By itself it would let a release and a reclaim both restore one lease while other leases are out.

use alloc::borrow::Cow;
use alloc::string::String;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::{Bucket, FARTHEST_MARK};
use crate::lease::purge_at;
use crate::limit::LimitType;
use crate::plan::{Plan, Reason, Refusal, Take};
use crate::schema::{
    ADMITTED, BLOCKED_UNTIL, CAPACITY, CAPPED, COUNTED, Exact, LIMIT_TYPE, PURGE_AT, TOKENS, TTL, VERSION,
    WAITED_UNTIL,
};
use crate::statement::{AttributeNames, Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// The wait that a caller of a full concurrency bucket is given if nothing is known of the bucket's holders:
/// a guess.
pub const NO_SLOT_WAIT: Duration = Duration::from_secs(1);

/// Interleavings that the condition stops:
/// - `limit_type`: since the reading, which may be a minute old, the bucket was removed and recreated as a
///   rate bucket, and a call would take tokens of it past its brim.
/// - `tokens`: others took the last slot.
/// - `blocked_until`: a cool-down began.
static TAKE_SLOT: Statement = Statement::fixed(
    "SET #tokens = #tokens - :cost, #admitted = if_not_exists(#admitted, :0) + :cost, #version = #version + :1, \
     #counted = if_not_exists(#counted, :0) + :1",
    "#limit_type = :concurrent AND #tokens >= :cost \
     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)",
    &[TOKENS, ADMITTED, VERSION, COUNTED, BLOCKED_UNTIL, LIMIT_TYPE],
);

/// As [`TAKE_SLOT`], for callers of another share of the bucket.
///
/// Interleavings that the condition stops as well, both since the reading:
/// - `least` instead of `cost`: callers of the lender took slots, and a borrower would take of those that are
///   kept.
/// - `waited_until`: callers of the lender wait, and the slot is theirs.
static BORROW_SLOT: Statement = Statement::fixed(
    "SET #tokens = #tokens - :cost, #admitted = if_not_exists(#admitted, :0) + :cost, #version = #version + :1, \
     #counted = if_not_exists(#counted, :0) + :1",
    "#limit_type = :concurrent AND #tokens >= :least \
     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now) \
     AND (attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :far)",
    &[TOKENS, ADMITTED, VERSION, COUNTED, BLOCKED_UNTIL, LIMIT_TYPE, WAITED_UNTIL],
);

/// Interleavings that the condition stops:
/// - `limit_type`: the bucket was removed and recreated as a rate bucket; giving back would mint tokens.
/// - `capacity`: a resize between the reading and this write, after which the room would be judged by the
///   wrong capacity.
/// - `tokens`: a slot that another client already restored.
///
/// The delete's condition checks that the lease was not given back already.
static GIVE_BACK: Statement = Statement::fixed(
    "SET #tokens = #tokens + :slots, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1",
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens <= :highest",
    &[TOKENS, CAPACITY, VERSION, COUNTED, LIMIT_TYPE],
);

/// Gives back the slots that there is room for, and counts the rest for the recount: leases that are deleted
/// without their slots change what is held, and would not show otherwise.
///
/// Interleavings that the condition stops:
/// - `tokens`: slots were taken or given back since the reading, and the room has changed. Less than a
///   millionth counts as none.
/// - `capacity`: the bucket was resized, and the room has changed.
/// - `limit_type`: the bucket was removed, and this write would create a row; or it was recreated as a rate
///   bucket.
static FILL: Statement = Statement::fixed(
    "SET #tokens = :tokens, #capped = if_not_exists(#capped, :0) + :capped, #version = #version + :1, \
     #counted = if_not_exists(#counted, :0) + :1",
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :read_tokens AND #tokens < :above",
    &[TOKENS, CAPACITY, CAPPED, VERSION, COUNTED, LIMIT_TYPE],
);

/// Interleavings that the condition stops:
/// - The lease ended and was reclaimed, and a renewal would bring back a row whose slot is free (a row that
///   is gone has no `ttl` to compare).
/// - An older renewal arrives late and would shorten the lease.
static RENEW: Statement =
    Statement::fixed("SET #ttl = :ends, #purge_at = :purge_at", "#ttl <= :ends", &[TTL, PURGE_AT]);

/// Plans for one reading of a concurrency bucket.
#[derive(Clone, Copy, Debug)]
pub struct SlotPlanner<'a> {
    bucket: &'a Bucket,
}

impl<'a> SlotPlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        Self { bucket }
    }

    /// The bucket's half of an acquire (the lease is the other), or the refusal.
    #[must_use]
    pub fn plan(self, take: Take) -> Plan<Update> {
        match self.judge(take.cost, Amount::ZERO, None, take.now) {
            Plan::Write(total) => Plan::Write(self.write(total, None, take.now)),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    }

    /// Whether `cost` slots are free if the same write takes `taken` for others. `Write` holds the sum. A
    /// caller that borrows of another share `leaves` some free, and takes none while callers of that share
    /// wait.
    #[must_use]
    pub fn judge(self, cost: Cost, taken: Amount, leaves: Option<Amount>, now: Timestamp) -> Plan<Amount> {
        let capacity = self.bucket.limit().capacity();
        if cost.amount() > capacity {
            return Plan::NeverSatisfiable { capacity };
        }
        if let Some(wait) = self.bucket.cooling_down(now) {
            return Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown });
        }
        let total = taken.plus(cost.amount());
        let is_waited_for = leaves.is_some() && self.bucket.is_waited_for(now);
        if is_waited_for || self.bucket.tokens() < total.plus(leaves.unwrap_or_default()) {
            return Plan::Refuse(Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot });
        }
        Plan::Write(total)
    }

    /// The bucket's half of an acquire of `total` slots, for one caller or several. If some of them borrow,
    /// so many are free in all (`borrows`).
    #[must_use]
    pub fn write(self, total: Amount, borrows: Option<Amount>, now: Timestamp) -> Update {
        let mut values = alloc::vec![
            (":cost", Operand::number(total)),
            (":concurrent", Operand::text(LimitType::Concurrent)),
            (":now", Operand::number(now)),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ];
        let statement = Cow::Borrowed(if borrows.is_some() { &BORROW_SLOT } else { &TAKE_SLOT });
        if let Some(least) = borrows {
            values.extend([
                (":least", Operand::number(least)),
                (":far", Operand::number(now.after(FARTHEST_MARK))),
            ]);
        }
        Update { key: self.bucket.key(), statement, values }
    }
}

/// The same take for a caller that leaves free slots to those that wait for them.
///
/// Interleaving that the condition stops: a process that gives its slot back and asks again knows of nobody,
/// and passes all that wait, each time.
#[must_use]
pub fn behind_those_that_wait(take: Update, now: Timestamp) -> Update {
    if take.values.iter().any(|(name, _)| *name == ":far") {
        // A caller that borrows leaves them anyway.
        return take;
    }
    let condition = alloc::format!(
        "{} AND (attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :far)",
        take.statement.condition
    );
    let names =
        AttributeNames::of(&[TOKENS, ADMITTED, VERSION, COUNTED, BLOCKED_UNTIL, LIMIT_TYPE, WAITED_UNTIL]);
    let statement = Statement { update: take.statement.update.clone(), condition: condition.into(), names };
    let mut values = take.values;
    values.push((":far", Operand::number(now.after(FARTHEST_MARK))));
    Update { statement: Cow::Owned(statement), values, ..take }
}

/// The bucket's half of giving back `slots`, judged by the capacity that was read.
#[must_use]
pub fn give_back(key: String, capacity: &Exact<Amount>, slots: Amount) -> Update {
    Update {
        key,
        statement: Cow::Borrowed(&GIVE_BACK),
        values: alloc::vec![
            (":slots", Operand::number(slots)),
            (":read_capacity", Operand::number(capacity)),
            (":concurrent", Operand::text(LimitType::Concurrent)),
            (":highest", Operand::number(capacity.get().minus(slots))),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ],
    }
}

/// The most that a lease counts as holding, whatever it says. Otherwise the sum of a few wrong leases would
/// exceed the range of numbers, and nobody could read their bucket any more.
pub(super) fn most_counted(capacity: Amount) -> Amount {
    capacity.max(Amount::from_tokens(1_000_000))
}

/// The bucket's half of giving `slots` back to a bucket that has no room for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    capacity: Exact<Amount>,
    seen: Amount,
    /// Slots that come back, out of those that the leases held.
    pub(crate) back: Amount,
    /// The rest: slots that were minted before. The end of the leases makes up for them.
    pub(crate) over: Amount,
}

impl Fill {
    pub(crate) fn new(bucket: &Bucket, slots: Amount) -> Self {
        let (capacity, seen) = (bucket.capacity_as_read().clone(), bucket.tokens());
        let room = capacity.get().minus(seen);
        let back = slots.min(room).max(Amount::ZERO);
        let over = slots.min(most_counted(capacity.get())).minus(back);
        Self { capacity, seen, back, over }
    }

    pub(crate) fn update(&self, key: String) -> Update {
        Update {
            key,
            statement: Cow::Borrowed(&FILL),
            values: alloc::vec![
                (":tokens", Operand::number(self.seen.plus(self.back))),
                (":capped", Operand::number(self.over)),
                (":read_capacity", Operand::number(&self.capacity)),
                (":concurrent", Operand::text(LimitType::Concurrent)),
                (":read_tokens", Operand::number(self.seen)),
                (":above", Operand::number(self.seen.plus(Amount::from_micros(1)))),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }
}

/// The write that lets the lease `key` end at `ends`, rounded up to a whole second, and never earlier than
/// the lease ends already.
#[must_use]
pub fn renew(key: String, ends: Timestamp) -> Update {
    let ends = ends.ceil_to_second();
    let values =
        alloc::vec![(":ends", Operand::number(ends)), (":purge_at", Operand::number(purge_at(ends)))];
    Update { key, statement: Cow::Borrowed(&RENEW), values }
}
