//! Recount: finds slots of a concurrency bucket that were lost, or minted, in ways that nobody foresaw, and puts it right.
//!
//! A slot is free, or a lease holds it: `drift = C - cost of all leases - T` is zero. A scan of the leases is no snapshot,
//! though, and a busy bucket would always seem to leak. So the scan is bracketed by two readings of the bucket, 1 before and
//! 2 after. What can be said is of the drift after the second.
//!
//! Where `version`, T, `admitted` and `capped` did not move, nothing did, and it is the drift of the scan: `C - T - all leases`.
//! Where they moved, what was given back meanwhile is known from `released = T2 - T1 + (admitted2 - admitted1)`, and the drift
//! lies
//!
//! - not below `C - T1 - S - released`: a lease that lived at the first reading was scanned, or released before the scan came
//!   to it. S is the cost of the scanned leases that may have lived then.
//! - not above `C - T1 - S' + (capped2 - capped1)`: S' is the cost of the scanned leases that lived then for certain, and
//!   `capped` counts the cost of leases that was deleted without its slots, since their bucket had no room. Each of them makes a minted slot
//!   good.
//!
//! The sweep knows besides what itself did to leases that it had scanned: what it gave back is no loss of the unscanned (it
//! leaves `released`), what it deleted alone is gone from S, and what it lost to others may be gone from S'.
//!
//! All of that holds only while every write in between counts `admitted`. Clients in other languages do not, so the writes
//! of those that do are counted beside `version`, in `counted`: both have moved by as much, or nothing is said.
//!
//! Inline leases are in the row itself. What they hold is part of the same reading as T, so that `T' = T + inline cost` stands
//! for T above, and `admitted' = admitted - admitted_inline` for `admitted`: an inline grant, release or reclaim moves neither,
//! and only leases with a row of their own are scanned. A bucket whose leases are all inline is judged exactly, however busy. One
//! that is removed without its slots moves T' down and `capped` up by as much; it hides in `released`, which may then be
//! below zero, and both bounds hold as they stand: the drift after the second reading is greater by what T' lost.
//!
//! What a sweep finds is written into the bucket as a note, and put right by the next sweep that finds it too. The note goes
//! in the same write, on condition that it is the one that was read: however many sweepers agree, one of them corrects.

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

/// Less is the noise of a client that counts slots in floats: a thousandth of a slot.
const NOISE: Amount = Amount::from_micros(1_000);

/// A note that is older was not made by the sweep before: they run every few minutes.
const OLDEST_NOTE: Duration = Duration::from_secs(60 * 60);

/// When a bucket was read before a scan, by the sweeper's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Not later than the reading.
    pub begun: Timestamp,
    /// Not earlier than the reading.
    pub done: Timestamp,
}

/// What a recount says of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// Nothing can be said: a client that does not count wrote meanwhile, a lease cannot be read or says that it holds more than the
    /// capacity, or the limit changed.
    Unknown,
    /// As far as can be seen, each slot is free or held by a lease.
    None,
    /// At least so many slots are neither free nor held by a lease.
    Lost(Amount),
    /// At least so many slots are free or held beyond the capacity.
    Minted(Amount),
}

impl Drift {
    /// The drift of a bucket read as `first` before a scan and as `last` after it, of which the scan saw `census`, and in which
    /// the sweep did `returned` to leases of that census.
    #[must_use]
    pub fn between(first: &Bucket, last: &Bucket, census: &Census, returned: Returned) -> Self {
        let capacity = first.limit().capacity();
        let writes = last.version().checked_sub(first.version());
        let counted = last.counted().checked_sub(first.counted());
        // Numbers so far apart count nothing.
        let (Some(writes), Some(counted)) = (writes, counted) else { return Self::Unknown };
        let is_unreadable = |bucket: &Bucket| bucket.inline().is_some_and(|leases| !leases.unreadable().is_empty());
        // A lease that says more than the capacity would have all slots but its own taken for minted, and the bucket shut.
        let overstates = |bucket: &Bucket| bucket.inline().is_some_and(|leases| leases.overstates(capacity));
        let unreadable =
            census.unreadable || [first, last].into_iter().any(|bucket| is_unreadable(bucket) || overstates(bucket));
        let same = first.limit().is_concurrent() && last.limit().is_concurrent() && last.limit().capacity() == capacity;
        if unreadable || !same || writes < 0 {
            return Self::Unknown;
        }
        let moved = |count: fn(&Bucket) -> Option<Amount>| {
            count(last).unwrap_or_default().minus(count(first).unwrap_or_default())
        };
        let (admitted, capped) = (moved(Bucket::admitted).minus(moved(Bucket::admitted_inline)), moved(Bucket::capped));
        let (free, change) = (free_or_inline(first), free_or_inline(last).minus(free_or_inline(first)));
        let taken = capacity.minus(free);
        if writes == 0 {
            // The restore of a client that does not keep `version` shows in T.
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

    /// Slots, positive where they are lost and negative where they are minted; `None` where there is nothing to say.
    #[must_use]
    pub const fn signed(self) -> Option<Amount> {
        match self {
            Self::Lost(slots) => Some(slots),
            Self::Minted(slots) => Some(Amount::ZERO.minus(slots)),
            Self::None | Self::Unknown => None,
        }
    }
}

/// What follows from a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Correction {
    /// Nothing to write.
    Nothing,
    /// Notes the drift, for the next sweep to confirm; or takes back a note that this sweep does not confirm.
    Note(Update),
    /// Two sweeps running found it: gives back (or, below zero, takes away) so many slots.
    Correct {
        /// The write.
        update: Update,
        /// Slots.
        slots: Amount,
    },
}

/// Interleavings that the condition stops: another sweep noted first (d, s; a note that cannot be read is none); the bucket was
/// removed and made anew (v, l).
static NOTE: Statement = Statement::fixed(
    "SET #d = :d, #s = :now, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    "(NOT attribute_type(#d, :n) OR NOT attribute_type(#s, :n) OR attribute_not_exists(#d) OR attribute_not_exists(#s)) AND #v >= :v AND #l = :l",
    &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED), ("#l", LIMIT_TYPE)],
);

/// As above, in place of the note that was read: it is old, or said the opposite.
static NOTE_AGAIN: Statement = Statement::fixed(
    "SET #d = :d, #s = :now, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    "#d = :seen AND #s = :at",
    &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED)],
);

