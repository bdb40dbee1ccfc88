//! The conditional writes of the design's sections 6 and 7, each with its conditions in one place; a mutant leaves one out.
//!
//! A cancelled transaction is read as the code reads it: a false condition on the lease comes before one on the bucket.

use crate::mutant::{Leases, Mutant};
use crate::protocol::Protocol;
use crate::state::{CAPACITY, CLAIMS, Part, State};

/// What DynamoDB answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Applied.
    Applied,
    /// Nothing happened: a condition on the lease was false.
    LeaseFailed,
    /// Nothing happened: the condition on the bucket was false.
    BucketFailed,
}

/// Leases by the end that was seen of each, 0 for those that are not meant.
pub(crate) type Seen = [u8; CLAIMS];

impl Protocol {
    /// `attribute_not_exists` of the lease, and T >= k.
    pub(crate) fn acquire(&self, state: &mut State, claim: usize) -> Answer {
        if state.claims[claim].ends > 0 && !self.is(Mutant::AcquireOverLease) {
            return Answer::LeaseFailed;
        }
        if state.free < 1 && !self.is(Mutant::AcquireWithoutRoom) {
            return Answer::BucketFailed;
        }
        state.free -= 1;
        grant(state, claim);
        Answer::Applied
    }

    /// The dead lease ends as it was seen to, T >= k - dead cost (both cost 1), and no lease under the own id.
    pub(crate) fn take_over(&self, state: &mut State, claim: usize, dead: usize, seen: u8) -> Answer {
        let ends = state.claims[dead].ends;
        let is_there = match self.mutant {
            Some(Mutant::TakeOverUnseen) => ends > 0,
            _ => ends == seen,
        };
        if !is_there || (state.claims[claim].ends > 0 && !self.is(Mutant::TakeOverOwnLease)) {
            return Answer::LeaseFailed;
        }
        if state.free < 0 && !self.is(Mutant::TakeOverWithoutRoom) {
            return Answer::BucketFailed;
        }
        state.claims[dead].ends = 0;
        grant(state, claim);
        Answer::Applied
    }

    /// `attribute_exists` of the lease, and room in the bucket.
    pub(crate) fn release(&self, state: &mut State, claim: usize, part: Part) -> Answer {
        if state.claims[claim].ends == 0 && !self.is(Mutant::ReleaseWithoutLease) {
            return Answer::LeaseFailed;
        }
        if !self.has_room(state, part, 1) {
            return Answer::BucketFailed;
        }
        state.claims[claim].ends = 0;
        give_back(state, part, 1);
        Answer::Applied
    }

    /// Each lease ends as it was seen to, and the bucket has room for all.
    pub(crate) fn reclaim(&self, state: &mut State, seen: &Seen, part: Part) -> Answer {
        if (0..CLAIMS).any(|claim| self.is_lost(state, claim, seen[claim])) {
            return Answer::LeaseFailed;
        }
        let slots = seen.iter().map(|seen| i8::from(*seen > 0)).sum();
        if !self.has_room(state, part, slots) {
            return Answer::BucketFailed;
        }
        for claim in (0..CLAIMS).filter(|claim| seen[*claim] > 0) {
            state.claims[claim].ends = 0;
        }
        give_back(state, part, slots);
        Answer::Applied
    }

    /// Whether the condition on a lease that was seen to end is false.
    pub(crate) fn is_lost(&self, state: &State, claim: usize, seen: u8) -> bool {
        let ends = state.claims[claim].ends;
        seen > 0
            && match self.mutant {
                Some(Mutant::ReclaimWithoutLease) => false,
                Some(Mutant::ReclaimRenewed) => ends == 0,
                _ => ends != seen,
            }
    }

    /// capacity = :c, and T <= C - k to give slots back or T = :seen (which was C) to fill. A lease in the bucket's own row
    /// needs neither.
    fn has_room(&self, state: &State, part: Part, slots: i8) -> bool {
        let (same, level) = match part {
            Part::Restore(capacity) => (
                state.capacity == capacity || self.is(Mutant::GiveBackToAnyCapacity),
                state.free <= capacity - slots || self.is(Mutant::GiveBackWithoutRoom),
            ),
            Part::Fill(capacity) => (
                state.capacity == capacity || self.is(Mutant::FillAnyCapacity),
                state.free == capacity || self.is(Mutant::FillUnseen),
            ),
            Part::Alone => (true, true),
        };
        self.leases == Leases::Inline || (same && level)
    }

    /// ttl <= :new, which a row that is gone has not.
    pub(crate) fn renew(&self, state: &mut State, claim: usize, ends: u8) -> Answer {
        let lease = &mut state.claims[claim].ends;
        if *lease == 0 && !self.is(Mutant::RenewWithoutLease) {
            return Answer::LeaseFailed;
        }
        // An older renewal changes nothing, and its sender is told as much: the lease stands for longer.
        if *lease <= ends || self.is(Mutant::RenewBackwards) {
            *lease = ends;
        }
        Answer::Applied
    }

    /// capacity = :c, the capacity that the bucket began with.
    pub(crate) fn resize(&self, state: &mut State, to: i8) -> Answer {
        if state.capacity != CAPACITY && !self.is(Mutant::ResizeFromAnyCapacity) {
            return Answer::BucketFailed;
        }
        state.free += to - CAPACITY;
        state.capacity = to;
        Answer::Applied
    }
}

/// Writes the lease, for as long as a lease lasts at first.
fn grant(state: &mut State, claim: usize) {
    state.claims[claim].ends = 1;
    state.overbooked |= state.leases() > state.capacity + state.minted;
}

/// A lease that is deleted without its slot makes good one that was given back twice; where none was, its own is lost.
fn give_back(state: &mut State, part: Part, slots: i8) {
    match part {
        Part::Restore(_) => state.free += slots,
        Part::Fill(_) | Part::Alone => state.minted = (state.minted - slots).max(0),
    }
}
