//! The protocol as stateright sees it: states, what may happen in each, and what comes of it.

use stateright::{Model, Property};

use crate::action::{Action, Fate, Request, name};
use crate::check::Told;
use crate::mutant::{Leases, Mutant};
use crate::promises;
use crate::state::{CLAIMS, Caller, Claim, Late, Note, SWEEPERS, State};

/// Clients: so many claims are under way at one time at most.
pub(crate) const CLIENTS: usize = 3;

/// Instants between `ttl` and `purge_at`: more than a claim lives through here. Seven days hold some two
/// thousand sweeps, and the model lets none of its leases outlive all of them. What becomes of one that does
/// is the recount's.
const PURGE_AFTER: u8 = 100;

/// How much happens in a state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Acquisitions, of which three are under way at one time: 4 at most.
    pub claims: usize,
    /// Things that go wrong: requests without an answer, and what foreign clients and administrators do.
    pub faults: u8,
    /// Renewals that are answered.
    pub renewals: u8,
}

/// The protocol for one kind of lease, or a mutant of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) leases: Leases,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) scope: Scope,
}

const FATES: [Fate; 3] = [Fate::Answered, Fate::Unanswered, Fate::Conflict];

impl Protocol {
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether whoever looks judges that a lease has ended: for every clock, or (the mutant) for the fastest.
    pub(crate) fn has_ended(&self, claim: &Claim) -> bool {
        claim.has_ended()
            || (self.is(Mutant::NoClockMargin) && claim.ends > 0 && claim.ends == claim.past + 1)
    }

