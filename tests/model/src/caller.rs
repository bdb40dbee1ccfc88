//! What a caller does: asks, retries, renews, releases. Its judgement of replies is that of `sluice-sdk`.

use crate::action::{Fate, Request};
use crate::mutant::{Leases, Mutant};
use crate::protocol::Protocol;
use crate::state::{CLAIMS, Caller, Late, Part, State};
use crate::writes::WriteResult;

impl Protocol {
    /// The state after a request of a caller, where there is anything new in it.
    pub(crate) fn call(&self, state: &State, claim: usize, request: Request, fate: Fate) -> Option<State> {
        match fate {
            Fate::Unanswered => unanswered(state, claim, request),
            // Nothing happened: the caller backs off and stands where it stood. Giving up for it is another
            // action.
            Fate::Conflict => self.misread(state, claim, request),
            Fate::Answered => match request {
                Request::Acquire | Request::AcquireFirst | Request::TakeOver(_) => {
                    self.ask(state, claim, request)
                }
                Request::Renew => self.renewal(state, claim),
                Request::Release => self.released(state, claim),
            },
        }
    }

    fn ask(&self, state: &State, claim: usize, request: Request) -> Option<State> {
        let mut next = *state;
        let answer = match request {
            Request::TakeOver(dead) => self.take_over(&mut next, claim, dead, state.claims[dead].coveted),
            Request::AcquireFirst => self.acquire_first(&mut next, claim),
            _ => self.acquire(&mut next, claim),
        };
        // A retry that fails may have been applied before: the own lease says so.
        let is_own = state.claims[claim].ends > 0;
        let is_retry = state.claims[claim].caller != Caller::Outside;
        if answer == WriteResult::Applied || is_own || (is_retry && self.is(Mutant::AnyFailureIsSuccess)) {
            next.claims[claim].caller = holding(&next);
            return Some(next);
        }
        None
    }

    /// A retry under the token of a request that was applied.
    pub(crate) fn answered_by_token(state: &State, claim: usize) -> Option<State> {
        let mut next = *state;
        next.claims[claim].caller = holding(state);
        Some(next)
    }

    /// The mutant's retry: the first id is forgotten.
    pub(crate) fn retry_under_new_id(&self, state: &State, claim: usize) -> Option<State> {
        let other = state.claims.iter().position(|claim| claim.caller == Caller::Outside)?;
        let mut next = *state;
        if self.acquire(&mut next, other) != WriteResult::Applied {
            return None;
        }
        next.claims[other].caller = holding(&next);
        next.claims[claim].caller = Caller::Renamed;
        Some(next)
    }

    fn renewal(&self, state: &State, claim: usize) -> Option<State> {
        let mut next = *state;
        let ends = new_end(state, claim)?;
        next.renewals -= 1;
        let answer = self.renew(&mut next, claim, ends);
        if let Caller::Holding { until, .. } = &mut next.claims[claim].caller {
            // A lease that is gone is told.
            *until = if answer == WriteResult::Applied { ends.max(*until) } else { 0 };
        }
        Some(next)
    }

    fn released(&self, state: &State, claim: usize) -> Option<State> {
        let mut next = *state;
        let part = part(state.claims[claim].caller)?;
        if self.is(Mutant::TwoWrites) && state.claims[claim].ends > 0 {
            next.claims[claim].ends = 0;
            next.claims[claim].caller = Caller::HalfReleased;
            return Some(next);
        }
        next.claims[claim].caller = match self.release(&mut next, claim, part) {
            WriteResult::Applied | WriteResult::LeaseFailed => Caller::Gone,
            WriteResult::BucketFailed => Caller::Releasing(self.plan_again(state, part)),
        };
        Some(next)
    }