/// Interleaving that the condition stops: another sweep noted anew, and its note would go (d, s).
static FORGET: Statement = Statement::fixed(
    "REMOVE #d, #s SET #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    "#d = :seen AND #s = :at",
    &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED)],
);

/// What both corrections write.
const CORRECTED: &str = "SET #T = #T + :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1 REMOVE #d, #s";

const CORRECTED_NAMES: &[(&str, &str)] = &[
    ("#T", TOKENS),
    ("#C", CAPACITY),
    ("#d", DRIFT),
    ("#s", DRIFT_SEEN_AT),
    ("#v", VERSION),
    ("#w", COUNTED),
    ("#x", CAPPED),
];

/// Interleavings that the condition stops: another sweep that agreed corrected first (d, s: its write took the note away); a
/// resize between the reading and this write (C); there is no room, so that the slots came back in another way (T); a lease
/// that was deleted without its slots since the last reading has made a minted one good already (x).
static GIVE_BACK: Statement = Statement::fixed(
    CORRECTED,
    "#d = :seen AND #s = :at AND #C = :c AND #T <= :room AND (attribute_not_exists(#x) OR #x = :x)",
    CORRECTED_NAMES,
);

/// Interleavings that the condition stops: as above, but for the room. A write of Sluice that makes a minted slot good either
/// deletes a lease without its slots (x) or is a correction (d, s); T says nothing of it. A condition on T would stop the
/// correction for good: once more slots were minted than the first sweep noted, the rest never fits, every sweep plans this very
/// write, and none passes.
static TAKE_AWAY: Statement = Statement::fixed(
    CORRECTED,
    "#d = :seen AND #s = :at AND #C = :c AND (attribute_not_exists(#x) OR #x = :x)",
    CORRECTED_NAMES,
);

impl Correction {
    /// What follows from `drift`, found at `now` by a sweep that read the bucket as `first` before its scan and as `last` after it.
    #[must_use]
    pub fn plan(first: &Bucket, last: &Bucket, drift: Drift, now: Timestamp) -> Self {
        match (first.note(), drift.signed()) {
            (None, None) => Self::Nothing,
            (None, Some(found)) => Self::Note(Self::note(first, found, now)),
            // Not confirmed, be it that nothing can be said: it takes two sweeps running.
            (Some(note), None) => Self::Note(on(first, note, &FORGET, alloc::vec![])),
            (Some(note), Some(found)) if confirms(note, found, now) => Self::correct(first, last, note, found),
            (Some(note), Some(found)) => {
                let values = alloc::vec![(":d", Operand::number(found)), (":now", Operand::number(now))];
                Self::Note(on(first, note, &NOTE_AGAIN, values))
            }
        }
    }

    fn note(first: &Bucket, found: Amount, now: Timestamp) -> Update {
        Update {
            key: first.key(),
            statement: Cow::Borrowed(&NOTE),
            values: alloc::vec![
                (":d", Operand::number(found)),
                (":now", Operand::number(now)),
                (":v", Operand::number(first.version())),
                (":l", Operand::text(LimitType::Concurrent)),
                (":n", Operand::text("N")),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }

    /// As much as both sweeps found; what only this one found, the next two put right. Where slots were minted, T may go below
    /// zero until holders release, as in a resize, and may stay above the capacity until then.
    fn correct(first: &Bucket, last: &Bucket, note: &Note, found: Amount) -> Self {
        let noted = note.drift.get();
        let is_minted = is_negative(found);
        let slots = if is_minted { found.max(noted) } else { found.min(noted) };
        let capacity = first.capacity_as_read();
        let mut values = alloc::vec![
            (":k", Operand::number(slots)),
            (":c", Operand::number(capacity)),
            (":x", last.capped_as_read().map_or_else(|| Operand::number(0), Operand::number)),
        ];
        if !is_minted {
            values.push((":room", Operand::number(capacity.get().minus(slots))));
        }
        let statement = if is_minted { &TAKE_AWAY } else { &GIVE_BACK };
        Self::Correct { update: on(first, note, statement, values), slots }
    }
}

/// A write on condition of the note that was read.
fn on(first: &Bucket, note: &Note, statement: &'static Statement, mut values: Values) -> Update {
    values.extend([
        (":seen", Operand::number(&note.drift)),
        (":at", Operand::number(&note.seen_at)),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ]);
    Update { key: first.key(), statement: Cow::Borrowed(statement), values }
}

/// T': slots that no lease with a row of its own holds, as far as the bucket's row says.
fn free_or_inline(bucket: &Bucket) -> Amount {
    bucket.tokens().plus(bucket.inline().map_or(Amount::ZERO, InlineLeases::held))
}

/// Whether a note is of the sweep before, and goes the same way as what this one found.
fn confirms(note: &Note, found: Amount, now: Timestamp) -> bool {
    let noted = note.drift();
    let is_same_way = noted != Amount::ZERO && is_negative(found) == is_negative(noted);
    is_same_way && note.seen_at.get() >= now.before(OLDEST_NOTE)
}

fn is_negative(amount: Amount) -> bool {
    amount < Amount::ZERO
}
