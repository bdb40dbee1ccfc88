//! The conditional writes of the design's sections 6 and 7, each with its conditions in one place; a mutant
//! leaves one out.
//!
//! A cancelled transaction is read as the code reads it: a false condition on the lease comes before one on
//! the bucket.

use crate::mutant::Mutant;
use crate::protocol::Protocol;
use crate::state::{CAPACITY, CLAIMS, Part, Share, State};

/// What DynamoDB answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// Applied.
    Applied,
    /// Nothing happened: a condition on the lease was false.
    LeaseFailed,
    /// Nothing happened: the condition on the bucket was false.
    BucketFailed,
}

/// Leases by the end that was seen of each, 0 for those that are not meant.
pub(crate) type Seen = [u8; CLAIMS];

/// What a joined write does to each lease.
pub(crate) type Shares = [Share; CLAIMS];

impl Protocol {
    /// `attribute_not_exists` of the lease, and T >= k.
    pub(crate) fn acquire(&self, state: &mut State, claim: usize) -> WriteResult {
        if state.claims[claim].ends > 0 && !self.is(Mutant::AcquireOverLease) {
            return WriteResult::LeaseFailed;
        }
        if state.free < 1 && !self.is(Mutant::AcquireWithoutRoom) {
            return WriteResult::BucketFailed;
        }
        state.free -= 1;
        grant(state, claim);
        WriteResult::Applied
    }

    /// `attribute_not_exists` of the map, and T >= k.
    pub(crate) fn acquire_first(&self, state: &mut State, claim: usize) -> WriteResult {
        if state.has_map && !self.is(Mutant::FirstOverMap) {
            return WriteResult::LeaseFailed;
        }
        if state.free < 1 && !self.is(Mutant::AcquireWithoutRoom) {
            return WriteResult::BucketFailed;
        }
        // What the map held is gone.
        for claim in &mut state.claims {
            claim.ends = 0;
        }
        state.has_map = true;
        state.free -= 1;
        grant(state, claim);
        WriteResult::Applied
    }

    /// The sum of the conditions of each: `attribute_not_exists` of what is put in, `attribute_exists` of
    /// what is released, the end as it was seen of what is taken over, T >= what is taken less what comes
    /// back, and room for what comes back beyond.
    pub(crate) fn joined(&self, state: &mut State, shares: &Shares, part: Part) -> WriteResult {
        // Of each kind: how many, and for how many the condition is true.
        let mut counts = [(0i8, 0i8); 3];
        for (share, lease) in shares.iter().zip(&state.claims) {
            let (kind, holds) = match share {
                Share::Nothing => continue,
                Share::Take => (0, lease.ends == 0 || self.is(Mutant::AcquireOverLease)),
                Share::Release => (1, lease.ends > 0 || self.is(Mutant::ReleaseWithoutLease)),
                Share::TakeOver(seen) => {
                    (2, lease.ends == *seen || (lease.ends > 0 && self.is(Mutant::TakeOverUnseen)))
                }
            };
            counts[kind].0 += 1;
            counts[kind].1 += i8::from(holds);
        }
        let most = if self.is(Mutant::OneOfEachKind) { 1 } else { i8::MAX };
        if counts.iter().any(|(all, hold)| *hold < most.min(*all)) {
            return WriteResult::LeaseFailed;
        }
        let [(taken, _), (released, _), (dead, _)] = counts;
        let net = released + dead - taken;
        let has_slots = state.free + net >= 0 || self.is(Mutant::JoinedWithoutSlots);
        if (taken > 0 && !has_slots) || !self.has_room(state, part, net) {
            return WriteResult::BucketFailed;
        }
        for (share, lease) in
            shares.iter().zip(&mut state.claims).filter(|(share, _)| **share != Share::Nothing)
        {
            lease.ends = u8::from(*share == Share::Take);
        }
        give_back(state, part, net);
        state.overbooked |= taken > 0 && state.leases() > state.capacity + state.minted;
        WriteResult::Applied
    }

