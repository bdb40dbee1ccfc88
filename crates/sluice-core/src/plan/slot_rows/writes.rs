//! The writes of a change of shares of slots.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::bucket::slot_shares::SlotShare;
use crate::dimension::Dimension;
use crate::limit::{Limit, LimitType};
use crate::plan::change::RESIZES;
use crate::schema::{
    BLOCKED_UNTIL, CAPACITY, CHANGES_TO, COST_CHANGES_TO, COST_PER_CALL, COUNTED, KEY, LAST_REFILL_AT,
    LIMIT_TYPE, LINE_BACKGROUND, LINE_CAPACITY, LINE_CLOSED, LINE_FLOOR, PROTOCOL, REFILL_RATE, SHARES,
    TOKENS, VERSION,
};
use crate::statement::{AttributeNames, Delete, Operand, Statement, Update, Values, Write};
use crate::timestamp::Timestamp;

/// Condition on the bucket's own row, in addition to `shares`, `changes_to` and `cost_changes_to` as read
/// ([`own_row`]). Interleavings that they stop:
/// - The bucket was removed, and this write would create a row; or it was made again as a rate bucket.
/// - An operator has named a share since the reading, or somebody has made its row. Its name would be lost,
///   or its slots given to others.
/// - An operator has stated another limit since, or the change has ended: this write would exceed that limit.
/// - `capacity`: another change began and ended since, or somebody gave the same slots to another line.
const AS_STATED: &str = "#limit_type = :concurrent AND #capacity = :read_capacity AND ";

/// Update of a row whose slots do not change.
const STAYS: &str = "SET #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1";

const OF_NAMES: &[&str] = &[SHARES, CHANGES_TO, COST_CHANGES_TO, CAPACITY, VERSION, COUNTED, LIMIT_TYPE];

/// Interleaving that the condition stops: a caller took a slot since the reading, and the lease would be left
/// without its bucket while another line has the slot.
static REMOVE: Statement = Statement::guard(
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :read_capacity",
    &[CAPACITY, TOKENS, LIMIT_TYPE],
);

/// Interleaving that it stops: the line has fallen below zero since the reading, and more of it is held than
/// was counted.
const AS_COUNTED: &str = "#tokens >= :least AND ";

/// Interleaving that these two stop: a cool-down began, ended or was made longer since the reading, and a row
/// that is made does not have it, or has its old end.
const NOT_COOLING: &str = "attribute_not_exists(#blocked_until) AND ";
const COOLING_AS_READ: &str = "#blocked_until >= :cools_from AND #blocked_until <= :cools_until AND ";

/// Interleaving that these two stop: an operator has set `protocol` since the reading, and the new row would
/// admit older versions.
const KEEPS_NOBODY_OUT: &str = "attribute_not_exists(#protocol) AND ";
const KEEPS_OUT_AS_READ: &str = "#protocol = :protocol AND ";

const OF_SLOTS: &[&str] =
    &[TOKENS, CAPACITY, COST_PER_CALL, SHARES, CHANGES_TO, COST_CHANGES_TO, VERSION, COUNTED, LIMIT_TYPE];

const OF_GROWTH: &[&str] = &[
    TOKENS,
    CAPACITY,
    COST_PER_CALL,
    BLOCKED_UNTIL,
    PROTOCOL,
    SHARES,
    CHANGES_TO,
    COST_CHANGES_TO,
    VERSION,
    COUNTED,
    LIMIT_TYPE,
];

/// Growth of the row of a share. The bucket's own row is in the same transaction.
static GROW: Statement = Statement::fixed(
    RESIZES,
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :least",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE],
);

/// What the bucket's own row gets, or loses.
pub(super) struct OwnSlots {
    pub(super) cost: Cost,
    /// Below zero if it shrinks.
    pub(super) more: Amount,
    /// Whether other rows get theirs in the same write, because all were counted.
    pub(super) all_are_counted: bool,
}

