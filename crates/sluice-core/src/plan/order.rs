//! The order in which callers of all processes have slots: numbers that are drawn and served.
//!
//! A caller that has to wait for a slot draws a number: the count of numbers drawn so far, in the load row of
//! its bucket. The bucket's row counts how many have been served, in the write that takes the slot. So two
//! counts say how many stand before a caller, however many wait. The order is advice: a take needs free
//! slots, and no number. A client that does not know of numbers takes slots as before. A wrong count can
//! change the order, or leave a slot idle for a moment. It never loses a slot.

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use core::time::Duration;

use crate::bucket::FARTHEST_MARK;
use crate::dimension::Dimension;
use crate::limit::LimitType;
use crate::load::Load;
use crate::schema::{self, DRAWN, LIMIT_TYPE, Row, WAITED_UNTIL};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// How long a mark says that callers wait. Longer costs fewer writes; shorter ends sooner what callers pay
/// for a number after the last of a crowd was served.
pub const WAIT_MARK: Duration = Duration::from_secs(4);

/// DynamoDB cannot add to a count that is not a number: it would answer with an error.
static DRAW: Statement = Statement::fixed(
    "SET #drawn = if_not_exists(#drawn, :0) + :callers",
    "attribute_not_exists(#drawn) OR attribute_type(#drawn, :number)",
    &[DRAWN],
);

/// Interleaving that the condition stops: others drew since, and their numbers would be drawn again.
static CATCH_UP: Statement = Statement::fixed("SET #drawn = :drawn", "#drawn = :read_drawn", &[DRAWN]);

/// Interleavings that the condition stops:
/// - the bucket was removed, and the write would create half a row, or it was recreated as a rate bucket;
/// - another process has marked it: one write of many is enough. A mark that nobody believes is replaced.
///
/// The version stays: nothing that other clients read has changed.
static MARK: Statement = Statement::fixed(
    "SET #waited_until = :until",
    "#limit_type = :concurrent AND (attribute_not_exists(#waited_until) OR #waited_until < :soon OR #waited_until > :far)",
    &[LIMIT_TYPE, WAITED_UNTIL],
);

/// The write that draws numbers for so many callers. Sent twice, it draws twice: the numbers between are
/// passed over. The reply shows the load row, whose [`drawn`] is the number after the last one.
#[must_use]
pub fn draw(dimension: &Dimension, callers: u32) -> Update {
    let values = alloc::vec![
        (":callers", Operand::number(callers)),
        (":0", Operand::number(0)),
        (":number", Operand::text("N")),
    ];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&DRAW), values }
}

/// How many numbers have been drawn, by the load row; `None` if it does not say.
#[must_use]
pub fn drawn(row: &impl Row) -> Option<i64> {
    schema::count(row, DRAWN).ok()
}

/// The write that lets numbers go on after `served`, for a load row that counts `drawn` although more have
/// been served: the load row was lost, or callers were passed over that came nevertheless. The caller that
/// writes this has the last `callers` of the new numbers.
#[must_use]
pub fn catch_up(dimension: &Dimension, drawn: i64, served: i64, callers: u32) -> Update {
    let values = alloc::vec![
        (":drawn", Operand::number(served.saturating_add(i64::from(callers)))),
        (":read_drawn", Operand::number(drawn)),
    ];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&CATCH_UP), values }
}

/// The write that says in the bucket's row that callers wait.
#[must_use]
pub fn mark_waiting(dimension: &Dimension, now: Timestamp) -> Update {
    let values = alloc::vec![
        (":until", Operand::number(now.after(WAIT_MARK))),
        (":soon", Operand::number(now.after(WAIT_MARK / 2))),
        (":far", Operand::number(now.after(FARTHEST_MARK))),
        (":concurrent", Operand::text(LimitType::Concurrent)),
    ];
    Update { key: dimension.to_string(), statement: Cow::Borrowed(&MARK), values }
}

/// Whether a mark that ends at `until` needs to be made again.
#[must_use]
pub fn is_mark_old(until: Option<Timestamp>, now: Timestamp) -> bool {
    until.is_none_or(|until| until < now.after(WAIT_MARK / 2) || until > now.after(FARTHEST_MARK))
}
