//! The lanes as stateright sees them: who may come, leave and be answered, and what must hold.

use stateright::{Model, Property};

use super::action::{Action, Fate, table};
use super::slip::Slip;
use super::state::{ALL, Caller, EACH, Lane, Lease, PROCESSES, State, Work, bit, of};
use crate::check::Told;

/// Writes in which a lane that nothing disturbs must have answered everyone: one that fails for each row that
/// differs from what was seen, one for each that fits alone, one that gives back.
const WRITES: usize = 8;

/// How much happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The bucket's slots.
    pub capacity: i8,
    /// Callers of each process: 3 at most.
    pub callers: usize,
    /// Writes of which the reply, or the write itself, is lost or late.
    pub losses: u8,
    /// Processes that crash.
    pub crashes: u8,
}

/// The lanes, or lanes with a slip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) traffic: Traffic,
    pub(crate) slip: Option<Slip>,
}

impl Lanes {
    pub(crate) fn is(&self, slip: Slip) -> bool {
        self.slip == Some(slip)
    }

    fn happens(&self, next: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Come(caller) => {
                next.callers[caller] = Caller::Waiting;
                let lane = &mut next.lanes[caller / EACH];
                lane.is_asleep &= lane.work != Work::Planning;
            }
            Action::TakeAnswer(caller) => {
                let Caller::Answered(lease) = next.callers[caller] else { return None };
                next.callers[caller] = Caller::Holding(lease);
            }
            Action::Release(caller) => {
                let Caller::Holding(lease) = next.callers[caller] else { return None };
                next.callers[caller] = Caller::Gone;
                let lane = &mut next.lanes[caller / EACH];
                lane.idle |= bit(lease.into());
                lane.is_asleep = false;
            }
            Action::Leave(caller) => {
                let was = std::mem::replace(&mut next.callers[caller], Caller::Gone);
                match was {
                    Caller::Answered(_) if self.is(Slip::GrantForgotten) => {}
                    Caller::Answered(lease) | Caller::Holding(lease) => {
                        self.leave_idle(next, caller / EACH, lease.into());
                    }
                    Caller::Batched => {
                        let lane = &mut next.lanes[caller / EACH];
                        if self.is(Slip::WorkerLeaves) {
                            lane.work = Work::Planning;
                        } else if lane.unsure & !lane.in_flight() & bit(caller) > 0
                            && !self.is(Slip::UnsureForgotten)
                        {
                            lane.idle |= bit(caller);
                        }
                        lane.unsure &= !bit(caller);
                    }
                    _ => {}
                }
            }
            Action::Crash(process) => {
                next.crashes = next.crashes.checked_sub(1)?;
                of(process).for_each(|at| next.callers[at] = Caller::Gone);
                next.lanes[process] = Lane { is_crashed: true, ..Lane::default() };
            }
            Action::End(lease) => {
                next.leases[lease] = Lease::Ended;
                next.over |= bit(lease);
            }
            Action::LateArrives => {
                let write = next.late.take()?;
                let before = next.row().there;
                self.apply(next, write);
                next.stray |= next.row().there & !before;
            }
            Action::Send(..) | Action::Reply(_) => return None,
        }
        Some(())
    }

    /// A lane that nothing disturbs answers all that wait, and gives back what nobody uses.
    fn is_served(&self, state: &State) -> bool {
        (0..PROCESSES).all(|process| {
            let mut now = *state;
            for _ in 0..WRITES {
                now = self.reply(&now, process).unwrap_or(now);
                now = self.send(&now, process, Fate::Answered).unwrap_or(now);
            }
            let now = self.reply(&now, process).unwrap_or(now);
            let waiting = now.standing(process, Caller::Waiting) | now.standing(process, Caller::Batched);
            waiting == 0 && now.lanes[process].idle == 0
        })
    }

    /// Every lease of a process that lives is somebody's, or on its way back.
    fn is_owned(state: &State) -> bool {
        let known = (0..PROCESSES).fold(state.stray | state.over, |known, process| {
            let lane = &state.lanes[process];
            let all = of(process).fold(0, |set, at| set | bit(at));
            let asked = state.standing(process, Caller::Batched);
            let crashed = if lane.is_crashed { all } else { 0 };
            known | state.held(process) | lane.idle | lane.in_flight() | asked | crashed
        });
        state.row().there & !known == 0
    }

    /// Whoever was granted has a lease until that ends.
    fn are_grounded(state: &State) -> bool {
        (0..PROCESSES).all(|process| state.held(process) & !state.over & !state.row().there == 0)
    }
}

impl Model for Lanes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Traffic { capacity, losses, crashes, .. } = self.traffic;
        vec![State::first(capacity, losses, crashes)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for process in (0..PROCESSES).filter(|process| !state.lanes[*process].is_crashed) {
            let coming =
                of(process).take(self.traffic.callers).find(|at| state.callers[*at] == Caller::Outside);
            actions.extend(coming.map(Action::Come));
            actions.extend([Fate::Answered, Fate::Lost, Fate::Late].map(|fate| Action::Send(process, fate)));
            actions.extend([Action::Reply(process), Action::Crash(process)]);
        }
        for at in 0..ALL {
            match state.callers[at] {
                Caller::Outside | Caller::Gone => {}
                Caller::Waiting | Caller::Batched => actions.push(Action::Leave(at)),
                Caller::Answered(_) => actions.extend([Action::TakeAnswer(at), Action::Leave(at)]),
                // To be dropped and to have done are the same.
                Caller::Holding(_) => actions.push(Action::Release(at)),
            }
            if state.leases[at] == Lease::Live {
                actions.push(Action::End(at));
            }
        }
        if state.late.is_some() {
            actions.push(Action::LateArrives);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).map(|next| self.canonical(next)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no lease is granted beyond the capacity", |_, state: &State| {
                !state.wrongs.overbooked
            }),
            Property::always("each slot is free or leased, and once", |model: &Self, state: &State| {
                let leases = i8::try_from(state.row().there.count_ones()).unwrap_or(i8::MAX);
                state.free + leases == model.traffic.capacity
            }),
            Property::always("a grant has its lease when it is told", |_, state: &State| {
                !state.wrongs.groundless
            }),
            Property::always("a grant is told to one", |_, state: &State| !state.wrongs.shared),
            Property::always("a grant has its lease until that ends", |_, state: &State| {
                Self::are_grounded(state)
            }),
            Property::always("first come, first served", |_, state: &State| !state.wrongs.unordered),
            Property::always("no lease is forgotten", |_, state: &State| Self::is_owned(state)),
            Property::always("who stays is answered", Self::is_served),
        ]
    }
}

impl Told for Lanes {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Send(process, fate) => self.send(state, process, fate),
            Action::Reply(process) => self.reply(state, process),
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
        table(state)
    }
}
