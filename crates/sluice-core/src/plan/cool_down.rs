//! A cool-down: the vendor asked for a pause, and nobody is granted anything before it is over.

use alloc::borrow::Cow;
use alloc::string::ToString as _;

use crate::dimension::Dimension;
use crate::schema::{BLOCKED_UNTIL, KEY};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops: another process set a later end, which an earlier one must not cut short (b); the bucket
/// was removed, and the write would make half a row of it (pk).
///
/// The version stays: nothing that other clients read has changed, and a caller that locks by it need not fail.
static COOL_DOWN: Statement = Statement::fixed(
    "SET #b = :t",
    "attribute_exists(#pk) AND (attribute_not_exists(#b) OR #b < :t)",
    &[("#b", BLOCKED_UNTIL), ("#pk", KEY)],
);

/// The write that blocks `dimension` until `until`, unless it is blocked for longer.
#[must_use]
pub fn cool_down(dimension: &Dimension, until: Timestamp) -> Update {
    Update {
        key: dimension.to_string(),
        statement: Cow::Borrowed(&COOL_DOWN),
        values: alloc::vec![(":t", Operand::number(until))],
    }
}
