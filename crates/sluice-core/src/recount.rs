//! Recount: finds slots of a concurrency bucket that were lost or minted in any way, and corrects the bucket.
//!
//! A slot is free, or a lease holds it: `drift = C - cost of all leases - T` is zero. A scan of the leases is
//! no snapshot, though, and a busy bucket would always seem to leak. So the scan stands between two readings
//! of the bucket: 1 before the scan and 2 after it. The recount states the drift after the second reading.
//!
//! If `version`, T, `admitted` and `capped` did not change between the readings, nothing did, and the drift
//! is that of the scan: `C - T - all leases`. If any of them changed,
//! `released = T2 - T1 + (admitted2 - admitted1)` is what was given back in the meantime, and the drift lies
//!
//! - not below `C - T1 - S - released`: a lease that lived at the first reading was scanned, or was released
//!   before the scan came to it. S is the cost of the scanned leases that may have lived at the first
//!   reading.
//! - not above `C - T1 - S' + (capped2 - capped1)`: S' is the cost of the scanned leases that certainly lived
//!   at the first reading. `capped` counts the lease cost that was deleted without its slots, because the
//!   bucket had no room. Each such deletion makes up for a minted slot.
//!
//! The sweep also knows what it did itself to leases that it had scanned. What the sweep gave back is no loss
//! of unscanned leases, and is subtracted from `released`. What the sweep deleted without slots is gone from
//! S. What the sweep lost to others may be gone from S'.
//!
//! All of this holds only while every write in between counts `admitted`. Clients in other languages do not.
//! So the writes of the clients that do are counted in `counted`, beside `version`. If the two did not change
//! by the same number, nothing can be said.
//!
//! Inline leases are in the row itself, so what they hold is part of the same reading as T.
//! `T' = T + inline cost` replaces T above, and `admitted' = admitted - admitted_inline` replaces `admitted`:
//! an inline grant, release or reclaim changes neither, and only leases with a row of their own are scanned.
//! A bucket whose leases are all inline is judged exactly, however busy it is. An inline lease that is
//! removed without its slots lowers T' and raises `capped` by the same amount. This is hidden in `released`,
//! which may then be below zero. Both bounds hold unchanged: the drift after the second reading is greater by
//! what T' lost.
//!
//! A sweep writes what it finds into the bucket as a note. The next sweep that finds it too makes the
//! correction. The correction removes the note in the same write, on condition that the note is the one that
//! was read: however many sweepers agree, one of them corrects.

use alloc::borrow::Cow;
use core::time::Duration;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::note::Note;
use crate::inline::InlineLeases;
use crate::limit::LimitType;
use crate::schema::{CAPACITY, CAPPED, COUNTED, DRIFT, DRIFT_SEEN_AT, LIMIT_TYPE, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

mod census;

pub use census::{Census, Returned};

/// A smaller drift is the noise of a client that counts slots in floats: a thousandth of a slot.
const NOISE: Amount = Amount::from_micros(1_000);

/// An older note was not made by the sweep before: sweeps run every few minutes.
const OLDEST_NOTE: Duration = Duration::from_secs(60 * 60);

/// When a bucket was read before a scan, by the sweeper's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Not later than the reading.
    pub begun: Timestamp,
    /// Not earlier than the reading.
    pub done: Timestamp,
}

/// The result of a recount of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// Nothing can be said: another client wrote, a lease is unreadable or too large, or the limit changed.
    Unknown,
    /// As far as can be seen, each slot is free or held by a lease.
    None,
    /// At least this many slots are neither free nor held by a lease.
    Lost(Amount),
    /// At least this many slots are free or held beyond the capacity.
    Minted(Amount),
}

