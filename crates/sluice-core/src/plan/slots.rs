//! Concurrency buckets: a slot and its lease change together, in one transaction.
//!
//! | action  | lease                                              | bucket                                              |
//! |---------|----------------------------------------------------|-----------------------------------------------------|
//! | acquire | put if `attribute_not_exists(pk)`                  | T -= k, admitted += k if T >= k and not blocked     |
//! | release | delete if `attribute_exists(pk)`                   | T += k if concurrent, capacity = :c and T <= C - k  |
//! | reclaim | delete if ttl = :seen (so it exists)               | T += k if capacity = :c and T <= C - k              |
//! | cap     | delete, as in release or reclaim                   | capped += k: there was no room (T > C - k)          |
//! | renew   | ttl, `purge_at` if ttl <= :new (so it exists)      | -                                                   |
//!
//! The delete's condition makes giving back exactly-once. The capacity guard says only that there is room, and by itself
//! would let a release and a reclaim both restore one lease while others are out.

use alloc::string::String;
use core::time::Duration;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::lease::purge_at;
use crate::limit::LimitType;
use crate::plan::{Plan, Reason, Refusal, Take};
use crate::schema::{
    ADMITTED, BLOCKED_UNTIL, CAPACITY, CAPPED, COUNTED, Exact, LIMIT_TYPE, PURGE_AT, TOKENS, TTL, VERSION,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// What a caller of a full concurrency bucket is told to wait: nobody knows when a holder will release, so this is a guess.
const NO_SLOT_WAIT: Duration = Duration::from_secs(1);

/// Interleavings that the condition stops: others took the last slot since the reading (T); a cool-down began (b).
static TAKE_SLOT: Statement = Statement {
    update: "SET #T = #T - :k, #n = if_not_exists(#n, :0) + :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "#T >= :k AND (attribute_not_exists(#b) OR #b <= :now)",
    names: &[("#T", TOKENS), ("#n", ADMITTED), ("#v", VERSION), ("#w", COUNTED), ("#b", BLOCKED_UNTIL)],
};

/// Interleavings that the condition stops: the bucket was removed and made anew as a limit over time (l), which would mint tokens;
/// a resize between the reading and this write (C), after which the room would be judged by the wrong capacity; a slot that
/// another client already restored (T). That the lease was given back already is for the delete's condition to say.
static GIVE_BACK: Statement = Statement {
    update: "SET #T = #T + :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "#l = :l AND #C = :c AND #T <= :room",
    names: &[("#T", TOKENS), ("#C", CAPACITY), ("#v", VERSION), ("#w", COUNTED), ("#l", LIMIT_TYPE)],
};

/// Counts leases that are deleted without a slot, for the recount: they change what is held, and would not show. Interleaving
/// that the condition stops: the bucket was removed, or made anew as a limit over time, and this would make a row (l).
static CAP: Statement = Statement {
    update: "SET #x = if_not_exists(#x, :0) + :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "#l = :l",
    names: &[("#x", CAPPED), ("#v", VERSION), ("#w", COUNTED), ("#l", LIMIT_TYPE)],
};

/// Interleavings that the condition stops: the lease ended and was reclaimed, and a renewal would bring back a row whose slot
/// is free (a row that is gone has no `ttl` to compare); an older renewal that arrives late would shorten the lease.
static RENEW: Statement =
    Statement { update: "SET #e = :e, #p = :p", condition: "#e <= :e", names: &[("#e", TTL), ("#p", PURGE_AT)] };

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
        let capacity = self.bucket.limit().capacity();
        if take.cost.amount() > capacity {
            return Plan::NeverSatisfiable { capacity };
        }
        if let Some(wait) = self.bucket.cooling_down(take.now) {
            return Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown });
        }
        if self.bucket.tokens() < take.cost.amount() {
            return Plan::Refuse(Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot });
        }
        Plan::Write(self.take(take))
    }

    fn take(self, take: Take) -> Update {
        Update {
            key: self.bucket.key(),
            statement: &TAKE_SLOT,
            values: alloc::vec![
                (":k", Operand::number(take.cost)),
                (":now", Operand::number(take.now)),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }
}

/// The bucket's half of giving back `slots`, judged by the capacity that was read.
#[must_use]
pub fn give_back(key: String, capacity: &Exact<Amount>, slots: Amount) -> Update {
    Update {
        key,
        statement: &GIVE_BACK,
        values: alloc::vec![
            (":k", Operand::number(slots)),
            (":c", Operand::number(capacity)),
            (":l", Operand::text(LimitType::Concurrent)),
            (":room", Operand::number(capacity.get().minus(slots))),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ],
    }
}

/// The bucket's half of deleting leases alone, which held `slots` of a bucket that was full.
#[must_use]
pub fn cap(key: String, slots: Amount) -> Update {
    Update {
        key,
        statement: &CAP,
        values: alloc::vec![
            (":k", Operand::number(slots)),
            (":l", Operand::text(LimitType::Concurrent)),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ],
    }
}

/// The write that lets the lease `key` end at `ends`, a whole second, and not earlier than it does already.
#[must_use]
pub fn renew(key: String, ends: Timestamp) -> Update {
    let ends = ends.ceil_to_second();
    let values = alloc::vec![(":e", Operand::number(ends)), (":p", Operand::number(purge_at(ends)))];
    Update { key, statement: &RENEW, values }
}
