//! A sweep with a recount: a reading, a scan that gives back what has ended, a second reading, a judgement, a
//! write.

use sluice_core::Drift;

use super::judgement::slots;
use super::mistake::Mistake;
use super::model::Recount;
use super::state::{CAPACITY, CLAIMS, Decision, Listed, Note, Phase, Row, State, Sweep};

/// How old a scanned lease looks beside the first reading of the sweep: clocks are off, and a write takes a
/// while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Granted long before it, or long after, as it was.
    Clear,
    /// Granted about then.
    Close,
}

impl Recount {
    /// Reads the bucket.
    pub(crate) fn begin(state: &State, sweeper: usize) -> Option<State> {
        if state.sweepers[sweeper].phase != Phase::Idle {
            return None;
        }
        let mut next = *state;
        next.sweeps = state.sweeps.checked_sub(1)?;
        next.sweepers[sweeper] =
            Sweep { phase: Phase::Scanning, free: state.free, note: state.note, ..Sweep::default() };
        Some(next)
    }

    /// The scan passes a claim's row.
    pub(crate) fn pass(state: &State, sweeper: usize, claim: usize, looks: Looks) -> Option<State> {
        let seen = &state.claims[claim];
        let is_due = state.sweepers[sweeper].phase == Phase::Scanning && !seen.is_passed[sweeper];
        if !is_due || seen.row == Row::Absent {
            return None;
        }
        let mut next = *state;
        next.claims[claim].is_passed[sweeper] = true;
        let age = match (looks, seen.is_young[sweeper]) {
            (Looks::Close, _) => 1,
            (Looks::Clear, false) => 0,
            (Looks::Clear, true) => 2,
        };
        next.sweepers[sweeper].census[age] += 1;
        if seen.row == Row::Ended {
            next.claims[claim].listed[sweeper] = Listed::Seen;
        }
        Some(next)
    }

    /// Gives back a lease of the list, on the conditions of a reclaim.
    pub(crate) fn reclaim(state: &State, sweeper: usize, claim: usize) -> Option<State> {
        let mut next = *state;
        let listed = state.claims[claim].listed[sweeper];
        let returned = match listed {
            Listed::No => return None,
            Listed::Stale => 2,
            Listed::Seen if state.free >= CAPACITY => {
                next.claims[claim].listed[sweeper] = Listed::Capped;
                return Some(next);
            }
            Listed::Seen => 0,
            // There is room again: it is planned anew.
            Listed::Capped if state.free < CAPACITY => {
                next.claims[claim].listed[sweeper] = Listed::Seen;
                return Some(next);
            }
            Listed::Capped => 1,
        };
        if listed != Listed::Stale {
            next.changed(claim, Row::Absent);
            next.free += i8::from(listed == Listed::Seen);
            next.wrote(true, 0, i8::from(listed == Listed::Capped));
        }
        next.claims[claim].listed[sweeper] = Listed::No;
        next.sweepers[sweeper].returned[returned] += 1;
        Some(next)
    }

    /// Reads the bucket again, after the scan and all that was to be given back, and judges.
    pub(crate) fn judge(&self, state: &State, sweeper: usize) -> Option<State> {
        let sweep = &state.sweepers[sweeper];
        let is_restored = state.claims.iter().all(|claim| claim.listed[sweeper] == Listed::No);
        if sweep.phase != Phase::Scanning || !state.is_scanned(sweeper) || !is_restored {
            return None;
        }
        let found = self.found(state, sweep);
        let decision = self.decision(sweep, found);
        let mut next = *state;
        let is_false = match found {
            Drift::Lost(lost) => state.drift() < slots(lost),
            Drift::Minted(minted) => state.drift() > -slots(minted),
            _ => false,
        };
        next.is_false_alarm |= is_false && !sweep.is_overtaken;
        next.end(sweeper);
        if let Some(decision) = decision {
            next.sweepers[sweeper] =
                Sweep { phase: Phase::Writing(decision), note: sweep.note, ..Sweep::default() };
        }
        Some(next)
    }

    /// Writes what was decided, on its conditions; ends the sweep either way.
    pub(crate) fn write(&self, state: &State, sweeper: usize) -> Option<State> {
        let Phase::Writing(decision) = state.sweepers[sweeper].phase else { return None };
        let is_mine = state.note == state.sweepers[sweeper].note;
        let mut next = *state;
        next.end(sweeper);
        let is_granted = match decision {
            Decision::Note(_) | Decision::NoteAgain(_) if self.mistake == Some(Mistake::NotedOver) => true,
            Decision::Forget if self.mistake == Some(Mistake::ForgottenUnread) => true,
            Decision::Note(_) => state.note.is_none(),
            Decision::NoteAgain(_) | Decision::Forget => is_mine,
            Decision::Correct(slots) => {
                let is_mine =
                    is_mine || matches!(self.mistake, Some(Mistake::NoteUnheeded | Mistake::CorrectedAtOnce));
                let fits =
                    state.free <= CAPACITY - slots || self.mistake == Some(Mistake::CorrectedBeyondRoom);
                let asks_for_room = slots > 0 || self.mistake == Some(Mistake::TakenAwayOnlyIfTheRestFits);
                is_mine && (fits || !asks_for_room)
            }
        };
        if !is_granted {
            return Some(next);
        }
        match decision {
            Decision::Note(drift) | Decision::NoteAgain(drift) => {
                next.stamps += 1;
                next.note = Some(Note { drift, stamp: next.stamps });
            }
            Decision::Forget => next.note = None,
            Decision::Correct(slots) => {
                next.free += slots;
                next.is_overfilled |= slots > 0 && next.free > CAPACITY;
                next.note = None;
                for sweep in next.sweepers.iter_mut().filter(|sweep| sweep.phase == Phase::Scanning) {
                    sweep.is_overtaken = true;
                }
            }
        }
        next.wrote(true, 0, 0);
        Some(next)
    }

    /// The state after a whole sweep that nothing disturbs.
    pub(crate) fn sweep(&self, state: &State) -> State {
        let rested = State { sweeps: 1, ..*state };
        let mut now = Self::begin(&rested, 0).unwrap_or(rested);
        for claim in 0..CLAIMS {
            now = Self::pass(&now, 0, claim, Looks::Clear).unwrap_or(now);
            // Once to find the bucket full, and once to delete the lease alone.
            for _ in 0..2 {
                now = Self::reclaim(&now, 0, claim).unwrap_or(now);
            }
        }
        let judged = self.judge(&now, 0).unwrap_or(now);
        self.write(&judged, 0).unwrap_or(judged)
    }
}
