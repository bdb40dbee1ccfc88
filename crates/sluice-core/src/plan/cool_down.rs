//! A cool-down: the vendor asked for a pause, and nobody is granted anything until the pause is over.

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use core::time::Duration;

use crate::dimension::Dimension;
use crate::schema::{BLOCKED_UNTIL, KEY};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops:
/// - `blocked_until`: another process set a later end, which an earlier end must not cut short.
/// - `key`: the bucket was removed, and the write would create half a row.
///
/// The version stays: nothing that other clients read has changed, and a caller that locks by the version
/// need not fail.
static COOL_DOWN: Statement = Statement::fixed(
    "SET #blocked_until = :blocked_until",
    "attribute_exists(#key) AND (attribute_not_exists(#blocked_until) OR #blocked_until < :blocked_until)",
    &[BLOCKED_UNTIL, KEY],
);

/// Interleavings that the condition stops:
/// - `blocked_until`: another process set a later end since the reading. The vendor asked again, and the
///   operator has not seen that yet. The write also removes an end that is not later than the one that was
///   read, so a second send changes nothing.
/// - a missing `blocked_until`: another operator ended the cool-down. The condition fails, and the reply
///   shows the row.
///
/// The version stays, as above.
static END_COOL_DOWN: Statement =
    Statement::fixed("REMOVE #blocked_until", "#blocked_until < :later", &[BLOCKED_UNTIL]);

/// The write that blocks `dimension` until `until`, unless `dimension` is blocked for longer already.
#[must_use]
pub fn cool_down(dimension: &Dimension, until: Timestamp) -> Update {
    Update {
        key: dimension.to_string(),
        statement: Cow::Borrowed(&COOL_DOWN),
        values: alloc::vec![(":blocked_until", Operand::number(until))],
    }
}

/// The write that ends the cool-down of `dimension`, which a reading showed to end at `until`. Another client
/// may have written that end with more decimals, which the reading rounded down. So a microsecond is added.
#[must_use]
pub fn end_cool_down(dimension: &Dimension, until: Timestamp) -> Update {
    Update {
        key: dimension.to_string(),
        statement: Cow::Borrowed(&END_COOL_DOWN),
        values: alloc::vec![(":later", Operand::number(until.after(Duration::from_micros(1))))],
    }
}
