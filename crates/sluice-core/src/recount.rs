//! Recount: finds slots of a concurrency bucket that were lost, or minted, in ways that nobody foresaw, and puts it right.
//!
//! A slot is free, or a lease holds it: `drift = C - cost of all leases - T` is zero. A scan of the leases is no snapshot,
//! though, and a busy bucket would always seem to leak. So the scan is bracketed by two readings of the bucket, 1 before and
//! 2 after. Where `version` did not move, nothing did, and the drift is exact. Where it moved, what was given back meanwhile
//! is known from `released = T2 - T1 + (admitted2 - admitted1)`, and the drift at the first reading lies
//!
//! - not below `C - T1 - S - released`: a lease that lived at the first reading was scanned, or released before the scan came
//!   to it. S is the cost of the scanned leases that may have lived then.
//! - not above `C - T1 - S'`: S' is the cost of the scanned leases that lived then for certain.
//!
//! All of that holds only while every write in between counts `admitted`. Clients in other languages do not, so the writes
//! of those that do are counted beside `version`, in `counted`: both have moved by as much, or nothing is said.
//!
//! What a sweep finds is written into the bucket as a suspicion, and put right by the next sweep that finds it too. The
//! suspicion goes in the same write, on condition that it is the one that was read: however many sweepers agree, one of them
//! corrects.

use core::time::Duration;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::lease::Lease;
use crate::limit::LimitType;
use crate::schema::{
    CAPACITY, COUNTED, DRIFT, DRIFT_SEEN_AT, Exact, LIMIT_TYPE, Row, RowError, TOKENS, VERSION, amount, optional,
    timestamp,
};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::{CLOCK_ERROR, Timestamp};

/// Between the instant that a lease says it was granted at and its write: a request may be tried for as long.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// When a bucket was read before a scan, by the sweeper's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Not later than the reading.
    pub begun: Timestamp,
    /// Not earlier than the reading.
    pub done: Timestamp,
}

/// What a sweep saw of the leases of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    all: Amount,
    /// Of those that may have lived at the first reading.
    possible: Amount,
    /// Of those that lived at the first reading for certain.
    certain: Amount,
    unreadable: bool,
}

impl Census {
    /// Counts a lease that a scan saw after the first reading of its bucket.
    pub fn count(&mut self, lease: &Lease, first: ReadAt) {
        let cost = lease.cost().amount();
        // Both clocks may be wrong, each in its own direction.
        let apart = CLOCK_ERROR * 2;
        self.all = self.all.plus(cost);
        if lease.created_at().is_none_or(|at| at <= first.done.after(apart)) {
            self.possible = self.possible.plus(cost);
        }
        if lease.created_at().is_some_and(|at| at < first.begun.before(apart + LONGEST_WRITE)) {
            self.certain = self.certain.plus(cost);
        }
    }

    /// Counts a lease whose cost cannot be read: nothing is known of the bucket then.
    pub const fn count_unreadable(&mut self) {
        self.unreadable = true;
    }

    /// Adds what another part of the scan saw.
    pub const fn add(&mut self, other: Self) {
        self.all = self.all.plus(other.all);
        self.possible = self.possible.plus(other.possible);
        self.certain = self.certain.plus(other.certain);
        self.unreadable |= other.unreadable;
    }
}

/// What a recount says of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// Nothing can be said: a client that does not count wrote meanwhile, a lease cannot be read, or the limit changed.
    Unknown,
    /// As far as can be seen, each slot is free or held by a lease.
    None,
    /// At least so many slots are neither free nor held by a lease.
    Lost(Amount),
    /// At least so many slots are free or held beyond the capacity.
    Minted(Amount),
}

impl Drift {
    /// The drift of a bucket read as `first` before a scan and as `last` after it, of which the scan saw `census`, and to
    /// which the sweep itself gave back `restored` for leases in that census.
    #[must_use]
    pub fn between(first: &Bucket, last: &Bucket, census: &Census, restored: Amount) -> Self {
        let capacity = first.limit().capacity();
        let writes = last.version() - first.version();
        let same = first.limit().is_concurrent() && last.limit().is_concurrent() && last.limit().capacity() == capacity;
        if census.unreadable || !same || writes < 0 {
            return Self::Unknown;
        }
        let taken = capacity.minus(first.tokens());
        if writes == 0 {
            let drift = taken.minus(census.all);
            return Self::of(drift, drift);
        }
        if last.counted() - first.counted() != writes {
            return Self::Unknown;
        }
        let admitted = last.admitted().unwrap_or_default().minus(first.admitted().unwrap_or_default());
        let released = last.tokens().minus(first.tokens()).plus(admitted).minus(restored);
        if released < Amount::ZERO {
            return Self::Unknown;
        }
        Self::of(taken.minus(census.possible).minus(released), taken.minus(census.certain))
    }

