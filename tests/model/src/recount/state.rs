//! One bucket, its leases, and what two sweeps under way know of them.
//!
//! Nothing here counts on for ever: what a sweep compares are the changes since its first reading, and those
//! are kept with the sweep.

/// Acquisitions.
pub(crate) const CLAIMS: usize = 3;

/// Sweeps that may run at once.
pub(crate) const SWEEPERS: usize = 2;

/// The bucket's capacity.
pub(crate) const CAPACITY: i8 = 2;

/// Where a caller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Caller {
    /// It has not asked yet.
    #[default]
    Outside,
    /// It holds a slot.
    Holding(Client),
    /// Its release found the bucket full: the lease is to be deleted alone.
    Capping,
    /// It has released, or crashed.
    Gone,
}

/// What wrote the client of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Client {
    /// This SDK, which counts what it does.
    Own,
    /// Another, which does not.
    Foreign,
}

/// A lease row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Row {
    /// There is none.
    #[default]
    Absent,
    /// It has not ended.
    Live,
    /// It has.
    Ended,
}

/// A lease on a sweep's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Listed {
    /// It is not.
    #[default]
    No,
    /// As the scan saw it.
    Seen,
    /// The same, to be deleted alone.
    Capped,
    /// Gone or renewed since.
    Stale,
}

/// One acquisition, its lease, and what each sweep knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) caller: Caller,
    pub(crate) row: Row,
    /// Its row was written after the sweep's first reading.
    pub(crate) is_young: [bool; SWEEPERS],
    /// The scan has passed where its row is.
    pub(crate) is_passed: [bool; SWEEPERS],
    pub(crate) listed: [Listed; SWEEPERS],
}

impl Claim {
    /// Whether no sweep under way saw the lease live: it ended a week ago.
    pub(crate) fn is_old_in_every_scan(&self) -> bool {
        (0..SWEEPERS).all(|at| !self.is_young[at] && (!self.is_passed[at] || self.listed[at] != Listed::No))
    }
}

/// What a sweep noted in the bucket's row, for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Note {
    /// Slots lost, or (below zero) minted.
    pub(crate) drift: i8,
    /// Tells it from every other note, as the time in it does.
    pub(crate) stamp: u8,
}

/// What a sweep has decided to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Decision {
    /// A first note.
    Note(i8),
    /// A note in place of the one that was read.
    NoteAgain(i8),
    /// No note any more.
    Forget,
    /// So many slots come back, or go.
    Correct(i8),
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// Between its two readings.
    Scanning,
    /// After its judgement.
    Writing(Decision),
}

/// What has happened to the bucket since the first reading of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Changes {
    pub(crate) admitted: i8,
    pub(crate) capped: i8,
    pub(crate) writes: i8,
    pub(crate) counted: i8,
}

/// One sweep under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sweep {
    pub(crate) phase: Phase,
    /// T at its first reading.
    pub(crate) free: i8,
    /// The note at its first reading.
    pub(crate) note: Option<Note>,
    pub(crate) changes: Changes,
    /// Leases scanned that were granted long before the first reading, about then, and later.
    pub(crate) census: [u8; 3],
    /// Slots that it gave back, leases that it deleted alone, and leases that it lost to others.
    pub(crate) returned: [i8; 3],
    /// Another sweep corrected the bucket since the first reading: what this one finds may be put right
    /// already. It takes a second sweep to act on it, and that one will not find it.
    pub(crate) is_overtaken: bool,
}

impl Sweep {
    /// Of the writes, a judgement asks whether there were any and whether all were counted; and nothing more
    /// where not.
    fn forget(&mut self) {
        if self.changes.counted == self.changes.writes {
            self.changes.writes = self.changes.writes.min(1);
            self.changes.counted = self.changes.writes;
        } else {
            let changes = Changes { writes: 1, ..Changes::default() };
            *self = Self {
                phase: self.phase,
                note: self.note,
                changes,
                is_overtaken: self.is_overtaken,
                ..Self::default()
            };
        }
    }
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    /// T.
    pub(crate) free: i8,
    pub(crate) note: Option<Note>,
    /// Notes so far.
    pub(crate) stamps: u8,
    /// Sweeps that may begin yet.
    pub(crate) sweeps: u8,
    /// Faults that are left.
    pub(crate) faults: u8,
    /// Slots that faults lost so far, and minted.
    pub(crate) lost: i8,
    pub(crate) minted: i8,
    /// A sweep found more than there was.
    pub(crate) is_false_alarm: bool,
    /// A correction gave back a slot for which there was no room.
    pub(crate) is_overfilled: bool,
    pub(crate) sweepers: [Sweep; SWEEPERS],
    pub(crate) claims: [Claim; CLAIMS],
}