    /// The dead lease ends as it was seen to, T >= k - dead cost (both cost 1), and no lease under the own
    /// id.
    pub(crate) fn take_over(&self, state: &mut State, claim: usize, dead: usize, seen: u8) -> WriteResult {
        let ends = state.claims[dead].ends;
        let is_there = match self.mutant {
            Some(Mutant::TakeOverUnseen) => ends > 0,
            _ => ends == seen,
        };
        if !is_there || (state.claims[claim].ends > 0 && !self.is(Mutant::TakeOverOwnLease)) {
            return WriteResult::LeaseFailed;
        }
        if state.free < 0 && !self.is(Mutant::TakeOverWithoutRoom) {
            return WriteResult::BucketFailed;
        }
        state.claims[dead].ends = 0;
        grant(state, claim);
        WriteResult::Applied
    }

    /// `attribute_exists` of the lease, and room in the bucket.
    pub(crate) fn release(&self, state: &mut State, claim: usize, part: Part) -> WriteResult {
        if state.claims[claim].ends == 0 && !self.is(Mutant::ReleaseWithoutLease) {
            return WriteResult::LeaseFailed;
        }
        if !self.has_room(state, part, 1) {
            return WriteResult::BucketFailed;
        }
        state.claims[claim].ends = 0;
        give_back(state, part, 1);
        WriteResult::Applied
    }

    /// Each lease ends as it was seen to, and the bucket has room for all.
    pub(crate) fn reclaim(&self, state: &mut State, seen: &Seen, part: Part) -> WriteResult {
        if (0..CLAIMS).any(|claim| self.is_lost(state, claim, seen[claim])) {
            return WriteResult::LeaseFailed;
        }
        let slots = seen.iter().map(|seen| i8::from(*seen > 0)).sum();
        if !self.has_room(state, part, slots) {
            return WriteResult::BucketFailed;
        }
        for claim in (0..CLAIMS).filter(|claim| seen[*claim] > 0) {
            state.claims[claim].ends = 0;
        }
        give_back(state, part, slots);
        WriteResult::Applied
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

    /// capacity = :read_capacity, and T <= C - k to give slots back or tokens = :read_tokens to fill.
    fn has_room(&self, state: &State, part: Part, slots: i8) -> bool {
        let (same, level) = match part {
            Part::Restore(capacity) => (
                state.capacity == capacity || self.is(Mutant::GiveBackToAnyCapacity),
                state.free <= capacity - slots || self.is(Mutant::GiveBackWithoutRoom),
            ),
            Part::Fill(capacity, seen) => (
                state.capacity == capacity || self.is(Mutant::FillAnyCapacity),
                state.free == seen || self.is(Mutant::FillUnseen),
            ),
            Part::Taken | Part::Alone => (true, true),
        };
        same && level
    }

    /// ttl <= :ends, which a row that is gone has not.
    pub(crate) fn renew(&self, state: &mut State, claim: usize, ends: u8) -> WriteResult {
        let lease = &mut state.claims[claim].ends;
        if *lease == 0 && !self.is(Mutant::RenewWithoutLease) {
            return WriteResult::LeaseFailed;
        }
        // An older renewal changes nothing, and its sender is told as much: the lease stands for longer.
        if *lease <= ends || self.is(Mutant::RenewBackwards) {
            *lease = ends;
        }
        WriteResult::Applied
    }

    /// capacity = :read_capacity, the capacity that the bucket began with.
    pub(crate) fn resize(&self, state: &mut State, to: i8) -> WriteResult {
        if state.capacity != CAPACITY && !self.is(Mutant::ResizeFromAnyCapacity) {
            return WriteResult::BucketFailed;
        }
        state.free += to - CAPACITY;
        state.capacity = to;
        WriteResult::Applied
    }
}

/// Writes the lease, for as long as a lease lasts at first.
fn grant(state: &mut State, claim: usize) {
    state.claims[claim].ends = 1;
    state.overbooked |= state.leases() > state.capacity + state.minted;
}

/// A lease that is deleted without its slot makes good one that was given back twice; where none was, its own
/// is lost. A fill sets T to what it was seen to be and what there is room for.
fn give_back(state: &mut State, part: Part, slots: i8) {
    match part {
        Part::Restore(_) | Part::Taken => state.free += slots,
        Part::Fill(capacity, seen) => {
            let back = slots.min(capacity - seen).max(0);
            state.free = seen + back;
            state.minted = (state.minted - slots + back).max(0);
        }
        Part::Alone => state.minted = (state.minted - slots).max(0),
    }
}
