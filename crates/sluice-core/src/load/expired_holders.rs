//! Expired holders, which no sweep can see: holders that were found alive after their lease had ended.

use alloc::borrow::Cow;

use super::Load;
use crate::dimension::Dimension;
use crate::schema::{Field, OUTLIVED, Row};
use crate::statement::{Operand, Statement, Update};

/// Adds to the count, if it is a number or absent: [`REPLACE`] replaces any other type.
static ADD: Statement = Statement::fixed(
    "SET #outlived = if_not_exists(#outlived, :0) + :holders",
    "attribute_not_exists(#outlived) OR attribute_type(#outlived, :number)",
    &[OUTLIVED],
);

/// As [`ADD`], for a count that is not a number: nothing else replaces it. Interleaving that the
/// condition stops: another process has replaced the count since, and what was noted meanwhile would be lost.
/// If this write is sent again after it was applied, it finds a number and changes nothing.
static REPLACE: Statement = Statement::fixed(
    "SET #outlived = :holders",
    "attribute_exists(#outlived) AND NOT attribute_type(#outlived, :number)",
    &[OUTLIVED],
);

/// Notes holders that were found alive after their lease had ended. A note sent twice counts twice.
#[must_use]
pub fn note_expired_holders(dimension: &Dimension, holders: u32) -> Update {
    Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&ADD),
        values: alloc::vec![
            (":holders", Operand::number(holders)),
            (":0", Operand::number(0)),
            (":number", Operand::text("N"))
        ],
    }
}

/// The same for a row whose count is not a number, which is replaced; `None` if it is one.
#[must_use]
pub fn replace_expired_holders(dimension: &Dimension, row: &impl Row, holders: u32) -> Option<Update> {
    is_not_a_number(row, OUTLIVED).then(|| Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&REPLACE),
        values: alloc::vec![(":holders", Operand::number(holders)), (":number", Operand::text("N"))],
    })
}

/// Whether the count is present and is not a number.
pub(super) fn is_not_a_number(row: &impl Row, count: &str) -> bool {
    matches!(row.field(count), Some(Field::Text(_) | Field::Other))
}
