//! What the table holds, what callers and sweepers know of it, and what is still on its way: all of it small
//! integers.
//!
//! A *claim* is one acquisition under one lease id, with everything about it: who makes it, its lease, and
//! the requests on their way that name it. Callers keep nothing from one acquisition to the next that a
//! condition rests on, so a client that comes again is another claim.
//!
//! Time is the claim's own: `past` is the greatest instant that is over for every clock. A lease ends at an
//! instant (1 as it is granted, one more with each renewal), and has ended once that is past. So leases end
//! in any order.

use crate::mutant::Leases;

/// Acquisitions at most.
pub(crate) const CLAIMS: usize = 4;

/// Sweepers.
pub(crate) const SWEEPERS: usize = 2;

/// The capacity that the bucket begins with; a resize goes from here.
pub(crate) const CAPACITY: i8 = 2;

/// Where a caller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Caller {
    /// It has not asked yet, or was refused.
    #[default]
    Outside,
    /// A request of its got no answer, and may have been applied.
    Asking {
        /// The copy that got no answer was applied: a retry under the same token is answered by it.
        applied: bool,
    },
    /// It calls the vendor.
    Holding {
        /// When its lease ends, as far as it was told; 0 once it was told that the lease is gone.
        until: u8,
        /// The capacity that it has read, by which it will give back.
        capacity: i8,
    },
    /// A release was not answered, or has to be planned again.
    Releasing(Part),
    /// Mutants only: it has deleted its lease, and the slot is yet to be given back.
    HalfReleased,
    /// Mutants only: it asked again under another id.
    Renamed,
    /// It has released, crashed, or gone away.
    Gone,
}

impl Caller {
    /// Whether it has begun and not ended.
    pub(crate) const fn is_here(self) -> bool {
        !matches!(self, Self::Outside | Self::Renamed | Self::Gone)
    }
}

/// What becomes of the bucket when a lease is deleted: the half of `sluice_core::Chunk` that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// The slot comes back where there is room by this capacity.
    Restore(i8),
    /// By this capacity, and with so many slots free, there is no room for all: what there is room for comes
    /// back. (Costs are 1, so where one lease is deleted, no slot does.)
    Fill(i8, i8),
    /// No slot comes back: as many are taken, or more.
    Taken,
    /// Mutants only: the lease is deleted, and the bucket is not asked.
    Alone,
}

/// What a sweeper has on its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Note {
    /// Nothing.
    #[default]
    Blank,
    /// A lease that ended at this instant.
    Ended(u8),
    /// The same, to be deleted without its slot.
    Full(u8),
}

/// What a joined write does to a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Share {
    /// Nothing.
    #[default]
    Nothing,
    /// Puts it into the row.
    Take,
    /// Removes it for its holder.
    Release,
    /// Removes it, which was seen to have ended at this instant, for the sake of one that it puts in.
    TakeOver(u8),
}

/// A request of a caller that is on its way, long after the caller stopped to wait for its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Late {
    /// None.
    #[default]
    Nothing,
    /// An acquire.
    Acquire,
    /// An acquire into a row without a map of leases.
    AcquireFirst,
    /// A take-over; the lease that it takes has `taken_late`.
    TakeOver,
    /// A renewal up to this instant.
    Renew(u8),
    /// A release.
    Release(Part),
}

/// One acquisition and its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) caller: Caller,
    /// When its lease ends, as the table has it; 0 where the table has none.
    pub(crate) ends: u8,
    /// The greatest instant that is past.
    pub(crate) past: u8,
    /// What each sweeper has on its list.
    pub(crate) notes: [Note; SWEEPERS],
    /// Requests of its caller that are still on their way.
    pub(crate) late: [Late; 2],
    /// The end that a late reclaim has seen; 0 where it does not name this lease.
    pub(crate) reclaimed_late: u8,
    /// The end that refused callers have seen; 0 where none has.
    pub(crate) coveted: u8,
    /// The end that a late take-over has seen; 0 where it does not name this lease.
    pub(crate) taken_late: u8,
    /// What a late joined write does to this lease.
    pub(crate) joined_late: Share,
}