impl Drift {
    /// The drift of a bucket that was read as `first` before a scan and as `last` after it. The scan saw
    /// `census`, and the sweep did `returned` to leases of that census.
    #[must_use]
    pub fn between(first: &Bucket, last: &Bucket, census: &Census, returned: Returned) -> Self {
        let capacity = first.limit().capacity();
        let writes = last.version().checked_sub(first.version());
        let counted = last.counted().checked_sub(first.counted());
        // Numbers whose difference overflows count nothing.
        let (Some(writes), Some(counted)) = (writes, counted) else { return Self::Unknown };
        let is_unreadable =
            |bucket: &Bucket| bucket.inline().is_some_and(|leases| !leases.unreadable().is_empty());
        // A lease of more than the capacity would make all other slots seem minted, and shut the bucket.
        let overstates = |bucket: &Bucket| bucket.inline().is_some_and(|leases| leases.overstates(capacity));
        let unreadable = census.unreadable
            || [first, last].into_iter().any(|bucket| is_unreadable(bucket) || overstates(bucket));
        let same = first.limit().is_concurrent()
            && last.limit().is_concurrent()
            && last.limit().capacity() == capacity;
        if unreadable || !same || writes < 0 {
            return Self::Unknown;
        }
        let moved = |count: fn(&Bucket) -> Option<Amount>| {
            count(last).unwrap_or_default().minus(count(first).unwrap_or_default())
        };
        let (admitted, capped) =
            (moved(Bucket::admitted).minus(moved(Bucket::admitted_inline)), moved(Bucket::capped));
        let (free, change) = (free_or_inline(first), free_or_inline(last).minus(free_or_inline(first)));
        let taken = capacity.minus(free);
        if writes == 0 {
            // A restore by a client that does not keep `version` shows in T.
            let is_still = [change, admitted, capped].iter().all(|moved| *moved == Amount::ZERO);
            let drift = taken.minus(census.all);
            return if is_still { Self::of(drift, drift.plus(returned.lost)) } else { Self::Unknown };
        }
        if counted != writes {
            return Self::Unknown;
        }
        let released = change.plus(admitted).minus(returned.slots);
        if released.plus(capped) < Amount::ZERO {
            return Self::Unknown;
        }
        let least = taken.minus(census.possible).minus(released).plus(returned.capped);
        Self::of(least, taken.minus(census.certain).plus(capped).plus(returned.lost))
    }

    fn of(least: Amount, most: Amount) -> Self {
        if least >= NOISE {
            Self::Lost(least)
        } else if most.plus(NOISE) <= Amount::ZERO {
            Self::Minted(Amount::ZERO.minus(most))
        } else {
            Self::None
        }
    }

    /// The drift in slots: positive if lost, negative if minted. `None` without drift, or if it is unknown.
    #[must_use]
    pub const fn signed(self) -> Option<Amount> {
        match self {
            Self::Lost(slots) => Some(slots),
            Self::Minted(slots) => Some(Amount::ZERO.minus(slots)),
            Self::None | Self::Unknown => None,
        }
    }
}

/// What to do after a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Correction {
    /// Nothing to write.
    Nothing,
    /// Notes the drift, for the next sweep to confirm; or takes back a note that this sweep does not confirm.
    Note(Update),
    /// Two consecutive sweeps found the drift: gives back (or, below zero, takes away) this many slots.
    Correct {
        /// The write.
        update: Update,
        /// Slots.
        slots: Amount,
    },
}

/// Interleavings that the condition stops:
/// - `drift`, `drift_seen_at`: another sweep noted first. A note that cannot be read counts as none.
/// - `version`, `limit_type`: the bucket was removed and recreated.
static NOTE: Statement = Statement::fixed(
    "SET #drift = :drift, #drift_seen_at = :now, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1",
    "(NOT attribute_type(#drift, :number) OR NOT attribute_type(#drift_seen_at, :number) \
     OR attribute_not_exists(#drift) OR attribute_not_exists(#drift_seen_at)) \
     AND #version >= :read_version AND #limit_type = :concurrent",
    &[DRIFT, DRIFT_SEEN_AT, VERSION, COUNTED, LIMIT_TYPE],
);

/// The same, in place of the note that was read, which is old or states the opposite.
static NOTE_AGAIN: Statement = Statement::fixed(
    "SET #drift = :drift, #drift_seen_at = :now, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1",
    "#drift = :read_drift AND #drift_seen_at = :read_drift_seen_at",
    &[DRIFT, DRIFT_SEEN_AT, VERSION, COUNTED],
);

/// Interleaving that the condition stops: another sweep wrote a new note, and this write would remove it.
static FORGET: Statement = Statement::fixed(
    "REMOVE #drift, #drift_seen_at SET #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1",
    "#drift = :read_drift AND #drift_seen_at = :read_drift_seen_at",
    &[DRIFT, DRIFT_SEEN_AT, VERSION, COUNTED],
);

/// What both corrections write.
const CORRECTED: &str = "SET #tokens = #tokens + :slots, #version = #version + :1, \
     #counted = if_not_exists(#counted, :0) + :1 REMOVE #drift, #drift_seen_at";

const CORRECTED_NAMES: &[&str] = &[TOKENS, CAPACITY, DRIFT, DRIFT_SEEN_AT, VERSION, COUNTED, CAPPED];

