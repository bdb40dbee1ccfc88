//! The recount as stateright sees it: traffic, faults, and two sweeps that may overlap.

use stateright::{Model, Property};

use super::action::Action;
use super::mistake::Mistake;
use super::state::{CAPACITY, CLAIMS, Caller, Claim, Client, Phase, Row, SWEEPERS, State};
use super::sweeping::Looks;
use crate::check::Told;

/// How much happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Acquisitions: 3 at most.
    pub claims: usize,
    /// Sweeps, of which two run at one time.
    pub sweeps: u8,
    /// Slots that are lost or minted.
    pub faults: u8,
    /// Whether callers with a foreign client, which counts nothing, come too.
    pub foreign: bool,
}

/// The recount, or a mutant of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recount {
    pub(crate) extent: Extent,
    pub(crate) mistake: Option<Mistake>,
}

impl Recount {
    /// What callers, time and faults do.
    fn happens(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        match action {
            Action::Acquire(claim, by, passed) => {
                if state.free < 1 {
                    return None;
                }
                next.free -= 1;
                next.claims[claim].row = Row::Live;
                next.claims[claim].caller = Caller::Holding(by);
                for sweeper in 0..SWEEPERS {
                    let is_scanning = state.sweepers[sweeper].phase == Phase::Scanning;
                    if passed & (1 << sweeper) > 0 && !is_scanning {
                        return None;
                    }
                    next.claims[claim].is_young[sweeper] = is_scanning;
                    next.claims[claim].is_passed[sweeper] = passed & (1 << sweeper) > 0;
                }
                next.wrote(self.counts(by), i8::from(by == Client::Own), 0);
            }
            Action::Release(claim) => self.released(state, &mut next, claim),
            Action::Crash(claim) => next.claims[claim].caller = Caller::Gone,
            Action::End(claim) => next.claims[claim].row = Row::Ended,
            Action::Renew(claim) => next.changed(claim, Row::Live),
            Action::Leave(sweeper) => next.end(sweeper),
            _ => {
                next.faults = state.faults.checked_sub(1)?;
                match action {
                    Action::Purge(claim) => next.changed(claim, Row::Absent),
                    Action::Leak => next.free -= 1,
                    Action::Mint => next.free += 1,
                    _ => return None,
                }
                next.lost += i8::from(action != Action::Mint);
                next.minted += i8::from(action == Action::Mint);
                if !matches!(action, Action::Purge(_)) {
                    next.wrote(self.counts(Client::Foreign), 0, 0);
                }
            }
        }
        Some(next)
    }

    /// A release, whose reply is never lost here: the other models have that.
    fn released(&self, state: &State, next: &mut State, claim: usize) {
        let Claim { caller, row, .. } = state.claims[claim];
        next.claims[claim].caller = Caller::Gone;
        if row == Row::Absent {
            return;
        }
        match caller {
            Caller::Holding(Client::Own) if state.free >= CAPACITY => {
                next.claims[claim].caller = Caller::Capping
            }
            Caller::Capping => {
                next.changed(claim, Row::Absent);
                next.wrote(true, 0, 1);
            }
            Caller::Holding(by) => {
                next.changed(claim, Row::Absent);
                // Foreign clients cap by a minimum. What that loses, or makes good, is no fault of the
                // recount.
                next.free = (state.free + 1).min(CAPACITY);
                next.wrote(self.counts(by), 0, 0);
            }
            Caller::Outside | Caller::Gone => {}
        }
    }

    /// Whether writes of a client show as counted.
    fn counts(&self, by: Client) -> bool {
        by == Client::Own || self.mistake == Some(Mistake::ForeignWritesUnheeded)
    }

