//! What no sweep can see: holders that were found alive after their lease had ended.

use alloc::borrow::Cow;

use super::Load;
use crate::dimension::Dimension;
use crate::schema::{Field, OUTLIVED, Row};
use crate::statement::{Operand, Statement, Update};

/// A sum; the condition is that there is one, or none yet. To anything else nothing can be added: that is for
/// [`OUTLIVE_ANEW`].
static OUTLIVE: Statement = Statement::fixed(
    "SET #o = if_not_exists(#o, :0) + :n",
    "attribute_not_exists(#o) OR attribute_type(#o, :t)",
    &[("#o", OUTLIVED)],
);

/// As [`OUTLIVE`], where the count is none: nobody else replaces it. Interleaving that the condition stops:
/// another replaced it since, and what was noted meanwhile would be lost (o). Sent again after it was applied
/// it finds a count, and does nothing.
static OUTLIVE_ANEW: Statement =
    Statement::fixed("SET #o = :n", "attribute_exists(#o) AND NOT attribute_type(#o, :t)", &[("#o", OUTLIVED)]);

/// Notes that holders of `dimension` were found alive after their lease had ended. Sent twice it counts
/// twice.
#[must_use]
pub fn note_outlived(dimension: &Dimension, holders: u32) -> Update {
    Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&OUTLIVE),
        values: alloc::vec![(":n", Operand::number(holders)), (":0", Operand::number(0)), (":t", Operand::text("N"))],
    }
}

/// The same note for a row whose count is no number, which it replaces; `None` where `row` has none that is
/// in the way.
#[must_use]
pub fn note_outlived_anew(dimension: &Dimension, row: &impl Row, holders: u32) -> Option<Update> {
    is_in_the_way(row, OUTLIVED).then(|| Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&OUTLIVE_ANEW),
        values: alloc::vec![(":n", Operand::number(holders)), (":t", Operand::text("N"))],
    })
}

/// Whether a count is there, and is none.
pub(super) fn is_in_the_way(row: &impl Row, count: &str) -> bool {
    matches!(row.field(count), Some(Field::Text(_) | Field::Other))
}