/// Interleavings that the condition stops:
/// - `drift`, `drift_seen_at`: another sweep that agreed corrected first; its write removed the note.
/// - `capacity`: a resize between the reading and this write.
/// - `tokens`: there is no room, so the slots came back in another way.
/// - `capped`: a lease that was deleted without its slots since the last reading has already made up for a
///   minted slot.
static GIVE_BACK: Statement = Statement::fixed(
    CORRECTED,
    "#drift = :read_drift AND #drift_seen_at = :read_drift_seen_at AND #capacity = :read_capacity \
     AND #tokens <= :highest AND (attribute_not_exists(#capped) OR #capped = :read_capped)",
    CORRECTED_NAMES,
);

/// Interleavings that the condition stops: as for `GIVE_BACK`, except the room.
///
/// A write of Sluice that makes up for a minted slot either deletes a lease without its slots (`capped`) or
/// is a correction (`drift`). `tokens` says nothing about that. A condition on `tokens` would block the
/// correction for good: once more slots were minted than the first sweep noted, the rest never fits, every
/// sweep plans this same write, and none of them passes.
static TAKE_AWAY: Statement = Statement::fixed(
    CORRECTED,
    "#drift = :read_drift AND #drift_seen_at = :read_drift_seen_at AND #capacity = :read_capacity \
     AND (attribute_not_exists(#capped) OR #capped = :read_capped)",
    CORRECTED_NAMES,
);

impl Correction {
    /// What to do about `drift`, found at `now` between the readings `first` and `last`.
    #[must_use]
    pub fn plan(first: &Bucket, last: &Bucket, drift: Drift, now: Timestamp) -> Self {
        match (first.note(), drift.signed()) {
            (None, None) => Self::Nothing,
            (None, Some(found)) => Self::Note(Self::note(first, found, now)),
            // Not confirmed, even if nothing can be said: a correction takes two consecutive sweeps.
            (Some(note), None) => Self::Note(on(first, note, &FORGET, alloc::vec![])),
            (Some(note), Some(found)) if confirms(note, found, now) => {
                Self::correct(first, last, note, found)
            }
            (Some(note), Some(found)) => {
                let values = alloc::vec![(":drift", Operand::number(found)), (":now", Operand::number(now))];
                Self::Note(on(first, note, &NOTE_AGAIN, values))
            }
        }
    }

    fn note(first: &Bucket, found: Amount, now: Timestamp) -> Update {
        Update {
            key: first.key(),
            statement: Cow::Borrowed(&NOTE),
            values: alloc::vec![
                (":drift", Operand::number(found)),
                (":now", Operand::number(now)),
                (":read_version", Operand::number(first.version())),
                (":concurrent", Operand::text(LimitType::Concurrent)),
                (":number", Operand::text("N")),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }

    /// Corrects what both sweeps found; the next two correct the rest. For minted slots, T may go below zero
    /// until holders release, as in a resize, and may stay above the capacity until then.
    fn correct(first: &Bucket, last: &Bucket, note: &Note, found: Amount) -> Self {
        let noted = note.drift.get();
        let is_minted = is_negative(found);
        let slots = if is_minted { found.max(noted) } else { found.min(noted) };
        let capacity = first.capacity_as_read();
        let mut values = alloc::vec![
            (":slots", Operand::number(slots)),
            (":read_capacity", Operand::number(capacity)),
            (":read_capped", last.capped_as_read().map_or_else(|| Operand::number(0), Operand::number)),
        ];
        if !is_minted {
            values.push((":highest", Operand::number(capacity.get().minus(slots))));
        }
        let statement = if is_minted { &TAKE_AWAY } else { &GIVE_BACK };
        Self::Correct { update: on(first, note, statement, values), slots }
    }
}

/// A write on condition that the note is still the one that was read.
fn on(first: &Bucket, note: &Note, statement: &'static Statement, mut values: Values) -> Update {
    values.extend([
        (":read_drift", Operand::number(&note.drift)),
        (":read_drift_seen_at", Operand::number(&note.seen_at)),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ]);
    Update { key: first.key(), statement: Cow::Borrowed(statement), values }
}

/// T': slots that no lease with a row of its own holds, according to the bucket's row.
fn free_or_inline(bucket: &Bucket) -> Amount {
    bucket.tokens().plus(bucket.inline().map_or(Amount::ZERO, InlineLeases::held))
}

/// Whether `note` is from the sweep before, and has the same sign as what this sweep found.
fn confirms(note: &Note, found: Amount, now: Timestamp) -> bool {
    let noted = note.drift();
    let is_same_way = noted != Amount::ZERO && is_negative(found) == is_negative(noted);
    is_same_way && note.seen_at.get() >= now.before(OLDEST_NOTE)
}

fn is_negative(amount: Amount) -> bool {
    amount < Amount::ZERO
}