    fn of(least: Amount, most: Amount) -> Self {
        if least > Amount::ZERO {
            Self::Lost(least)
        } else if most < Amount::ZERO {
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

/// What an earlier sweep found, as it stands in the bucket's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspicion {
    drift: Exact<Amount>,
    seen_at: Exact<Timestamp>,
}

impl Suspicion {
    pub(crate) fn read(row: &impl Row) -> Result<Option<Self>, RowError> {
        optional(row, DRIFT, || Ok(Self { drift: amount(row, DRIFT)?, seen_at: timestamp(row, DRIFT_SEEN_AT)? }))
    }
}

/// What follows from a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Correction {
    /// Nothing to write.
    Nothing,
    /// Notes the drift, for the next sweep to confirm; or takes back an older note that was not confirmed.
    Note(Update),
    /// Two sweeps running found it: gives back (or, below zero, takes away) so many slots.
    Correct {
        /// The write.
        update: Update,
        /// Slots.
        slots: Amount,
    },
}

/// Interleavings that the condition stops: another sweep noted first (d); the bucket was removed and made anew (v, l).
static NOTE: Statement = Statement {
    update: "SET #d = :d, #s = :now, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "attribute_not_exists(#d) AND #v >= :v AND #l = :l",
    names: &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED), ("#l", LIMIT_TYPE)],
};

/// As above, in place of the note that was read: it found the opposite.
static NOTE_AGAIN: Statement = Statement {
    update: "SET #d = :d, #s = :now, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "#d = :seen AND #s = :at",
    names: &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED)],
};

/// Interleaving that the condition stops: another sweep noted anew, and its note would go (d, s).
static FORGET: Statement = Statement {
    update: "REMOVE #d, #s SET #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    condition: "#d = :seen AND #s = :at",
    names: &[("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED)],
};

/// Interleavings that the condition stops: another sweep that agreed corrected first (d, s: its write took the note away); a
/// resize between the reading and this write (C); there is no room, so that the slots came back in another way (T).
static CORRECT: Statement = Statement {
    update: "SET #T = #T + :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1 REMOVE #d, #s",
    condition: "#d = :seen AND #s = :at AND #C = :c AND #T <= :room",
    names: &[("#T", TOKENS), ("#C", CAPACITY), ("#d", DRIFT), ("#s", DRIFT_SEEN_AT), ("#v", VERSION), ("#w", COUNTED)],
};

impl Correction {
    /// What follows from `drift`, found at `now` by a sweep that read the bucket as `first` before its scan.
    #[must_use]
    pub fn plan(first: &Bucket, drift: Drift, now: Timestamp) -> Self {
        let note = first.suspicion();
        match (note, drift, drift.signed()) {
            (_, Drift::Unknown, _) | (None, Drift::None, _) => Self::Nothing,
            (None, _, Some(found)) => Self::Note(Self::note(first, found, now)),
            (Some(note), _, Some(found)) if is_negative(found) == is_negative(note.drift.get()) => {
                Self::correct(first, note, found)
            }
            (Some(note), _, Some(found)) => {
                let values = alloc::vec![(":d", Operand::number(found)), (":now", Operand::number(now))];
                Self::Note(on(first, note, &NOTE_AGAIN, values))
            }
            (Some(note), _, None) => Self::Note(on(first, note, &FORGET, alloc::vec![])),
            (None, _, None) => Self::Nothing,
        }
    }

    fn note(first: &Bucket, found: Amount, now: Timestamp) -> Update {
        Update {
            key: first.key(),
            statement: &NOTE,
            values: alloc::vec![
                (":d", Operand::number(found)),
                (":now", Operand::number(now)),
                (":v", Operand::number(first.version())),
                (":l", Operand::text(LimitType::Concurrent)),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }

    /// As much as both sweeps found. Where slots were minted, T may go below zero until holders release, as in a resize.
    fn correct(first: &Bucket, note: &Suspicion, found: Amount) -> Self {
        let noted = note.drift.get();
        let slots = if is_negative(found) { found.max(noted) } else { found.min(noted) };
        let capacity = first.capacity_as_read();
        let values = alloc::vec![
            (":k", Operand::number(slots)),
            (":c", Operand::number(capacity)),
            (":room", Operand::number(capacity.get().minus(slots))),
        ];
        Self::Correct { update: on(first, note, &CORRECT, values), slots }
    }
}

/// A write on condition of the note that was read.
fn on(first: &Bucket, note: &Suspicion, statement: &'static Statement, mut values: Values) -> Update {
    values.extend([
        (":seen", Operand::number(&note.drift)),
        (":at", Operand::number(&note.seen_at)),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ]);
    Update { key: first.key(), statement, values }
}

fn is_negative(amount: Amount) -> bool {
    amount < Amount::ZERO
}
