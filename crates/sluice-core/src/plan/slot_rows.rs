//! Declaring, changing and removing shares of a concurrency bucket: one step after the other, each from a
//! reading of all rows, until the rows are as wanted.
//!
//! | step | write | condition |
//! |---|---|---|
//! | names | `shares` of the bucket's row | `shares` as read; no row of a share whose name goes |
//! | shrink | C = wanted, T = T - (C - wanted) | C as read |
//! | remove | delete a share's row | C as read, T >= C |
//! | grow | each row: C = C + m, T = T + m; or put | each row: C as read, T >= min(T as read, 0); or no row |
//!
//! A step that grows lines is one transaction over all rows (m is 0 for those that stay), with `shares` as
//! read. With H = C - T, what is held of a line, each step keeps the sum over the lines of max(C, H) at the
//! whole limit or below, once it is there. So the vendor never sees more calls at once than that. A line that
//! shrinks while its slots are held goes below zero, and gives nothing until they come back; the others grow
//! by as much as has come back.
//!
//! A share that goes stays named, closed, until its row is gone; a new one is named, closed, before its row
//! exists. So the next step finds every row, also after a crash. Callers use no closed share.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;

use super::change::Change;
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::slot_shares::SlotShare;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::limit::LimitType;
use crate::limit::split::{MOST_SHARES, ShareLimit, Split};
use crate::schema::{
    BLOCKED_UNTIL, CAPACITY, COST_PER_CALL, COUNTED, KEY, LIMIT_TYPE, LINE_BACKGROUND, LINE_CAPACITY,
    LINE_CLOSED, LINE_FLOOR, PROTOCOL, SHARES, TOKENS, VERSION,
};
use crate::share::ShareName;
use crate::statement::{Delete, Operand, Statement, Update, Write};
use crate::timestamp::Timestamp;

const NAMED: &str =
    "SET #shares = :shares, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1";

/// Interleavings that the condition stops:
/// - The bucket was removed, and this write would create a row; or it was made again as a rate bucket.
/// - Another operator has named a share since the reading. Its row would be left without a name, and the next
///   operator would give its slots to others.
static NAME_SHARES: Statement = Statement::fixed(
    NAMED,
    "#limit_type = :concurrent AND #shares = :read_shares",
    &[SHARES, VERSION, COUNTED, LIMIT_TYPE],
);

/// As [`NAME_SHARES`], for the first share.
static NAME_FIRST: Statement = Statement::fixed(
    NAMED,
    "#limit_type = :concurrent AND attribute_not_exists(#shares)",
    &[SHARES, VERSION, COUNTED, LIMIT_TYPE],
);

/// As [`NAME_SHARES`], if no share is left.
static NAME_NONE: Statement = Statement::fixed(
    "SET #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1 REMOVE #shares",
    "#limit_type = :concurrent AND #shares = :read_shares",
    &[SHARES, VERSION, COUNTED, LIMIT_TYPE],
);

/// Deletes nothing. Interleavings that the condition stops: since the reading, another operator has made the
/// row of a share whose name goes, or whose slots this write gives to others.
static NO_ROW: Statement = Statement::guard("attribute_not_exists(#key)", &[KEY]);

/// Interleaving that the condition stops: a caller took a slot since the reading, and the lease would be left
/// without its bucket while another line has the slot.
static REMOVE: Statement = Statement::guard(
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :read_capacity",
    &[CAPACITY, TOKENS, LIMIT_TYPE],
);

const GROWN: &str = "SET #tokens = #tokens + :step, #capacity = :capacity, #cost_per_call = :cost_per_call, #version = #version + :1, \
     #counted = if_not_exists(#counted, :0) + :1";

/// Interleavings that the condition stops:
/// - `capacity`: another operator has given the same slots to another line since the reading.
/// - `tokens`: the line has fallen below zero since, and more of it is held than was counted.
/// - `shares`, of the bucket's own row: another operator has taken away the name of a share whose row this
///   write makes, or has named one whose row has slots that were not counted.
static GROW: Statement = Statement::fixed(
    GROWN,
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :least",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE],
);

/// [`GROW`] of the bucket's own row, which names shares.
static GROW_NAMED: Statement = Statement::fixed(
    GROWN,
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :least AND #shares = :read_shares",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE, SHARES],
);

/// [`GROW`] of the bucket's own row, which names none.
static GROW_ALONE: Statement = Statement::fixed(
    GROWN,
    "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :least AND attribute_not_exists(#shares)",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE, SHARES],
);

/// The rows of a concurrency bucket: its own, and those of its shares.
#[derive(Clone, Debug)]
pub struct SlotRows {
    /// The bucket's own row.
    pub common: Bucket,
    /// The row of each share that [`names`](Self::names) lists; `None` for one that does not exist.
    pub shares: Vec<Option<Bucket>>,
}

/// What brings the rows nearer to what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotStep {
    /// The rows are as wanted.
    Done,
    /// These writes, in one transaction. Then the rows are read again, whether they were applied or not.
    Write(Vec<Write>),
    /// The row of this share is not used any more, and goes with this write.
    Remove(Dimension, Write),
    /// So many slots are still held by calls that began before. Nothing can be done until they come back.
    Wait(Amount),
}