    /// Once everyone is gone, and two sweeps ran: the bucket is as it is at rest.
    fn gets_all_back(&self, state: &State) -> bool {
        let is_quiet = |claim: &Claim| matches!(claim.caller, Caller::Outside | Caller::Gone);
        if !state.claims.iter().all(is_quiet) || state.sweepers.iter().any(|sweep| sweep.phase != Phase::Idle)
        {
            return true;
        }
        let mut rest = *state;
        for claim in rest.claims.iter_mut().filter(|claim| claim.row == Row::Live) {
            claim.row = Row::Ended;
        }
        // What an older sweep noted of slots that are back since is in the way of one more.
        let first = if rest.note.is_some() { self.sweep(&rest) } else { rest };
        let rest = self.sweep(&self.sweep(&first));
        rest.free == CAPACITY && rest.drift() == 0
    }
}

impl Model for Recount {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self.extent.sweeps, self.extent.faults)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let begun = state.claims.iter().filter(|claim| claim.caller != Caller::Outside).count();
        if let Some(first) = state.claims.iter().position(|claim| claim.caller == Caller::Outside)
            && begun < self.extent.claims
        {
            let clients: &[Client] =
                if self.extent.foreign { &[Client::Own, Client::Foreign] } else { &[Client::Own] };
            for by in clients {
                actions.extend((0..1 << SWEEPERS).map(|passed| Action::Acquire(first, *by, passed)));
            }
        }
        for (at, claim) in state.claims.iter().enumerate() {
            match claim.caller {
                Caller::Holding(_) => {
                    actions.extend([Action::Release(at), Action::Crash(at)]);
                    if claim.row == Row::Ended {
                        actions.push(Action::Renew(at));
                    }
                }
                Caller::Capping => actions.extend([Action::Release(at), Action::Crash(at)]),
                Caller::Outside | Caller::Gone => {}
            }
            match claim.row {
                Row::Live => actions.push(Action::End(at)),
                Row::Ended if claim.is_old_in_every_scan() => actions.push(Action::Purge(at)),
                _ => {}
            }
        }
        if state.free > 0 {
            actions.push(Action::Leak);
        }
        // Above the capacity too: a slot that is given back twice while all are free.
        actions.push(Action::Mint);
        for sweeper in 0..SWEEPERS {
            actions.extend([Action::Begin(sweeper), Action::Judge(sweeper), Action::Write(sweeper)]);
            for claim in 0..CLAIMS {
                actions.extend([Looks::Clear, Looks::Close].map(|looks| Action::Pass(sweeper, claim, looks)));
                actions.push(Action::Reclaim(sweeper, claim));
            }
            if state.sweepers[sweeper].phase != Phase::Idle {
                actions.push(Action::Leave(sweeper));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).map(|next| self.canonical(next)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a recount finds no more than there is", |_, state: &State| {
                !state.is_false_alarm
            }),
            // A lease that is deleted alone between the judgement and the write makes a minted slot good as
            // well, and then one is lost for it until the next sweeps: twice put right, never minted.
            Property::always("only faults lose and mint slots", |_, state: &State| {
                (-state.minted..=state.lost + state.minted).contains(&state.drift())
            }),
            Property::always("no correction fills a bucket beyond its capacity", |_, state: &State| {
                !state.is_overfilled
            }),
            Property::always("two sweeps after all are gone, no slot is missing", Self::gets_all_back),
        ]
    }
}

impl Told for Recount {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Begin(sweeper) => Self::begin(state, sweeper),
            Action::Pass(sweeper, claim, looks) => Self::pass(state, sweeper, claim, looks),
            Action::Reclaim(sweeper, claim) => Self::reclaim(state, sweeper, claim),
            Action::Judge(sweeper) => self.judge(state, sweeper),
            Action::Write(sweeper) => self.write(state, sweeper),
            other => self.happens(state, other),
        }
    }

    fn canonical(&self, state: State) -> State {
        // A mutant may heed what the judgement of core does not.
        if self.mistake.is_none() { state.without_the_unheeded().canonical() } else { state.canonical() }
    }

    fn words(before: &State, action: Action) -> String {
        action.words(before)
    }

    fn table(state: &State) -> String {
        format!("{} of {CAPACITY} free, drift {}", state.free, state.drift())
    }
}