/// The write of the bucket's own row that leaves it with these names, and changing to this limit or not
/// at all.
pub(super) fn own_row(
    own: &Bucket,
    names: &[SlotShare],
    changes_to: Option<Limit>,
    slots: Option<OwnSlots>,
) -> Write {
    let (before, (whole, cost)) = (own.slot_shares(), own.changes_to_as_read());
    let (mut update, mut removes) = (String::from(STAYS), String::new());
    let mut condition = String::from(AS_STATED);
    let (mut values, mut attributes) = (as_read(own), OF_NAMES);
    let states = [
        State {
            name: "#shares",
            after: (":shares", (!names.is_empty()).then(|| map_of(names))),
            read: (":read_shares", (!before.is_empty()).then(|| map_of(before))),
        },
        State {
            name: "#changes_to",
            after: (":changes_to", changes_to.map(|whole| Operand::number(whole.capacity()))),
            read: (":read_changes_to", whole.map(Operand::number)),
        },
        State {
            name: "#cost_changes_to",
            after: (":cost_changes_to", changes_to.map(|whole| Operand::number(whole.cost_per_call()))),
            read: (":read_cost_changes_to", cost.map(Operand::number)),
        },
    ];
    if let Some(OwnSlots { cost, more, .. }) = &slots {
        update = RESIZES.into();
        values.extend(moved(own, *cost, *more));
        attributes = OF_SLOTS;
    }
    if slots.is_some_and(|slots| slots.all_are_counted) {
        as_counted(own, &mut condition, &mut values);
        attributes = OF_GROWTH;
    }
    for (at, State { name, after, read }) in states.into_iter().enumerate() {
        if at > 0 {
            condition.push_str(" AND ");
        }
        match (after, &read.1) {
            ((_, after), read) if after == *read => {}
            ((placeholder, Some(after)), _) => {
                update.push_str(&[", ", name, " = ", placeholder].concat());
                values.push((placeholder, after));
            }
            _ => removes.push_str(&[if removes.is_empty() { " REMOVE " } else { ", " }, name].concat()),
        }
        match read {
            (placeholder, Some(read)) => {
                condition.push_str(&[name, " = ", placeholder].concat());
                values.push((placeholder, read));
            }
            (_, None) => condition.push_str(&["attribute_not_exists(", name, ")"].concat()),
        }
    }
    update.push_str(&removes);
    let names = AttributeNames::of(attributes);
    let statement = Statement { update: update.into(), condition: condition.into(), names };
    Write::Update(Update { key: own.key(), statement: Cow::Owned(statement), values })
}

/// The conditions of a write that gives other rows slots, too.
fn as_counted(own: &Bucket, condition: &mut String, values: &mut Values) {
    condition.push_str(AS_COUNTED);
    values.push(least(own));
    match own.blocked_until() {
        None => condition.push_str(NOT_COOLING),
        Some(until) => {
            // Another client may have written it with more decimals.
            let tick = Duration::from_micros(1);
            condition.push_str(COOLING_AS_READ);
            values.push((":cools_from", Operand::number(until.before(tick))));
            values.push((":cools_until", Operand::number(until.after(tick))));
        }
    }
    match own.protocol() {
        None => condition.push_str(KEEPS_NOBODY_OUT),
        Some(protocol) => {
            condition.push_str(KEEPS_OUT_AS_READ);
            values.push((":protocol", Operand::number(protocol)));
        }
    }
}

