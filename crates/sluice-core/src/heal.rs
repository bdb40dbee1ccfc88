//! The mark of the table: which process scans the table for leases that have ended, when the next scan may
//! begin, and where it goes on.
//!
//! One row for the whole table, [`HEAL_KEY`]: what a scan finds is given back whichever bucket it belongs to,
//! so that a scan for each full bucket would read the same rows again. A process that marks the row has a
//! *turn*. It reads pages of the table and writes its progress after each, with what the turn has cost so
//! far; the next turn, of whichever process, goes on from there.
//!
//! The mark carries the instant and the id of its turn. The instant alone does not tell two processes apart
//! that mark in the same microsecond: if the reply of one is lost, it would find the other's mark and take it
//! for its own.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::String;
use core::time::Duration;

use crate::schema::{self, HEAL_AFTER, HEAL_KEY, HEAL_POSITION, HEAL_ROWS, HEALED_AT, HEALED_BY, Row};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// The least time between two turns: 8 s. Shorter finds ended leases sooner; each turn reads the table, or a
/// part of it.
///
/// While somebody asks for its slots, what a crashed holder of a small table had is back 15 s after its
/// lease's time: a lease's end is rounded up to a second (1 s), it has ended for every clock [`CLOCK_ERROR`]
/// later (2 s), the last turn may have been just before (8 s), by a clock that is ahead (2 s), and asking
/// (not all processes at one instant, but within a second) and scanning take the rest (2 s).
pub const HEAL_EVERY: Duration = Duration::from_secs(8);

/// A turn puts off the next by this at most: 15 minutes, in which the smallest budget pays for a page. An
/// instant that is further ahead was written by a clock that is wrong, and counts for none.
pub const LONGEST_HEAL_SPACING: Duration = Duration::from_secs(15 * 60);

/// Interleavings that the condition stops: two processes begin a turn at once, or one soon after the other
/// (h); one begins a turn before the last is paid for (a). A mark of a clock that is far ahead keeps nobody
/// from it (h, and a with it), nor does one that is no number.
///
/// The mark pays for the turn's first page in advance (a): a process may end, or its page be lost, after
/// DynamoDB has read it and before anybody has said so.
static MARK: Statement = Statement::fixed(
    "SET #h = :now, #m = :me, #a = :until",
    "#h > :ahead \
     OR ((attribute_not_exists(#h) OR NOT attribute_type(#h, :t) OR #h <= :before) \
     AND (attribute_not_exists(#a) OR NOT attribute_type(#a, :t) OR #a <= :now OR #a > :never))",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#m", HEALED_BY)],
);

/// Interleavings that the condition stops: the process was slow or frozen, another has begun a turn since, and
/// its progress is overwritten (h, and m if it began in the same microsecond). Sent twice it says the same.
static GO_ON: Statement = Statement::fixed(
    "SET #a = :until, #r = :rows, #p = :position",
    "#h = :by AND #m = :me",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#r", HEAL_ROWS), ("#p", HEAL_POSITION), ("#m", HEALED_BY)],
);

/// Interleaving that the condition stops: as for [`GO_ON`] (h, m).
static FROM_THE_START: Statement = Statement::fixed(
    "SET #a = :until, #r = :rows REMOVE #p",
    "#h = :by AND #m = :me",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#r", HEAL_ROWS), ("#p", HEAL_POSITION), ("#m", HEALED_BY)],
);

/// Interleaving that the condition stops: another has begun a turn since, and a third would begin one beside
/// it (h, m). Sent again after it was applied it finds no mark, or another's.
static UNMARK: Statement = Statement::fixed(
    "SET #a = :until REMOVE #h, #m",
    "#h = :mine AND #m = :me",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#m", HEALED_BY)],
);

/// The table's mark, parsed. What cannot be read counts as not there: nothing of it may keep the fleet from
/// healing.
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

    /// Whether it is the mark of the turn `turn`, made at `at`. A mark without an id is of another client.
    #[must_use]
    pub fn is_of(&self, turn: &str, at: Timestamp) -> bool {
        self.marked_at == Some(at) && self.turn.as_deref() == Some(turn)
    }

    /// The key of the row after which the next turn goes on; `None` at the start of the table. The row need
    /// not be there any more.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// How many rows the next page should have at most, if the last turn said so.
    #[must_use]
    pub const fn rows(&self) -> Option<u32> {
        self.rows
    }

    /// From when on a process may mark the table; `now` if nothing keeps it from that. As the condition of
    /// the mark has it: what is further ahead than any clock could be keeps nobody.
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

/// Longest partition key that DynamoDB takes, in bytes.
const LONGEST_KEY: usize = 2_048;

/// The latest that another's clock may show at `now`.
fn ahead(now: Timestamp) -> Timestamp {
    now.after(CLOCK_ERROR * 2)
}

/// The mark of a process that begins the turn `turn` at `now`. The id is of this turn alone. The next begins
/// no sooner than `spacing` later, unless this one's progress says otherwise. The reply, whatever it is, shows
/// the row.
#[must_use]
pub fn mark(turn: &str, now: Timestamp, spacing: Duration) -> Update {
    let values = alloc::vec![
        (":now", Operand::number(now)),
        (":me", Operand::text(turn)),
        (":until", Operand::number(until(now, spacing))),
        (":before", Operand::number(now.before(HEAL_EVERY))),
        (":ahead", Operand::number(ahead(now))),
        (":never", Operand::number(ahead(now).after(LONGEST_HEAL_SPACING))),
        (":t", Operand::text("N")),
    ];
    update(&MARK, values)
}

/// When the next turn may begin after one that was marked at `marked_at`: `spacing` later,
/// [`LONGEST_HEAL_SPACING`] at most.
fn until(marked_at: Timestamp, spacing: Duration) -> Timestamp {
    marked_at.after(spacing.min(LONGEST_HEAL_SPACING))
}

/// Where the next turn goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealProgress {
    /// The next turn begins no sooner than that after the mark of this one, [`LONGEST_HEAL_SPACING`] at most.
    pub spacing: Duration,
    /// The key of the row after which it goes on; `None` for the start of the table.
    pub position: Option<String>,
    /// Most rows of its first page.
    pub rows: u32,
}

/// The progress of the turn `turn` that was marked at `marked_at`.
#[must_use]
pub fn heal_progress(turn: &str, marked_at: Timestamp, progress: &HealProgress) -> Update {
    let mut values = alloc::vec![
        (":until", Operand::number(until(marked_at, progress.spacing))),
        (":by", Operand::number(marked_at)),
        (":me", Operand::text(turn)),
        (":rows", Operand::number(progress.rows)),
    ];
    match &progress.position {
        Some(position) => {
            values.push((":position", Operand::text(position)));
            update(&GO_ON, values)
        }
        None => update(&FROM_THE_START, values),
    }
}

/// Takes back the mark of the turn `turn` at `at` by a process that turned out not to have the rights for the
/// scan, so that others need not wait for it: the next may begin `spacing` after it. (A send of the mark that is late, and arrives after this, marks
/// the table once more: as if its sender had crashed.)
#[must_use]
pub fn unmark(turn: &str, at: Timestamp, spacing: Duration) -> Update {
    let values = alloc::vec![
        (":mine", Operand::number(at)),
        (":me", Operand::text(turn)),
        (":until", Operand::number(until(at, spacing))),
    ];
    update(&UNMARK, values)
}

fn update(statement: &'static Statement, values: Values) -> Update {
    Update { key: HEAL_KEY.to_owned(), statement: Cow::Borrowed(statement), values }
}