impl State {
    pub(crate) fn first(sweeps: u8, faults: u8) -> Self {
        Self {
            free: CAPACITY,
            note: None,
            stamps: 0,
            sweeps,
            faults,
            lost: 0,
            minted: 0,
            is_false_alarm: false,
            is_overfilled: false,
            sweepers: [Sweep::default(); SWEEPERS],
            claims: [Claim::default(); CLAIMS],
        }
    }

    /// Slots that are neither free nor leased; below zero, those that are both.
    pub(crate) fn drift(&self) -> i8 {
        let leases: i8 = self.claims.iter().map(|claim| i8::from(claim.row != Row::Absent)).sum();
        CAPACITY - self.free - leases
    }

    /// A write to the bucket, as the sweeps under way will see it.
    pub(crate) fn wrote(&mut self, counted: bool, admitted: i8, capped: i8) {
        let counts = i8::from(counted);
        for sweep in self.sweepers.iter_mut().filter(|sweep| sweep.phase == Phase::Scanning) {
            sweep.changes.writes += 1;
            sweep.changes.counted += counts;
            sweep.changes.admitted += admitted;
            sweep.changes.capped += capped;
        }
    }

    /// The row of a claim is gone or renewed: whoever has it on a list will find out.
    pub(crate) fn changed(&mut self, claim: usize, row: Row) {
        self.claims[claim].row = row;
        for listed in self.claims[claim].listed.iter_mut().filter(|listed| **listed != Listed::No) {
            *listed = Listed::Stale;
        }
    }

    /// Forgets what a sweep knew.
    pub(crate) fn end(&mut self, sweeper: usize) {
        self.sweepers[sweeper] = Sweep::default();
        for claim in &mut self.claims {
            claim.is_young[sweeper] = false;
            claim.is_passed[sweeper] = false;
            claim.listed[sweeper] = Listed::No;
        }
    }

    /// Whether a sweep has scanned every row that is there. A row that comes where it has been, it takes no
    /// notice of.
    pub(crate) fn is_scanned(&self, sweeper: usize) -> bool {
        self.claims.iter().all(|claim| claim.row == Row::Absent || claim.is_passed[sweeper])
    }

    /// The same, without what the judgement of core makes nothing of.
    pub(crate) fn without_the_unheeded(mut self) -> Self {
        for sweep in &mut self.sweepers {
            sweep.forget();
        }
        self
    }

    /// The one of all states that differ from this one in names only, or in what nobody asks for any more.
    pub(crate) fn canonical(mut self) -> Self {
        for claim in &mut self.claims {
            for sweeper in 0..SWEEPERS {
                let is_there = claim.row != Row::Absent;
                claim.is_passed[sweeper] &= is_there;
                claim.is_young[sweeper] &= is_there;
            }
        }
        self.restamp();
        let mut other = self;
        other.sweepers.reverse();
        for claim in &mut other.claims {
            claim.is_young.reverse();
            claim.is_passed.reverse();
            claim.listed.reverse();
        }
        self.claims.sort_unstable();
        other.claims.sort_unstable();
        self.min(other)
    }

    /// Gives the stamps of notes the smallest numbers that tell them apart.
    fn restamp(&mut self) {
        let mut notes: Vec<&mut Note> = self
            .note
            .iter_mut()
            .chain(self.sweepers.iter_mut().filter_map(|sweep| sweep.note.as_mut()))
            .collect();
        notes.sort_unstable_by_key(|note| note.stamp);
        let (mut last, mut rank) = (0, 0);
        for note in notes {
            rank += u8::from(note.stamp != last);
            last = std::mem::replace(&mut note.stamp, rank);
        }
        self.stamps = rank;
    }
}
