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

use crate::schema::{self, HEAL_AFTER, HEAL_KEY, HEAL_POSITION, HEALED_AT, HEALED_BY, Row};
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
/// (h); one begins a turn before the last is paid for (a). A mark of a clock that is far ahead, and one that
/// is no number, keep nobody from it.
static MARK: Statement = Statement::fixed(
    "SET #h = :now, #m = :me",
    "(attribute_not_exists(#h) OR NOT attribute_type(#h, :t) OR #h <= :before OR #h > :ahead) \
     AND (attribute_not_exists(#a) OR NOT attribute_type(#a, :t) OR #a <= :now OR #a > :never)",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#m", HEALED_BY)],
);

/// Interleavings that the condition stops: the process was slow or frozen, another has begun a turn since, and
/// its progress is overwritten (h, and m if it began in the same microsecond). Sent twice it says the same.
static GO_ON: Statement = Statement::fixed(
    "SET #a = :until, #p = :position",
    "#h = :by AND #m = :me",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#p", HEAL_POSITION), ("#m", HEALED_BY)],
);

/// Interleaving that the condition stops: as for [`GO_ON`] (h, m).
static FROM_THE_START: Statement = Statement::fixed(
    "SET #a = :until REMOVE #p",
    "#h = :by AND #m = :me",
    &[("#h", HEALED_AT), ("#a", HEAL_AFTER), ("#p", HEAL_POSITION), ("#m", HEALED_BY)],
);

/// Interleaving that the condition stops: another has begun a turn since, and a third would begin one beside
/// it (h, m). Sent again after it was applied it finds no mark, or another's.
static UNMARK: Statement =
    Statement::fixed("REMOVE #h, #m", "#h = :mine AND #m = :me", &[("#h", HEALED_AT), ("#m", HEALED_BY)]);

/// The table's mark, parsed. What cannot be read counts as not there: nothing of it may keep the fleet from
/// healing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealMark {
    marked_at: Option<Timestamp>,
    turn: Option<String>,
    not_before: Option<Timestamp>,
    position: Option<String>,
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

    /// From when on a process may mark the table; `now` if nothing keeps it from that. As the condition of
    /// the mark has it: what is further ahead than any clock could be keeps nobody.
    #[must_use]
    pub fn may_be_made_at(&self, now: Timestamp) -> Timestamp {
        let marked = self.marked_at.filter(|at| *at <= ahead(now)).map(|at| at.after(HEAL_EVERY));
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

/// The mark of a process that begins the turn `turn` at `now`. The id is of this turn alone. The reply,
/// whatever it is, shows the row.
#[must_use]
pub fn mark(turn: &str, now: Timestamp) -> Update {
    let values = alloc::vec![
        (":now", Operand::number(now)),
        (":me", Operand::text(turn)),
        (":before", Operand::number(now.before(HEAL_EVERY))),
        (":ahead", Operand::number(ahead(now))),
        (":never", Operand::number(ahead(now).after(LONGEST_HEAL_SPACING))),
        (":t", Operand::text("N")),
    ];
    update(&MARK, values)
}

/// The progress of the turn `turn` that was marked at `marked_at`: the next goes on after `position`, or at the
/// start of the table, and no sooner than `spacing` after the mark, [`LONGEST_HEAL_SPACING`] at most.
#[must_use]
pub fn heal_progress(turn: &str, marked_at: Timestamp, spacing: Duration, position: Option<&str>) -> Update {
    let until = marked_at.after(spacing.min(LONGEST_HEAL_SPACING));
    let (by, me) = (Operand::number(marked_at), Operand::text(turn));
    let mut values = alloc::vec![(":until", Operand::number(until)), (":by", by), (":me", me)];
    match position {
        Some(position) => {
            values.push((":position", Operand::text(position)));
            update(&GO_ON, values)
        }
        None => update(&FROM_THE_START, values),
    }
}

/// Takes back the mark of the turn `turn` at `at` by a process that turned out not to have the rights for the scan, so that
/// others need not wait for it. (A send of the mark that is late, and arrives after this, marks the table
/// once more: as if its sender had crashed.)
#[must_use]
pub fn unmark(turn: &str, at: Timestamp) -> Update {
    update(&UNMARK, alloc::vec![(":mine", Operand::number(at)), (":me", Operand::text(turn))])
}

fn update(statement: &'static Statement, values: Values) -> Update {
    Update { key: HEAL_KEY.to_owned(), statement: Cow::Borrowed(statement), values }
}
