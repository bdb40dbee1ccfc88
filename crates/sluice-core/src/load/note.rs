//! The note of a process in a bucket's load row: its refusals, and itself as one that wants slots.
//!
//! Time is divided into periods of [`NOTE_EVERY`], and each process notes itself once a period. The row keeps
//! the counts of this period and the last: the larger one is the number of processes that want slots.

use alloc::borrow::Cow;
use alloc::string::String;
use core::time::Duration;

use super::Load;
use super::expired_holders::is_not_a_number;
use crate::dimension::Dimension;
use crate::schema::{self, CROWD, CROWD_BEFORE, CROWD_PERIOD, Field, REFUSED, Row};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::{Timestamp, whole_micros};

/// How often a process notes itself while its callers want slots: 8 s. A longer time costs fewer writes, and
/// the crowd follows later.
pub const NOTE_EVERY: Duration = Duration::from_secs(8);

/// The most processes that can note themselves in a period: DynamoDB takes 1,000 writes a second to one row.
pub const MOST_NOTED: u32 = 8_000;

/// Adds a process to the period that the row is in.
///
/// Interleaving that the condition stops: another process begins the next period first, and this process is
/// counted in the wrong period. DynamoDB cannot add to a count that is not a number: it answers with an error
/// and without the row. Therefore [`TURN`] replaces such a crowd, and [`CLEAR`] removes such a count of
/// refusals.
static JOIN: Statement = Statement::fixed(
    "SET #crowd = #crowd + :1, #refused = if_not_exists(#refused, :0) + :refusals",
    "#crowd_period = :crowd_period AND attribute_type(#crowd, :number) \
     AND (attribute_not_exists(#refused) OR attribute_type(#refused, :number))",
    &[CROWD_PERIOD, CROWD, REFUSED],
);

/// Begins the writer's period, and keeps the count of the period before.
///
/// Interleaving that the condition stops: two processes begin the same period, and the second removes the
/// first from the count. The second process reads the row in the reply, and joins. A period that is not a
/// number is replaced.
static TURN: Statement = Statement::fixed(
    "SET #crowd_period = :crowd_period, #crowd = :1, #crowd_before = :crowd_before, \
     #refused = if_not_exists(#refused, :0) + :refusals",
    "(attribute_not_exists(#crowd_period) OR NOT attribute_type(#crowd_period, :number) \
     OR #crowd_period = :read_crowd_period) \
     AND (attribute_not_exists(#refused) OR attribute_type(#refused, :number))",
    &[CROWD_PERIOD, CROWD, CROWD_BEFORE, REFUSED],
);

/// Removes a count of refusals that is not a number, so that the next note starts it again.
///
/// Interleaving that the condition stops: another process has started the count again, and what callers
/// reported since would be lost.
static CLEAR: Statement = Statement::fixed(
    "REMOVE #refused",
    "attribute_exists(#refused) AND NOT attribute_type(#refused, :number)",
    &[REFUSED],
);

/// The processes that noted themselves in a bucket's load row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    period: i64,
    count: i64,
    before: i64,
}

impl Crowd {
    /// Reads the counts. An attribute that is absent or cannot be read counts as zero.
    pub(super) fn read(row: &impl Row) -> Self {
        let count = |name| schema::count(row, name).unwrap_or_default().max(0);
        Self { period: count(CROWD_PERIOD), count: count(CROWD), before: count(CROWD_BEFORE) }
    }

    /// The larger count of the current period and the last. A process that left within them still counts.
    pub(super) fn size(self, now: Timestamp) -> i64 {
        match period(now).saturating_sub(self.period) {
            // Another process, whose clock is ahead, has begun the next period.
            -1 | 0 => self.count.max(self.before),
            1 => self.count,
            _ => 0,
        }
    }
}

fn period(now: Timestamp) -> i64 {
    now.micros().div_euclid(whole_micros(NOTE_EVERY))
}

/// The first try of a note, with the number of callers refused since the last note: it joins the period of
/// `now`. If its condition is false, [`note_again`] follows from the row in the reply. A note that is sent
/// twice counts twice. Both replies, success and failed condition, show the load row.
#[must_use]
pub fn note(dimension: &Dimension, refusals: u32, now: Timestamp) -> Update {
    join(dimension, refusals, Operand::number(period(now)))
}

/// The next try of a note whose condition was false for `row`.
#[must_use]
pub fn note_again(dimension: &Dimension, row: &impl Row, refusals: u32, now: Timestamp) -> Update {
    // The period as it was read: 8.5 is not a period, and must compare equal nevertheless.
    let seen =
        Operand::Number(schema::number(row, CROWD_PERIOD).map_or_else(|_| String::from("0"), String::from));
    let (crowd, now) = (Crowd::read(row), period(now));
    let may_join = matches!(row.field(CROWD), Some(Field::Number(_)));
    match now.saturating_sub(crowd.period) {
        -1 | 0 if may_join => join(dimension, refusals, seen),
        1 => turn(dimension, refusals, now, seen, crowd.count),
        // No process noted itself in the periods between, or a clock that is far ahead wrote the row.
        _ => turn(dimension, refusals, now, seen, 0),
    }
}

/// The write that makes room for a note, if the count of refusals in `row` is not a number; `None` if it is
/// one, or absent.
#[must_use]
pub fn clear_refusals(dimension: &Dimension, row: &impl Row) -> Option<Update> {
    is_not_a_number(row, REFUSED).then(|| Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&CLEAR),
        values: alloc::vec![(":number", Operand::text("N"))],
    })
}

fn join(dimension: &Dimension, refusals: u32, period: Operand) -> Update {
    let values = alloc::vec![
        (":crowd_period", period),
        (":1", Operand::number(1)),
        (":refusals", Operand::number(refusals)),
        (":0", Operand::number(0)),
        (":number", Operand::text("N")),
    ];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&JOIN), values }
}

fn turn(dimension: &Dimension, refusals: u32, period: i64, seen: Operand, before: i64) -> Update {
    let values = alloc::vec![
        (":crowd_period", Operand::number(period)),
        (":crowd_before", Operand::number(before)),
        (":read_crowd_period", seen),
        (":1", Operand::number(1)),
        (":refusals", Operand::number(refusals)),
        (":0", Operand::number(0)),
        (":number", Operand::text("N")),
    ];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&TURN), values }
}