impl Claim {
    /// Whether its lease lies in the table and is over for every clock.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ends > 0 && self.ends <= self.past
    }

    /// Whether its caller rightly takes its lease to be live.
    pub(crate) const fn is_entitled(&self) -> bool {
        matches!(self.caller, Caller::Holding { until, .. } if until > self.past)
    }

    /// Puts a request on its way; false where two are already.
    pub(crate) fn delay(&mut self, late: Late) -> bool {
        let Some(free) = self.late.iter_mut().find(|late| **late == Late::Nothing) else { return false };
        *free = late;
        self.late.sort_unstable();
        true
    }

    /// Every instant that it knows of, but `past`.
    fn instants(&mut self) -> impl Iterator<Item = &mut u8> {
        let until = match &mut self.caller {
            Caller::Holding { until, .. } => Some(until),
            _ => None,
        };
        let notes = self.notes.iter_mut().filter_map(|note| match note {
            Note::Ended(end) | Note::Full(end) => Some(end),
            Note::Blank => None,
        });
        let late = self.late.iter_mut().filter_map(|late| match late {
            Late::Renew(end) => Some(end),
            _ => None,
        });
        let joined = match &mut self.joined_late {
            Share::TakeOver(end) => Some(end),
            _ => None,
        };
        let own = [&mut self.ends, &mut self.reclaimed_late, &mut self.coveted, &mut self.taken_late];
        own.into_iter().chain(until).chain(notes).chain(late).chain(joined)
    }

    /// An instant after all that it knows of.
    pub(crate) fn later(mut self) -> u8 {
        self.instants().map(|instant| *instant).max().unwrap_or(0).max(self.past) + 1
    }

    /// Gives the instants the smallest numbers that keep their order: nothing else is ever asked of them. The
    /// first end stays 1 where a lease may be granted yet.
    fn renumber(&mut self) {
        let is_granted_yet = !matches!(self.caller, Caller::Gone | Caller::Renamed)
            || self.late != [Late::Nothing; 2]
            || self.joined_late == Share::Take;
        let known =
            self.instants().fold(u32::from(is_granted_yet) << 1, |known, instant| known | 1 << *instant) & !1;
        let rank = |instant: u8| (0..=instant).map(|at| u8::from(known & (1 << at) > 0)).sum();
        self.past = rank(self.past);
        for instant in self.instants() {
            *instant = rank(*instant);
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let is_named_late =
            self.reclaimed_late > 0 || self.taken_late > 0 || self.joined_late != Share::Nothing;
        !self.caller.is_here() && self.late == [Late::Nothing; 2] && !is_named_late
    }
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    /// C.
    pub(crate) capacity: i8,
    /// T, below zero for a while after a resize.
    pub(crate) free: i8,
    /// Slots that a foreign client gave back twice and that no lease deleted alone has made good yet.
    pub(crate) minted: i8,
    /// The row has a map of leases; a bucket with lease rows needs none.
    pub(crate) has_map: bool,
    /// A lease was granted although as many were out as the capacity allows.
    pub(crate) overbooked: bool,
    /// What may still go wrong.
    pub(crate) faults: u8,
    /// Renewals that are left.
    pub(crate) renewals: u8,
    /// The capacity that each sweeper has read; 0 while its list is blank.
    pub(crate) read: [i8; SWEEPERS],
    /// The bucket's part of a reclaim on its way.
    pub(crate) reclaim_late: Option<Part>,
    /// The slots of a joined write on its way.
    pub(crate) joined_late: Option<Part>,
    /// The capacity that a resize on its way sets.
    pub(crate) resize_late: Option<i8>,
    pub(crate) claims: [Claim; CLAIMS],
}

impl State {
    pub(crate) fn first(leases: Leases, faults: u8, renewals: u8) -> Self {
        Self {
            capacity: CAPACITY,
            free: CAPACITY,
            minted: 0,
            has_map: leases == Leases::Rows,
            overbooked: false,
            faults,
            renewals,
            read: [0; SWEEPERS],
            reclaim_late: None,
            joined_late: None,
            resize_late: None,
            claims: [Claim::default(); CLAIMS],
        }
    }

    /// Leases in the table, ended or not.
    pub(crate) fn leases(&self) -> i8 {
        self.claims.iter().map(|claim| i8::from(claim.ends > 0)).sum()
    }

    /// Whether nobody is left, and nothing is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.resize_late.is_none() && self.joined_late.is_none() && self.claims.iter().all(Claim::is_quiet)
    }

    /// The one of all states that differ from this one in names only. Claims are interchangeable, and so are
    /// sweepers.
    pub(crate) fn canonical(mut self) -> Self {
        let is_anyone_refused =
            self.claims.iter().any(|claim| matches!(claim.caller, Caller::Outside | Caller::Asking { .. }));
        for claim in &mut self.claims {
            if !is_anyone_refused {
                claim.coveted = 0;
            }
            claim.renumber();
        }
        for sweeper in 0..SWEEPERS {
            if self.claims.iter().all(|claim| claim.notes[sweeper] == Note::Blank) {
                self.read[sweeper] = 0;
            }
        }
        let mut other = self;
        other.read.reverse();
        for claim in &mut other.claims {
            claim.notes.reverse();
        }
        self.claims.sort_unstable();
        other.claims.sort_unstable();
        self.min(other)
    }
}