/// An attribute of the bucket's row: what it is to be, and what it was read as.
struct State {
    name: &'static str,
    after: (&'static str, Option<Operand>),
    read: (&'static str, Option<Operand>),
}

fn map_of(shares: &[SlotShare]) -> Operand {
    Operand::Map(shares.iter().map(|share| (Cow::Owned(share.name.to_string()), entry(share))).collect())
}

fn entry(share: &SlotShare) -> Operand {
    let flag = |name, is_set: bool| is_set.then(|| (Cow::Borrowed(name), Operand::number(1)));
    let capacity = Some((Cow::Borrowed(LINE_CAPACITY), Operand::number(share.capacity)));
    let floor = share.floor.map(|floor| (Cow::Borrowed(LINE_FLOOR), Operand::number(floor)));
    let flags = [flag(LINE_BACKGROUND, share.is_background), flag(LINE_CLOSED, share.is_closed)];
    Operand::Map([capacity, floor].into_iter().chain(flags).flatten().collect::<Box<[_]>>())
}

/// A share's row grows.
pub(super) fn grow(bucket: &Bucket, cost: Cost, more: Amount) -> Write {
    let mut values = as_read(bucket);
    values.extend(moved(bucket, cost, more));
    values.push(least(bucket));
    Write::Update(Update { key: bucket.key(), statement: Cow::Borrowed(&GROW), values })
}

/// The row of a share goes.
pub(super) fn remove(bucket: &Bucket) -> Write {
    let values = alloc::vec![
        (":concurrent", Operand::text(LimitType::Concurrent)),
        (":read_capacity", Operand::number(bucket.capacity_as_read())),
    ];
    Write::Delete(Delete { key: bucket.key(), statement: &REMOVE, values })
}

/// The values that every write of a row has.
fn as_read(bucket: &Bucket) -> Values {
    alloc::vec![
        (":concurrent", Operand::text(LimitType::Concurrent)),
        (":read_capacity", Operand::number(bucket.capacity_as_read())),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ]
}

/// The values of a row that gets `more` slots.
fn moved(bucket: &Bucket, cost: Cost, more: Amount) -> Values {
    let capacity = bucket.limit().capacity().plus(more);
    alloc::vec![
        (":step", Operand::number(more)),
        (":capacity", Operand::number(capacity)),
        (":cost_per_call", Operand::number(cost.amount().min(capacity))),
    ]
}

/// The free slots with which no more is held of a row than was counted.
fn least(bucket: &Bucket) -> (&'static str, Operand) {
    (":least", Operand::number(bucket.tokens().min(Amount::ZERO)))
}

/// The write that makes the row of a share. It is an update, as sweeps may not put rows.
///
/// Interleaving that the condition stops: somebody has created a bucket of this name since the reading.
pub(super) fn made(row: &Dimension, limit: Limit, own: &Bucket) -> Write {
    let item = Bucket::full(row.clone(), limit, Timestamp::default()).create().item;
    let mut values: Values = Vec::new();
    let mut sets = String::from(
        "SET #capacity = :capacity, #tokens = :tokens, #refill_rate = :refill_rate, \
         #last_refill_at = :anchor, #cost_per_call = :cost_per_call, #limit_type = :limit_type, #version = :version",
    );
    let mut attributes =
        alloc::vec![KEY, CAPACITY, TOKENS, REFILL_RATE, LAST_REFILL_AT, COST_PER_CALL, LIMIT_TYPE, VERSION];
    let placeholder = |name| match name {
        CAPACITY => ":capacity",
        TOKENS => ":tokens",
        REFILL_RATE => ":refill_rate",
        LAST_REFILL_AT => ":anchor",
        COST_PER_CALL => ":cost_per_call",
        LIMIT_TYPE => ":limit_type",
        _ => ":version",
    };
    values.extend(
        item.into_iter().filter(|(name, _)| *name != KEY).map(|(name, value)| (placeholder(name), value)),
    );
    // The rows of a bucket keep out the same versions, and cool down together.
    if let Some(protocol) = own.protocol() {
        sets.push_str(", #protocol = :protocol");
        attributes.push(PROTOCOL);
        values.push((":protocol", Operand::number(protocol)));
    }
    if let Some(until) = own.blocked_until() {
        sets.push_str(", #blocked_until = :blocked_until");
        attributes.push(BLOCKED_UNTIL);
        values.push((":blocked_until", Operand::number(until)));
    }
    let names = AttributeNames { attributes: attributes.into(), entries: Vec::new() };
    let statement = Statement { update: sets.into(), condition: "attribute_not_exists(#key)".into(), names };
    Write::Update(Update { key: row.to_string(), statement: Cow::Owned(statement), values })
}