    /// What happens by itself, or comes from outside.
    fn happens(&self, next: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Crash(claim) => next.claims[claim].caller = Caller::Gone,
            Action::Time(claim) => next.claims[claim].past += 1,
            Action::Covet(claim) => next.claims[claim].coveted = next.claims[claim].ends,
            Action::Ttl(claim) => next.claims[claim].ends = 0,
            Action::Resize(to, _) => {
                next.faults = next.faults.checked_sub(1)?;
                self.resize(next, to);
            }
            Action::ResizeArrives => {
                let to = next.resize_late.take()?;
                self.resize(next, to);
            }
            Action::Mint => {
                next.faults = next.faults.checked_sub(1)?;
                next.free += 1;
                next.minted += 1;
            }
            _ => return None,
        }
        Some(())
    }

    fn actions_of_claim(&self, state: &State, at: usize, may_begin: bool, actions: &mut Vec<Action>) {
        let claim = &state.claims[at];
        let mut calls = |request| actions.extend(FATES.map(|fate| Action::Call(at, request, fate)));
        match claim.caller {
            Caller::Outside if !may_begin => {}
            Caller::Outside | Caller::Asking { .. } => {
                calls(if state.has_map { Request::Acquire } else { Request::AcquireFirst });
                if state.has_map && self.is(Mutant::FirstOverMap) {
                    calls(Request::AcquireFirst);
                }
                let dead = |dead: &usize| *dead != at && state.claims[*dead].coveted > 0;
                (0..CLAIMS).filter(dead).for_each(|dead| calls(Request::TakeOver(dead)));
            }
            Caller::Holding { .. } => {
                calls(Request::Renew);
                calls(Request::Release);
            }
            Caller::Releasing(_) => calls(Request::Release),
            Caller::HalfReleased => actions.push(Action::SecondWrite(at)),
            Caller::Renamed | Caller::Gone => {}
        }
        if claim.caller == (Caller::Asking { applied: true }) {
            actions.push(Action::AnsweredByToken(at));
        }
        if self.is(Mutant::RetryUnderNewId) && matches!(claim.caller, Caller::Asking { .. }) {
            actions.push(Action::RetryUnderNewId(at));
        }
        if claim.caller.is_here() {
            actions.push(Action::Crash(at));
        }
        let lives = matches!(claim.caller, Caller::Holding { until, .. } if until > claim.past);
        if claim.ends > claim.past || lives {
            actions.push(Action::Time(at));
        }
        actions.extend(
            (0..2).filter(|late| claim.late[*late] != Late::Nothing).map(|late| Action::Arrives(at, late)),
        );
        let purge_at = claim.ends + if self.is(Mutant::TtlOnTtl) { 0 } else { PURGE_AFTER };
        if self.leases == Leases::Rows && claim.ends > 0 && claim.past >= purge_at {
            actions.push(Action::Ttl(at));
        }
        let is_full = self.leases == Leases::Inline && state.free < 1;
        if is_full && self.has_ended(claim) && claim.coveted != claim.ends {
            actions.push(Action::Covet(at));
        }
    }

    fn actions_of_sweeper(state: &State, sweeper: usize, actions: &mut Vec<Action>) {
        let note = |claim: &usize| state.claims[*claim].notes[sweeper];
        actions.extend((0..CLAIMS).map(|claim| Action::Scan { sweeper, claim }));
        let ended: u8 = (0..CLAIMS)
            .filter(|claim| matches!(note(claim), Note::Ended(_)))
            .fold(0, |all, claim| all | (1 << claim));
        for claims in (1..=ended).filter(|claims| claims & !ended == 0) {
            actions.extend(FATES.map(|fate| Action::Reclaim { sweeper, claims, fate }));
        }
        for claim in (0..CLAIMS).filter(|claim| matches!(note(claim), Note::Full(_))) {
            let fates = [Fate::Answered, Fate::Unanswered];
            actions.extend(fates.map(|fate| Action::Fill { sweeper, claim, fate }));
        }
        if state.read[sweeper] > 0 {
            actions.push(Action::Leave(sweeper));
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self.leases, self.scope.faults, self.scope.renewals)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let here = state.claims.iter().filter(|claim| claim.caller.is_here()).count();
        // Claims that have not begun are all alike: the first stands for them.
        let begun = state.claims.iter().filter(|claim| claim.caller != Caller::Outside).count();
        let outside = state.claims.iter().position(|claim| claim.caller == Caller::Outside);
        for at in 0..CLAIMS {
            let may_begin = here < CLIENTS && begun < self.scope.claims && outside == Some(at);
            self.actions_of_claim(state, at, may_begin, actions);
        }
        for sweeper in 0..SWEEPERS {
            Self::actions_of_sweeper(state, sweeper, actions);
        }
        if self.leases == Leases::Inline {
            self.joins(state, here, begun, actions);
        }
        if state.reclaim_late.is_some() {
            actions.push(Action::ReclaimArrives);
        }
        if state.resize_late.is_some() {
            actions.push(Action::ResizeArrives);
        }
        if state.faults > 0 {
            for to in [1, 3] {
                actions.extend([Fate::Answered, Fate::Unanswered].map(|fate| Action::Resize(to, fate)));
            }
            if state.minted == 0 && state.free < state.capacity {
                actions.push(Action::Mint);
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).map(|next| self.canonical(next)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::ALL.map(|(name, holds)| Property::always(name, holds)).into()
    }
}

impl Told for Protocol {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Call(claim, request, fate) => self.call(state, claim, request, fate),
            Action::Join { takes, releases, dead, fate } => self.join(state, takes, releases, dead, fate),
            Action::JoinedArrives => self.joined_arrives(state),
            Action::AnsweredByToken(claim) => Self::answered_by_token(state, claim),
            Action::RetryUnderNewId(claim) => self.retry_under_new_id(state, claim),
            Action::SecondWrite(claim) => Self::second_write(state, claim),
            Action::Arrives(claim, at) => self.arrives(state, claim, at),
            Action::Scan { sweeper, claim } => self.scan(state, sweeper, claim),
            Action::Reclaim { sweeper, claims, fate } => self.reclaim_listed(state, sweeper, claims, fate),
            Action::Fill { sweeper, claim, fate } => self.fill_listed(state, sweeper, claim, fate),
            Action::Leave(sweeper) => Self::leave(state, sweeper),
            Action::ReclaimArrives => self.reclaim_arrives(state),
            Action::Resize(to, Fate::Unanswered) => (state.resize_late.is_none()).then_some(State {
                resize_late: Some(to),
                faults: state.faults.checked_sub(1)?,
                ..*state
            }),
            other => {
                let mut next = *state;
                self.happens(&mut next, other)?;
                Some(next)
            }
        }
    }

    fn canonical(&self, state: State) -> State {
        state.canonical()
    }

    fn words(before: &State, action: Action) -> String {
        action.words(before)
    }

    fn table(state: &State) -> String {
        let leases: String = (0..CLAIMS).filter(|at| state.claims[*at].ends > 0).map(name).collect();
        format!(
            "{} of {} free, leases {}",
            state.free,
            state.capacity,
            if leases.is_empty() { "-" } else { &leases }
        )
    }
}