/// One row, with what it is to be.
struct Line<'a> {
    row: Dimension,
    now: Option<&'a Bucket>,
    /// `None` for a share that goes.
    wanted: Option<&'a Limit>,
}

impl Line<'_> {
    fn capacity(&self) -> Amount {
        self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity())
    }

    /// What the line may have in use at once, now or later: max(C, H).
    fn counts(&self) -> Amount {
        let held = self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity().minus(bucket.tokens()));
        self.capacity().max(held)
    }

    fn lacks(&self) -> Amount {
        self.wanted.map_or(Amount::ZERO, |wanted| wanted.capacity().minus(self.capacity()).max(Amount::ZERO))
    }
}

impl SlotRows {
    /// The shares whose rows are to be read: those that `common` names, and those of `to`, sorted.
    #[must_use]
    pub fn names(common: &Bucket, to: &Split) -> Vec<ShareName> {
        let named = common.slot_shares().iter().map(|share| share.name.clone());
        let mut names: Vec<_> = named.chain(to.shares().iter().map(|share| share.name.clone())).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What to do next, so that the rows become as `to` says.
    #[must_use]
    pub fn next(&self, to: &Split, now: Timestamp) -> SlotStep {
        let found = |row: &Dimension| self.shares.iter().flatten().any(|bucket| bucket.dimension() == row);
        let before = names_while_changing(self.common.slot_shares(), to, &self.common);
        let stays =
            before.iter().filter(|share| !share.is_closed || is_wanted(share, to) || found(&share.row));
        let before: Vec<SlotShare> = stays.cloned().collect();
        if before.len() > 2 * MOST_SHARES {
            // The rows of shares that go are still in use, and a row with more names could not be read.
            return SlotStep::Wait(to.whole().cost_per_call().amount());
        }
        if before != self.common.slot_shares() && before.iter().any(|share| share.is_closed) {
            return SlotStep::Write(self.name(&before));
        }
        let lines = self.lines(to);
        for line in &lines {
            if let Some(step) = line.now.and_then(|bucket| shrink(bucket, line.wanted, now)) {
                return step;
            }
        }
        let counted = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.counts()));
        let lacking = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.lacks()));
        if lacking > Amount::ZERO {
            let free = to.whole().capacity().minus(counted);
            return grow(&lines, to, free, now).map_or(SlotStep::Wait(lacking), SlotStep::Write);
        }
        if lines.iter().any(|line| line.wanted.is_none() && line.now.is_some()) {
            return SlotStep::Wait(counted.minus(to.whole().capacity()).max(Amount::ZERO));
        }
        let after: Vec<SlotShare> =
            to.shares().iter().filter_map(|share| named(share, &self.common)).collect();
        match after == self.common.slot_shares() {
            true => SlotStep::Done,
            false => SlotStep::Write(self.name(&after)),
        }
    }

    fn lines<'a>(&'a self, to: &'a Split) -> Vec<Line<'a>> {
        let row = |name: &ShareName| self.common.dimension().of_share(name);
        let at = |row: &Dimension| self.shares.iter().flatten().find(|bucket| bucket.dimension() == row);
        let shares = Self::names(&self.common, to).into_iter().filter_map(|name| {
            let row = row(&name)?;
            let wanted = to.shares().iter().find(|share| share.name == name).map(|share| &share.limit);
            Some(Line { now: at(&row), row, wanted })
        });
        let own =
            Line { row: self.common.dimension().clone(), now: Some(&self.common), wanted: Some(to.common()) };
        core::iter::once(own).chain(shares).collect()
    }

    /// The names from now on, each of them with its row or none; and none of a name that goes.
    fn name(&self, shares: &[SlotShare]) -> Vec<Write> {
        let before = self.common.slot_shares();
        let mut values = alloc::vec![
            (":concurrent", Operand::text(LimitType::Concurrent)),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ];
        let statement = match (before, shares) {
            ([], _) => &NAME_FIRST,
            (_, []) => &NAME_NONE,
            _ => &NAME_SHARES,
        };
        if !shares.is_empty() {
            values.push((":shares", map_of(shares)));
        }
        if !before.is_empty() {
            values.push((":read_shares", map_of(before)));
        }
        let update = Update { key: self.common.key(), statement: Cow::Borrowed(statement), values };
        let go = before.iter().filter(|share| shares.iter().all(|stays| stays.name != share.name));
        core::iter::once(Write::Update(update))
            .chain(go.map(|share| Write::Delete(no_row(&share.row))))
            .collect()
    }
}

fn is_wanted(share: &SlotShare, to: &Split) -> bool {
    to.shares().iter().any(|wanted| wanted.name == share.name)
}