    /// What follows from a false condition on the bucket in giving back one lease: as
    /// `sluice_core::Chunk::after`.
    pub(crate) fn plan_again(&self, state: &State, part: Part) -> Part {
        let restore = Part::Restore(state.capacity);
        let has_room = state.free < state.capacity;
        match part {
            Part::Restore(_) if part != restore && self.is(Mutant::ResizedIsCapped) => Part::Alone,
            Part::Restore(_) if part != restore => restore,
            Part::Fill(..) if has_room => restore,
            _ => Part::Fill(state.capacity, state.capacity),
        }
    }

    /// The mutant's second write.
    pub(crate) fn second_write(state: &State, claim: usize) -> Option<State> {
        let mut next = *state;
        next.free += 1;
        next.claims[claim].caller = Caller::Gone;
        Some(next)
    }

    fn misread(&self, state: &State, claim: usize, request: Request) -> Option<State> {
        if request != Request::Release || !self.is(Mutant::ConflictIsCapped) {
            return None;
        }
        let mut next = *state;
        next.claims[claim].caller = Caller::Releasing(Part::Alone);
        Some(next)
    }

    /// A request of a caller arrives that nobody waits for any more.
    pub(crate) fn arrives(&self, state: &State, claim: usize, at: usize) -> Option<State> {
        let mut next = *state;
        let late = std::mem::take(&mut next.claims[claim].late[at]);
        next.claims[claim].late.sort_unstable();
        let answer = match late {
            Late::Nothing => return None,
            Late::Acquire => self.acquire(&mut next, claim),
            Late::AcquireFirst => self.acquire_first(&mut next, claim),
            Late::TakeOver => {
                let dead = (0..CLAIMS).find(|dead| state.claims[*dead].taken_late > 0)?;
                let seen = std::mem::take(&mut next.claims[dead].taken_late);
                self.take_over(&mut next, claim, dead, seen)
            }
            Late::Renew(ends) => {
                self.renew(&mut next, claim, ends);
                return Some(next);
            }
            Late::Release(part) => {
                self.release(&mut next, claim, part);
                return Some(next);
            }
        };
        // A single write has no token: its retry finds the lease in the row.
        if let Caller::Asking { applied } = &mut next.claims[claim].caller
            && self.leases == Leases::Rows
        {
            *applied |= answer == WriteResult::Applied;
        }
        Some(next)
    }
}

/// The request goes on its way, and its caller knows nothing.
fn unanswered(state: &State, claim: usize, request: Request) -> Option<State> {
    let mut next = *state;
    next.faults = state.faults.checked_sub(1)?;
    let caller = state.claims[claim].caller;
    let (late, then) = match request {
        Request::Acquire => (Late::Acquire, asking(caller)),
        Request::AcquireFirst => (Late::AcquireFirst, asking(caller)),
        Request::TakeOver(dead) => {
            if state.claims.iter().any(|claim| claim.taken_late > 0) {
                return None;
            }
            next.claims[dead].taken_late = state.claims[dead].coveted;
            (Late::TakeOver, asking(caller))
        }
        Request::Renew => (Late::Renew(new_end(state, claim)?), caller),
        Request::Release => (Late::Release(part(caller)?), Caller::Releasing(part(caller)?)),
    };
    next.claims[claim].caller = then;
    next.claims[claim].delay(late).then_some(next)
}

pub(crate) const fn asking(caller: Caller) -> Caller {
    match caller {
        Caller::Asking { applied } => Caller::Asking { applied },
        _ => Caller::Asking { applied: false },
    }
}

pub(crate) const fn holding(state: &State) -> Caller {
    Caller::Holding { until: 1, capacity: state.capacity }
}

/// The bucket's part of a release.
pub(crate) const fn part(caller: Caller) -> Option<Part> {
    match caller {
        Caller::Holding { capacity, .. } => Some(Part::Restore(capacity)),
        Caller::Releasing(part) => Some(part),
        _ => None,
    }
}

/// When the lease ends that its holder renews now.
fn new_end(state: &State, claim: usize) -> Option<u8> {
    let is_holding = matches!(state.claims[claim].caller, Caller::Holding { .. });
    (is_holding && state.renewals > 0).then_some(state.claims[claim].later())
}
