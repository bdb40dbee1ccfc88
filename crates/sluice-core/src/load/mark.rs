//! What callers write into a load row: who sweeps the bucket by itself, and what a sweep cannot see.

use alloc::borrow::Cow;
use core::time::Duration;

use super::Load;
use crate::dimension::Dimension;
use crate::schema::{Field, HEAL_AFTER, HEALED_AT, OUTLIVED, REFUSED, Row};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// A refused caller may sweep its bucket that long after another did: 8 s. Shorter finds ended leases sooner; each such sweep reads
/// the table.
///
/// While somebody asks for its slots, what a crashed holder had is back 15 s after its lease's time: a lease's end is rounded up to
/// a second (1 s), it has ended for every clock [`CLOCK_ERROR`] later (2 s), the last sweep before may have been just then (8 s), by a
/// clock that is ahead (2 s), and asking (not all at one instant, but within a second) and sweeping take the rest (2 s).
pub const HEAL_EVERY: Duration = Duration::from_secs(8);

/// Where sweeps are dear, the next is put off by this at most: the reconciler comes as often.
pub const LONGEST_HEAL_SPACING: Duration = Duration::from_secs(300);

/// Interleavings that the condition stops: two refused callers take it upon themselves at once, or one soon after the other (h); one that
/// has never seen the table takes it upon itself soon after a sweep that was dear (a).
/// A mark of a clock that is far ahead, and one that cannot be read, keep nobody from it; nor does what puts it off for longer than
/// anything may. To a count that is none nothing can be added,
/// which DynamoDB answers with an error and not with the row (r): that is for [`MARK_ANEW`].
static MARK: Statement = Statement::fixed(
    "SET #h = :now, #r = if_not_exists(#r, :0) + :n",
    "(attribute_not_exists(#h) OR NOT attribute_type(#h, :t) OR #h <= :before OR #h > :ahead) \
     AND (attribute_not_exists(#a) OR NOT attribute_type(#a, :t) OR #a <= :now OR #a > :never) \
     AND (attribute_not_exists(#r) OR attribute_type(#r, :t))",
    NAMES,
);

/// As [`MARK`], where the count is none. Interleaving that its last part stops: another replaced it since, and what callers told
/// meanwhile would be lost (r).
static MARK_ANEW: Statement = Statement::fixed(
    "SET #h = :now, #r = :n",
    "(attribute_not_exists(#h) OR NOT attribute_type(#h, :t) OR #h <= :before OR #h > :ahead) \
     AND (attribute_not_exists(#a) OR NOT attribute_type(#a, :t) OR #a <= :now OR #a > :never) \
     AND attribute_exists(#r) AND NOT attribute_type(#r, :t)",
    NAMES,
);

const NAMES: &[(&str, &str)] = &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#r", REFUSED)];

/// Interleaving that the condition stops: the sweep took so long that another has marked the bucket since, and what that one's is found
/// to cost is overwritten (h). Sent twice it says the same.
static PUT_OFF: Statement = Statement::fixed("SET #a = :until", "#h = :by", &[("#h", HEALED_AT), ("#a", HEAL_AFTER)]);

/// Interleaving that the condition stops: as for [`PUT_OFF`] (h).
static AS_USUAL: Statement = Statement::fixed("REMOVE #a", "#h = :by", &[("#h", HEALED_AT), ("#a", HEAL_AFTER)]);

/// Interleaving that the condition stops: another has marked the bucket since, and a third would sweep it beside that one (h). Sent again
/// after it was applied it finds no mark, or another's.
static UNMARK: Statement = Statement::fixed("REMOVE #h", "#h = :mine", &[("#h", HEALED_AT)]);

/// A sum; the condition is that there is one, or none yet. To anything else nothing can be added: that is for [`OUTLIVE_ANEW`].
static OUTLIVE: Statement = Statement::fixed(
    "SET #o = if_not_exists(#o, :0) + :n",
    "attribute_not_exists(#o) OR attribute_type(#o, :t)",
    &[("#o", OUTLIVED)],
);

/// As [`OUTLIVE`], where the count is none: nobody else replaces it. Interleaving that the condition stops: another replaced it since, and
/// what was noted meanwhile would be lost (o). Sent again after it was applied it finds a count, and does nothing.
static OUTLIVE_ANEW: Statement =
    Statement::fixed("SET #o = :n", "attribute_exists(#o) AND NOT attribute_type(#o, :t)", &[("#o", OUTLIVED)]);

/// The mark of a refused caller that will sweep `dimension` now, with the refusals since it last told of any. The reply, whatever
/// it is, shows the load row.
#[must_use]
pub fn mark(dimension: &Dimension, refusals: u32, now: Timestamp) -> Update {
    let mut values = values(refusals, now);
    values.push((":0", Operand::number(0)));
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&MARK), values }
}

/// The same mark for a row whose count of refusals is no number, which it replaces; `None` where `row` has none that is in the way.
#[must_use]
pub fn mark_anew(dimension: &Dimension, row: &impl Row, refusals: u32, now: Timestamp) -> Option<Update> {
    is_in_the_way(row, REFUSED).then(|| Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&MARK_ANEW),
        values: values(refusals, now),
    })
}

fn values(refusals: u32, now: Timestamp) -> Values {
    alloc::vec![
        (":now", Operand::number(now)),
        (":before", Operand::number(now.before(HEAL_EVERY))),
        (":ahead", Operand::number(ahead(now))),
        (":never", Operand::number(ahead(now).after(LONGEST_HEAL_SPACING))),
        (":n", Operand::number(refusals)),
        (":t", Operand::text("N")),
    ]
}

/// The latest that another's clock may show at `now`.
pub(super) fn ahead(now: Timestamp) -> Timestamp {
    now.after(CLOCK_ERROR * 2)
}

/// Puts off the next sweep by a caller, since that of the mark of `marked_at` is dear: by `spacing` from the mark, and
/// [`LONGEST_HEAL_SPACING`] at most. Callers that know nothing of the table keep to it too.
#[must_use]
pub fn heal_after(dimension: &Dimension, marked_at: Timestamp, spacing: Duration) -> Update {
    let until = marked_at.after(spacing.min(LONGEST_HEAL_SPACING));
    let values = alloc::vec![(":until", Operand::number(until)), (":by", Operand::number(marked_at))];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&PUT_OFF), values }
}

/// The sweep of the mark of `marked_at` was as cheap as any: the row says no more that they are dear.
#[must_use]
pub fn heal_as_usual(dimension: &Dimension, marked_at: Timestamp) -> Update {
    let values = alloc::vec![(":by", Operand::number(marked_at))];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&AS_USUAL), values }
}

/// Takes back the mark of `at` by a caller that turned out not to have the rights for the sweep, so that others need not wait for it.
/// The refusals that were told with it stay. (A send of the mark that is late, and arrives after this, marks the bucket once more: as if
/// its sender had crashed, until it is as old as any.)
#[must_use]
pub fn unmark(dimension: &Dimension, at: Timestamp) -> Update {
    let values = alloc::vec![(":mine", Operand::number(at))];
    Update { key: Load::key(dimension), statement: Cow::Borrowed(&UNMARK), values }
}

/// Notes that holders of `dimension` were found alive after their lease had ended. Sent twice it counts twice.
#[must_use]
pub fn note_outlived(dimension: &Dimension, holders: u32) -> Update {
    Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&OUTLIVE),
        values: alloc::vec![(":n", Operand::number(holders)), (":0", Operand::number(0)), (":t", Operand::text("N"))],
    }
}

/// The same note for a row whose count is no number, which it replaces; `None` where `row` has none that is in the way.
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
