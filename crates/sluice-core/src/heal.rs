//! The mark of the table: who scans for ended leases, when the next scan may begin, and where it continues.
//!
//! The table has one mark, the row [`HEAL_KEY`]: a scan gives back leases of any bucket, so one for each full
//! bucket would read the same rows again. A process that marks the row has a *turn*. It reads pages, and
//! after each page writes its progress and cost so far. The next turn, of any process, continues from there.
//!
//! The mark contains the instant and the id of its turn. By the instant alone, of two processes that mark in
//! the same microsecond, one that loses its reply would mistake the other's mark for its own.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::String;
use core::time::Duration;

use crate::schema::{self, HEAL_AFTER, HEAL_KEY, HEAL_POSITION, HEAL_ROWS, HEALED_AT, HEALED_BY, Row};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// The minimum time between two turns: 8 s. A shorter time finds ended leases sooner; each turn reads the
/// table, or a part. While callers ask, what a crashed holder had in a small table is back 15 s after its
/// lease's time: the end is rounded up to a second (1 s); it has passed by every clock [`CLOCK_ERROR`] later
/// (2 s); the last turn may have been just before (8 s), by a clock that is ahead (2 s); asking, spread over
/// a second, and scanning take the rest (2 s).
pub const HEAL_EVERY: Duration = Duration::from_secs(8);

/// The maximum time by which a turn delays the next one: 15 minutes, in which the smallest budget pays for a
/// page. An instant that is further ahead was written by a wrong clock, and is ignored.
pub const LONGEST_HEAL_SPACING: Duration = Duration::from_secs(15 * 60);

/// Interleavings that the condition stops: two processes begin a turn at the same time, or one soon after the
/// other (`healed_at`); a process begins a turn before the last one is paid for (`heal_after`). A mark by a
/// clock that is far ahead blocks no process (`healed_at`, and `heal_after` with it), and neither does a mark
/// that is not a number.
///
/// The mark pays for the turn's first page in advance (`heal_after`): the process may end, or its page may be
/// lost, after DynamoDB has read the page and before any process has reported it.
static MARK: Statement = Statement::fixed(
    "SET #healed_at = :now, #healed_by = :turn, #heal_after = :heal_after",
    "#healed_at > :ahead \
     OR ((attribute_not_exists(#healed_at) OR NOT attribute_type(#healed_at, :number) OR #healed_at <= :before) \
     AND (attribute_not_exists(#heal_after) OR NOT attribute_type(#heal_after, :number) \
     OR #heal_after <= :now OR #heal_after > :never))",
    &[HEALED_AT, HEAL_AFTER, HEALED_BY],
);

/// Interleavings that the condition stops: this process was slow or frozen, another process has begun a turn
/// since, and this write would overwrite the other's progress (`healed_at`, and `healed_by` if that turn
/// began in the same microsecond). Sending this write twice writes the same.
static GO_ON: Statement = Statement::fixed(
    "SET #heal_after = :heal_after, #heal_rows = :heal_rows, #heal_position = :heal_position",
    "#healed_at = :marked_at AND #healed_by = :turn",
    &[HEALED_AT, HEAL_AFTER, HEAL_ROWS, HEAL_POSITION, HEALED_BY],
);

/// Interleavings that the condition stops: as for [`GO_ON`].
static FROM_THE_START: Statement = Statement::fixed(
    "SET #heal_after = :heal_after, #heal_rows = :heal_rows REMOVE #heal_position",
    "#healed_at = :marked_at AND #healed_by = :turn",
    &[HEALED_AT, HEAL_AFTER, HEAL_ROWS, HEAL_POSITION, HEALED_BY],
);

/// Interleaving that the condition stops: another process has begun a turn since, and a third process would
/// begin one at the same time. If this write is sent again after it was applied, it finds no mark, or the
/// mark of another process.
static UNMARK: Statement = Statement::fixed(
    "SET #heal_after = :heal_after REMOVE #healed_at, #healed_by",
    "#healed_at = :marked_at AND #healed_by = :turn",
    &[HEALED_AT, HEAL_AFTER, HEALED_BY],
);

/// The table's mark, parsed. An attribute that cannot be read counts as absent: no part of the mark may keep
/// the fleet from healing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealMark {
    marked_at: Option<Timestamp>,
    turn: Option<String>,
    not_before: Option<Timestamp>,
    position: Option<String>,
    rows: Option<u32>,
}

