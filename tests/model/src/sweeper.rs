//! What a sweeper does: its scan comes upon ended leases one by one, and it gives back what is on its list,
//! any part of it in one transaction. The code cuts its list into 99 and halves what fails; here every way to
//! cut it is tried.

use crate::action::Fate;
use crate::mutant::Mutant;
use crate::protocol::Protocol;
use crate::state::{CLAIMS, Note, Part, State};
use crate::writes::{Seen, WriteResult};

/// Requests in which a sweep of so few leases must have ended: each lease alone after all together, each
/// planned again for a changed capacity, and each deleted without its slot.
const ROUNDS: usize = 4;

impl Protocol {
    /// A scan comes upon a lease. The bucket is read when the first comes on the list, and then not before a
    /// reply shows it.
    pub(crate) fn scan(&self, state: &State, sweeper: usize, claim: usize) -> Option<State> {
        let found = &state.claims[claim];
        if !self.has_ended(found)
            || matches!(found.notes[sweeper], Note::Ended(end) | Note::Full(end) if end == found.ends)
        {
            return None;
        }
        let mut next = *state;
        next.claims[claim].notes[sweeper] = Note::Ended(found.ends);
        if next.read[sweeper] == 0 {
            next.read[sweeper] = state.capacity;
        }
        Some(next)
    }

    /// Gives back leases of the list together.
    pub(crate) fn reclaim_listed(
        &self,
        state: &State,
        sweeper: usize,
        claims: u8,
        fate: Fate,
    ) -> Option<State> {
        let mut seen = Seen::default();
        for claim in (0..CLAIMS).filter(|claim| claims & (1 << claim) > 0) {
            let Note::Ended(end) = state.claims[claim].notes[sweeper] else { return None };
            seen[claim] = end;
        }
        if claims == 0 {
            return None;
        }
        let part = Part::Restore(state.read[sweeper]);
        let mut next = *state;
        let answer = match fate {
            Fate::Unanswered => return delayed(state, &seen, part),
            Fate::Conflict if self.is(Mutant::ConflictIsCapped) => {
                set(&mut next, sweeper, &seen, Note::Full);
                return Some(next);
            }
            // Nothing happened: it backs off, and its list stays as it is.
            Fate::Conflict => return None,
            Fate::Answered => self.reclaim(&mut next, &seen, part),
        };
        match answer {
            WriteResult::Applied => set(&mut next, sweeper, &seen, |_| Note::Blank),
            WriteResult::LeaseFailed => self.cross_out(&mut next, sweeper, &seen),
            WriteResult::BucketFailed => match self.plan_again(state, part) {
                Part::Restore(capacity) => next.read[sweeper] = capacity,
                Part::Fill(..) | Part::Taken | Part::Alone if claims.is_power_of_two() => {
                    set(&mut next, sweeper, &seen, Note::Full)
                }
                // No room for all of them: it halves the list.
                Part::Fill(..) | Part::Taken | Part::Alone => return None,
            },
        }
        Some(next)
    }

    /// Deletes one lease without giving its slot back.
    pub(crate) fn fill_listed(
        &self,
        state: &State,
        sweeper: usize,
        claim: usize,
        fate: Fate,
    ) -> Option<State> {
        let Note::Full(end) = state.claims[claim].notes[sweeper] else { return None };
        let mut seen = Seen::default();
        seen[claim] = end;
        let is_misread = self.is(Mutant::ConflictIsCapped) || self.is(Mutant::ResizedIsCapped);
        let part =
            if is_misread { Part::Alone } else { Part::Fill(state.read[sweeper], state.read[sweeper]) };
        if fate == Fate::Unanswered {
            return delayed(state, &seen, part);
        }
        let mut next = *state;
        match self.reclaim(&mut next, &seen, part) {
            // Applied or lost to another: done either way.
            WriteResult::Applied | WriteResult::LeaseFailed => {
                set(&mut next, sweeper, &seen, |_| Note::Blank)
            }
            WriteResult::BucketFailed => {
                next.read[sweeper] = state.capacity;
                if matches!(self.plan_again(state, part), Part::Restore(_)) {
                    set(&mut next, sweeper, &seen, Note::Ended);
                }
            }
        }
        Some(next)
    }

    /// Leaves the rest of its list to the next sweep.
    pub(crate) fn leave(state: &State, sweeper: usize) -> Option<State> {
        let mut next = *state;
        for claim in &mut next.claims {
            claim.notes[sweeper] = Note::Blank;
        }
        next.read[sweeper] = 0;
        Some(next)
    }

    /// A reclaim arrives that nobody waits for any more.
    pub(crate) fn reclaim_arrives(&self, state: &State) -> Option<State> {
        let mut next = *state;
        let part = next.reclaim_late.take()?;
        let mut seen = Seen::default();
        for (claim, seen) in next.claims.iter_mut().zip(&mut seen) {
            *seen = std::mem::take(&mut claim.reclaimed_late);
        }
        self.reclaim(&mut next, &seen, part);
        Some(next)
    }

    /// The state after a whole sweep that meets no fault.
    pub(crate) fn sweep(&self, state: &State) -> State {
        let mut now = Self::leave(state, 0).unwrap_or(*state);
        for claim in 0..CLAIMS {
            now = self.scan(&now, 0, claim).unwrap_or(now);
        }
        for _ in 0..ROUNDS {
            let listed = (0..CLAIMS).filter(|claim| matches!(now.claims[*claim].notes[0], Note::Ended(_)));
            let all = listed.fold(0, |all, claim| all | (1 << claim));
            for claims in std::iter::once(all).chain((0..CLAIMS).map(|claim| 1 << claim)) {
                now = self.reclaim_listed(&now, 0, claims, Fate::Answered).unwrap_or(now);
            }
            for claim in 0..CLAIMS {
                now = self.fill_listed(&now, 0, claim, Fate::Answered).unwrap_or(now);
            }
        }
        now
    }

    /// Takes off the list what others gave back or renewed.
    fn cross_out(&self, next: &mut State, sweeper: usize, seen: &Seen) {
        for (claim, seen) in seen.iter().enumerate() {
            if self.is_lost(next, claim, *seen) {
                next.claims[claim].notes[sweeper] = Note::Blank;
            }
        }
    }
}

fn set(next: &mut State, sweeper: usize, seen: &Seen, note: impl Fn(u8) -> Note) {
    for (claim, seen) in next.claims.iter_mut().zip(seen).filter(|(_, seen)| **seen > 0) {
        claim.notes[sweeper] = note(*seen);
    }
}

/// The request goes on its way, and the list stays as it is.
fn delayed(state: &State, seen: &Seen, part: Part) -> Option<State> {
    let mut next = *state;
    next.faults = state.faults.checked_sub(1)?;
    if next.reclaim_late.replace(part).is_some() {
        return None;
    }
    for (claim, seen) in next.claims.iter_mut().zip(seen) {
        claim.reclaimed_late = *seen;
    }
    Some(next)
}