/// The names while the rows change: what is open and wanted stays open; all else is closed.
fn names_while_changing(named_now: &[SlotShare], to: &Split, common: &Bucket) -> Vec<SlotShare> {
    let is_open = |name: &str| named_now.iter().any(|share| share.name.as_str() == name && !share.is_closed);
    let wanted = to.shares().iter().filter_map(|share| named(share, common));
    let wanted = wanted.map(|share| SlotShare { is_closed: !is_open(share.name.as_str()), ..share });
    let leaving = named_now.iter().filter(|share| !is_wanted(share, to));
    let leaving = leaving.map(|share| SlotShare { is_closed: true, ..share.clone() });
    let mut all: Vec<SlotShare> = wanted.chain(leaving).collect();
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    all
}

fn named(share: &ShareLimit, common: &Bucket) -> Option<SlotShare> {
    Some(SlotShare {
        name: share.name.clone(),
        row: common.dimension().of_share(&share.name)?,
        capacity: share.limit.capacity(),
        floor: share.floor,
        is_background: share.background,
        is_closed: false,
    })
}

fn no_row(row: &Dimension) -> Delete {
    Delete { key: row.to_string(), statement: &NO_ROW, values: Vec::new() }
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

/// The step of a line that has more than it is to have, or another cost of a call.
fn shrink(bucket: &Bucket, wanted: Option<&Limit>, now: Timestamp) -> Option<SlotStep> {
    let limit = bucket.limit();
    let Some(wanted) = wanted else {
        if bucket.tokens() >= limit.capacity() {
            return Some(SlotStep::Remove(bucket.dimension().clone(), Write::Delete(remove(bucket))));
        }
        // A row without any slot could not be read.
        let call = limit.cost_per_call();
        let least = Limit::concurrent(call.amount(), call)
            .ok()
            .filter(|least| least.capacity() < limit.capacity())?;
        return resized(bucket, &least, now);
    };
    match limit.capacity() > wanted.capacity() || limit.capacity() == wanted.capacity() && limit != wanted {
        true => resized(bucket, wanted, now),
        false => None,
    }
}

fn resized(bucket: &Bucket, to: &Limit, now: Timestamp) -> Option<SlotStep> {
    Change::plan(bucket, to, now).ok().map(|update| SlotStep::Write(alloc::vec![Write::Update(update)]))
}

fn remove(bucket: &Bucket) -> Delete {
    let values = alloc::vec![
        (":concurrent", Operand::text(LimitType::Concurrent)),
        (":read_capacity", Operand::number(bucket.capacity_as_read())),
    ];
    Delete { key: bucket.key(), statement: &REMOVE, values }
}

/// Returns the transaction that gives `free` slots to the lines that lack some, in their order; `None` if no
/// line would get a whole call.
fn grow(lines: &[Line<'_>], to: &Split, mut free: Amount, now: Timestamp) -> Option<Vec<Write>> {
    let call = to.whole().cost_per_call();
    let (mut writes, mut grows) = (Vec::new(), false);
    // A cool-down of the vendor holds for all rows.
    let cools_until = lines.first().and_then(|own| own.now?.blocked_until()).filter(|until| *until > now);
    for (at, line) in lines.iter().enumerate() {
        let whole = line.wanted.is_some() && line.lacks() <= free;
        let more = if whole {
            line.lacks()
        } else {
            line.lacks().min(free.max(Amount::ZERO)).in_calls(call.amount())
        };
        let capacity = line.capacity().plus(more);
        let Some(bucket) = line.now else {
            let Some(limit) = Limit::concurrent(capacity, call).ok() else {
                writes.push(Write::Delete(no_row(&line.row)));
                continue;
            };
            let mut put = Bucket::full(line.row.clone(), limit, now).create();
            // The rows of a bucket keep out the same versions.
            if let Some(protocol) = lines.first().and_then(|own| own.now?.protocol()) {
                put.item.push((PROTOCOL, Operand::number(protocol)));
            }
            if let Some(until) = cools_until {
                put.item.push((BLOCKED_UNTIL, Operand::number(until)));
            }
            writes.push(Write::Put(put));
            (free, grows) = (free.minus(more), true);
            continue;
        };
        grows |= more > Amount::ZERO;
        free = free.minus(more);
        let cost = line.wanted.map_or(bucket.limit().cost_per_call(), Limit::cost_per_call);
        let mut values = alloc::vec![
            (":step", Operand::number(more)),
            (":capacity", Operand::number(capacity)),
            (":cost_per_call", Operand::number(cost.amount().min(capacity))),
            (":read_capacity", Operand::number(bucket.capacity_as_read())),
            (":least", Operand::number(bucket.tokens().min(Amount::ZERO))),
            (":concurrent", Operand::text(LimitType::Concurrent)),
            (":0", Operand::number(0)),
            (":1", Operand::number(1)),
        ];
        // The bucket's own row is the first.
        let statement = match (at, bucket.slot_shares()) {
            (0, []) => &GROW_ALONE,
            (0, named) => {
                values.push((":read_shares", map_of(named)));
                &GROW_NAMED
            }
            _ => &GROW,
        };
        writes.push(Write::Update(Update { key: bucket.key(), statement: Cow::Borrowed(statement), values }));
    }
    grows.then_some(writes)
}