impl HealMark {
    /// Reads the row.
    #[must_use]
    pub fn read(row: &impl Row) -> Self {
        let time = |name| schema::timestamp(row, name).ok().map(|at| at.get());
        let is_key = |position: &&str| !position.is_empty() && position.len() <= LONGEST_KEY;
        Self {
            marked_at: time(HEALED_AT),
            turn: schema::text(row, HEALED_BY).ok().map(str::to_owned),
            not_before: time(HEAL_AFTER),
            position: schema::text(row, HEAL_POSITION).ok().filter(is_key).map(str::to_owned),
            rows: schema::count(row, HEAL_ROWS).ok().and_then(|rows| u32::try_from(rows).ok()),
        }
    }

    /// Whether this is the mark of `turn`, made at `at`. A mark without an id is another client's.
    #[must_use]
    pub fn is_of(&self, turn: &str, at: Timestamp) -> bool {
        self.marked_at == Some(at) && self.turn.as_deref() == Some(turn)
    }

    /// The key after which the next turn continues, whether or not its row exists; `None` for the start.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// The maximum number of rows of the next page, if the last turn stated one.
    #[must_use]
    pub const fn rows(&self) -> Option<u32> {
        self.rows
    }

    /// The earliest time at which a process may mark the table; `now` if nothing prevents it. As in the
    /// condition of the mark, an instant further ahead than any clock can be is ignored.
    #[must_use]
    pub fn may_be_made_at(&self, now: Timestamp) -> Timestamp {
        if self.marked_at.is_some_and(|at| at > ahead(now)) {
            return now;
        }
        let marked = self.marked_at.map(|at| at.after(HEAL_EVERY));
        let kept = self.not_before.filter(|at| *at <= ahead(now).after(LONGEST_HEAL_SPACING));
        marked.max(kept).map_or(now, |at| at.max(now))
    }
}

/// The longest partition key that DynamoDB accepts, in bytes.
const LONGEST_KEY: usize = 2_048;

/// The latest time that another clock may show at `now`.
fn ahead(now: Timestamp) -> Timestamp {
    now.after(CLOCK_ERROR * 2)
}

/// The mark of a process that begins `turn`, a unique id, at `now`. The next turn begins no sooner than
/// `spacing` later, unless the progress says otherwise. Every reply to this write shows the row.
#[must_use]
pub fn mark(turn: &str, now: Timestamp, spacing: Duration) -> Update {
    let values = alloc::vec![
        (":now", Operand::number(now)),
        (":turn", Operand::text(turn)),
        (":heal_after", Operand::number(until(now, spacing))),
        (":before", Operand::number(now.before(HEAL_EVERY))),
        (":ahead", Operand::number(ahead(now))),
        (":never", Operand::number(ahead(now).after(LONGEST_HEAL_SPACING))),
        (":number", Operand::text("N")),
    ];
    update(&MARK, values)
}

/// When a turn may begin after `marked_at`: `spacing` later, at most [`LONGEST_HEAL_SPACING`].
fn until(marked_at: Timestamp, spacing: Duration) -> Timestamp {
    marked_at.after(spacing.min(LONGEST_HEAL_SPACING))
}

/// Where the next turn continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealProgress {
    /// The next turn begins no sooner than this after this turn's mark. At most [`LONGEST_HEAL_SPACING`].
    pub spacing: Duration,
    /// The key of the row after which the next turn continues; `None` for the start of the table.
    pub position: Option<String>,
    /// The maximum number of rows of its first page.
    pub rows: u32,
}

/// The write of the progress of the turn `turn` that was marked at `marked_at`.
#[must_use]
pub fn heal_progress(turn: &str, marked_at: Timestamp, progress: &HealProgress) -> Update {
    let mut values = alloc::vec![
        (":heal_after", Operand::number(until(marked_at, progress.spacing))),
        (":marked_at", Operand::number(marked_at)),
        (":turn", Operand::text(turn)),
        (":heal_rows", Operand::number(progress.rows)),
    ];
    match &progress.position {
        Some(position) => {
            values.push((":heal_position", Operand::text(position)));
            update(&GO_ON, values)
        }
        None => update(&FROM_THE_START, values),
    }
}

/// Removes the mark of `turn` at `at`, for a process that finds that it may not scan: others need not wait,
/// and the next turn may begin `spacing` after `at`. (If the marking request arrives after this write, it
/// marks the table again, as if its sender had crashed.)
#[must_use]
pub fn unmark(turn: &str, at: Timestamp, spacing: Duration) -> Update {
    let values = alloc::vec![
        (":marked_at", Operand::number(at)),
        (":turn", Operand::text(turn)),
        (":heal_after", Operand::number(until(at, spacing))),
    ];
    update(&UNMARK, values)
}

fn update(statement: &'static Statement, values: Values) -> Update {
    Update { key: HEAL_KEY.to_owned(), statement: Cow::Borrowed(statement), values }
}
