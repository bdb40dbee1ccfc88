//! Shares as stateright sees them: who may take, borrow, give back, declare and remove, and what comes of it.

use stateright::{Model, Property};

use super::action::{Action, Purpose, table};
use super::lapse::Lapse;
use super::line::{Ask, Line, Receipt, Size};
use super::state::{HOLDERS, Held, Holding, Of, State};
use crate::check::Told;

/// How large a bucket and its share, and what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The capacities of the common line and of the share's, in tokens.
    pub capacity: (i8, i8),
    /// Their rates, in tokens a tick.
    pub rate: (i8, i8),
    /// What a borrower leaves of the share's line.
    pub floor: i8,
    /// Holders of tokens that are not used yet: 3 at most.
    pub holders: usize,
    /// How far each clock may be off, in ticks.
    pub clock_error: i8,
    /// How far below zero a line may be taken by those who wait for their start, in tokens.
    pub patience: i8,
    /// The largest booked call that leaves the anchor where it is.
    pub largest: i8,
    /// Whether the share is declared and removed.
    pub changes: bool,
}

impl Split {
    /// A bucket of four tokens, half of which a share has.
    pub const SMALL: Self = Self {
        capacity: (2, 2),
        rate: (1, 1),
        floor: 1,
        holders: 2,
        clock_error: 0,
        patience: 0,
        largest: 1,
        changes: true,
    };
}

/// A level that every line has.
const NOTHING: i8 = -100;

/// Shares, or shares with a lapse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) split: Split,
    pub(crate) lapse: Option<Lapse>,
}

impl Shares {
    fn is(&self, lapse: Lapse) -> bool {
        self.lapse == Some(lapse)
    }

    fn whole(&self) -> Size {
        let Split { capacity, rate, .. } = self.split;
        Size { capacity: capacity.0 + capacity.1, rate: rate.0 + rate.1 }
    }

    /// What a line is now: without a share, the common line is the whole bucket.
    fn size(&self, state: &State, of: Of) -> Size {
        let Split { capacity, rate, .. } = self.split;
        match of {
            Of::Share => Size { capacity: capacity.1, rate: rate.1 },
            Of::Common if state.share.is_none() => self.whole(),
            Of::Common => Size { capacity: capacity.0, rate: rate.0 },
        }
    }

    /// What all clock errors together may add to a window, or take from a share.
    fn slack(&self, rate: i8) -> i8 {
        2 * self.split.clock_error * rate
    }

    fn take(
        &self,
        state: &State,
        (of, tokens): (Of, i8),
        purpose: Purpose,
        moves: bool,
        clock: i8,
    ) -> Option<State> {
        let line = state.line(of)?;
        let patience = if purpose == Purpose::Call { self.split.patience } else { 0 };
        let is_large = tokens > self.split.largest && patience > 0;
        if moves && clock <= -line.age {
            return None;
        }
        let ask = Ask { tokens, leaves: -patience, moves: moves || is_large, clock };
        let size = self.size(state, of);
        let took = line.take(ask, size)?;
        // Starts are at ticks.
        if !took.is_there && took.line.height.rem_euclid(size.rate) > 0 {
            return None;
        }
        let mut next = *state;
        self.keep(&mut next, of, took.line, took.is_moved);
        if of == Of::Share {
            next.promised -= tokens;
        }
        if purpose == Purpose::Lot {
            next.receipts(of).for_each(|receipt| receipt.is_last = false);
        }
        match purpose {
            Purpose::Call if took.is_there => next.meter -= tokens,
            Purpose::Call => self.hold(&mut next, (of, false), Held::Booked, tokens)?,
            Purpose::Lot => self.hold(&mut next, (of, false), Held::Lot, tokens)?,
            Purpose::Nothing => self.hold(&mut next, (of, false), Held::Unused, tokens)?,
        }
        Some(next)
    }

    /// The line as a write left it. If it moved the anchor, earlier receipts are worth nothing.
    fn keep(&self, next: &mut State, of: Of, line: Line, is_moved: bool) {
        next.set(of, line);
        if is_moved {
            next.receipts(of).for_each(|receipt| receipt.is_anchored = false);
        }
    }

    fn hold(&self, next: &mut State, (of, is_borrowed): (Of, bool), held: Held, left: i8) -> Option<()> {
        if next.holdings.iter().flatten().count() >= self.split.holders {
            return None;
        }
        let line = next.line(of)?;
        let size = self.size(next, of);
        let receipt =
            Receipt { bottom: line.height, lifted: 0, age: line.age, is_anchored: true, is_last: true, size };
        *next.holdings.iter_mut().find(|holding| holding.is_none())? =
            Some(Holding { of, is_borrowed, receipt, held, left });
        Some(())
    }

    fn borrow(&self, state: &State, (own, tokens): (i8, i8), purpose: Purpose, clock: i8) -> Option<State> {
        let mut next = *state;
        let (share, size) = (state.share?, self.size(state, Of::Share));
        let is_full = share.read(clock, size.rate) > size.capacity;
        let leaves = match self.lapse {
            Some(Lapse::BorrowedBelowTheFloor) if !is_full => 0,
            Some(Lapse::FilledBelowTheFloor) if is_full => 0,
            Some(Lapse::BorrowedAhead) => -self.split.patience,
            Some(Lapse::BorrowedWithoutLevel) => NOTHING,
            _ => self.split.floor,
        };
        let ask = Ask { tokens, leaves, moves: false, clock };
        if is_full && self.is(Lapse::BorrowedAboveTheBrim) {
            next.share = Some(Line { height: share.height - tokens, ..share });
        } else {
            let took = share.take(ask, size)?;
            self.keep(&mut next, Of::Share, took.line, took.is_moved);
        }
        if own > 0 {
            let leaves = if self.is(Lapse::JoinedUnasked) { NOTHING } else { 0 };
            let took = state
                .common
                .take(Ask { tokens: own, leaves, moves: false, clock }, self.size(state, Of::Common))?;
            self.keep(&mut next, Of::Common, took.line, took.is_moved);
        }
        match purpose {
            Purpose::Nothing => self.hold(&mut next, (Of::Share, true), Held::Unused, tokens)?,
            _ => next.meter -= own + tokens,
        }
        Some(next)
    }

    fn use_lot(&self, state: &State, holder: usize, tokens: i8, clock: i8) -> Option<State> {
        let mut next = *state;
        let holding = next.holdings[holder].as_mut()?;
        let size = holding.receipt.size;
        let line = holding.receipt.bottom + clock.max(-holding.receipt.age) * size.rate;
        let there = holding.left.min(size.capacity - line).max(0);
        if holding.held != Held::Lot || there < tokens {
            return None;
        }
        holding.left = there - tokens;
        next.meter -= tokens;
        Some(next)
    }

    /// A holder gives back what is left, and forgets it before it hears whether it came.
    fn give_back(&self, state: &State, holder: usize, clock: i8) -> Option<State> {
        let Holding { of, is_borrowed, receipt, held, left } = state.holdings[holder]?;
        let mut next = *state;
        next.holdings[holder] = None;
        let is_to_the_other = self.is(Lapse::ReturnedToTheOther) && is_borrowed;
        let to = if is_to_the_other { Of::Common } else { of };
        let Some(line) = state.line(to) else { return Some(next) };
        let size = self.size(state, to);
        let tokens = if is_to_the_other {
            left.min(size.capacity - line.read(clock, size.rate)).max(0)
        } else {
            line.takes_back(receipt, (held == Held::Booked, left, clock), self.split.largest)
        };
        next.set(to, Line { height: line.height + tokens, ..line });
        next.receipts(to).for_each(|receipt| receipt.lifted += tokens);
        if to == Of::Share && !is_borrowed {
            next.promised = (next.promised + tokens).min(self.split.floor);
        }
        Some(next)
    }

    /// What is in stock or booked when the lines change is used beside them, once, as with any change of
    /// limits. So they change when nothing is.
    fn is_beside(state: &State) -> bool {
        state.holdings.iter().flatten().any(|holding| holding.held != Held::Unused)
    }

    /// The share gets a part of what is there, and both lines a new anchor.
    fn declare(&self, state: &State, tokens: i8, clock: i8) -> Option<State> {
        if state.share.is_some() && !self.is(Lapse::DeclaredAgain) {
            return None;
        }
        if Self::is_beside(state) {
            return None;
        }
        let (before, Split { capacity, rate, floor, .. }) = (self.size(state, Of::Common), self.split);
        let effect = state.common.effect(clock);
        let level = state.common.read(clock, before.rate).min(before.capacity);
        // What is owed is owed by both.
        let (of_common, of_share) = match level {
            ..0 => ((level * rate.0).div_euclid(before.rate), (level * rate.1).div_euclid(before.rate)),
            _ => ((level - tokens).min(capacity.0), tokens),
        };
        if tokens > level.max(0) && !self.is(Lapse::DeclaredFull) {
            return None;
        }
        let mut next = *state;
        let common = Line::through(of_common, effect, rate.0);
        self.keep(&mut next, Of::Common, common, !self.is(Lapse::DeclaredBesideReturns));
        let is_old = self.is(Lapse::DeclaredOnTheOldAnchor);
        self.keep(&mut next, Of::Share, Line::through(of_share, effect, rate.1), !is_old);
        if state.share.is_none() {
            next.promised = of_share.min(floor);
        }
        next.seen = None;
        Some(next)
    }

    /// What the share has goes to the common line, also if that is less than nothing.
    fn remove(&self, state: &State, clock: i8) -> Option<State> {
        if Self::is_beside(state) {
            return None;
        }
        let (share, size, common) = (state.share?, self.size(state, Of::Share), self.size(state, Of::Common));
        let share = match self.lapse {
            Some(Lapse::RemovedAsSeen) => Line { height: state.seen?, ..share },
            _ => share,
        };
        let effect = share.effect(clock).max(state.common.effect(clock));
        let level = |line: Line, size: Size| (line.height + effect * size.rate).min(size.capacity);
        let moved = match self.lapse {
            Some(Lapse::RemovedAboveTheBrim) => share.height + effect * size.rate,
            _ => level(share, size),
        };
        let mut next = *state;
        let whole = Line::through(level(state.common, common) + moved, effect, self.whole().rate);
        self.keep(&mut next, Of::Common, whole, true);
        if !self.is(Lapse::DeclaredOnTheOldAnchor) {
            next.receipts(Of::Share).for_each(|receipt| receipt.is_anchored = false);
        }
        (next.share, next.promised, next.seen) = (None, 0, None);
        Some(next)
    }

    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        let sizes = [Of::Common, Of::Share].map(|of| (of, self.size(state, of)));
        for (of, Size { rate, .. }) in sizes {
            if let Some(line) = state.line(of) {
                next.set(of, Line { height: line.height + rate, age: line.age + 1 });
            }
            next.receipts(of).for_each(|receipt| {
                receipt.bottom += receipt.size.rate;
                receipt.age += 1;
            });
        }
        let Size { capacity, rate } = self.whole();
        next.meter = (state.meter + rate).min(capacity);
        if state.share.is_some() {
            next.promised = (state.promised + self.split.rate.1).min(self.split.floor);
        }
        next
    }

    /// Whether a booked call has its start by the fastest clock, and by the slowest.
    fn has_started(&self, holding: &Holding) -> (bool, bool) {
        let error = self.split.clock_error * holding.receipt.size.rate;
        let is_booked = holding.held == Held::Booked;
        (is_booked && holding.receipt.bottom + error >= 0, is_booked && holding.receipt.bottom - error >= 0)
    }
}

impl Model for Shares {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Split { capacity, floor, .. } = self.split;
        vec![State {
            common: Line::at_now(capacity.0),
            share: Some(Line::at_now(capacity.1)),
            meter: capacity.0 + capacity.1,
            promised: floor,
            seen: None,
            holdings: [None; HOLDERS],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let error = self.split.clock_error;
        // Calls do not let their start pass.
        if !state.holdings.iter().flatten().any(|holding| self.has_started(holding).1) {
            actions.push(Action::Tick);
        }
        for clock in -error..=error {
            for of in [Of::Common, Of::Share] {
                for tokens in 1..=self.size(state, of).capacity {
                    for moves in [false, true] {
                        let take = |purpose| Action::Take { of, tokens, purpose, moves, clock };
                        actions.extend([Purpose::Lot, Purpose::Call, Purpose::Nothing].map(take));
                    }
                }
            }
            for tokens in 1..=self.split.capacity.1 {
                actions.push(Action::Borrow { own: 0, tokens, purpose: Purpose::Nothing, clock });
                for own in 0..=self.split.capacity.0 {
                    actions.push(Action::Borrow { own, tokens, purpose: Purpose::Call, clock });
                }
            }
            for (holder, holding) in state.holdings.iter().enumerate() {
                let Some(holding) = holding else { continue };
                actions.extend((1..=holding.left).map(|tokens| Action::Use { holder, tokens, clock }));
                actions.push(Action::Return { holder, clock });
            }
            if self.split.changes {
                actions.extend((0..=self.split.capacity.1).map(|tokens| Action::Declare { tokens, clock }));
                actions.push(Action::Remove { clock });
            }
        }
        if self.is(Lapse::RemovedAsSeen) {
            actions.push(Action::Look);
        }
        for (holder, holding) in state.holdings.iter().enumerate() {
            let Some(holding) = holding else { continue };
            actions.push(Action::Drop { holder });
            if self.has_started(holding).0 {
                actions.push(Action::Begin { holder });
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).map(|next| self.canonical(next)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no window uses more than R * W + C", |model: &Self, state: &State| {
                state.meter >= -model.slack(model.whole().rate)
            }),
            Property::always("the share has what it was promised", |model: &Self, state: &State| {
                let slack = model.slack(model.split.rate.1);
                state.share.is_none_or(|share| share.height >= state.promised - slack)
            }),
        ]
    }
}

impl Told for Shares {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Tick => Some(self.tick(state)),
            Action::Take { of, tokens, purpose, moves, clock } => {
                self.take(state, (of, tokens), purpose, moves, clock)
            }
            Action::Borrow { own, tokens, purpose, clock } => {
                self.borrow(state, (own, tokens), purpose, clock)
            }
            Action::Use { holder, tokens, clock } => self.use_lot(state, holder, tokens, clock),
            Action::Begin { holder } => {
                let mut next = *state;
                next.meter -= next.holdings[holder].take()?.left;
                Some(next)
            }
            Action::Return { holder, clock } => self.give_back(state, holder, clock),
            Action::Drop { holder } => {
                let mut next = *state;
                next.holdings[holder] = None;
                Some(next)
            }
            Action::Declare { tokens, clock } => self.declare(state, tokens, clock),
            Action::Look => Some(State { seen: state.share.map(|share| share.height), ..*state }),
            Action::Remove { clock } => self.remove(state, clock),
        }
    }

    fn canonical(&self, state: State) -> State {
        let mut next = state;
        let error = self.split.clock_error;
        for of in [Of::Common, Of::Share] {
            let Size { capacity, rate } = self.size(&state, of);
            // The highest line that differs from higher ones: full for every clock.
            let top = capacity + self.slack(rate) + 1;
            if let Some(line) = state.line(of) {
                next.set(of, Line { height: line.height.min(top), age: line.age.min(error + 1) });
            }
            for receipt in next.receipts(of) {
                let top = receipt.size.capacity + self.slack(receipt.size.rate) + 1;
                receipt.age = receipt.age.min(error);
                receipt.bottom = receipt.bottom.min(top);
                receipt.lifted = receipt.lifted.min(top - receipt.bottom);
            }
        }
        next.seen = next.seen.filter(|_| state.share.is_some());
        next.holdings.sort_unstable();
        next
    }

    fn words(before: &State, action: Action) -> String {
        action.words(before)
    }

    fn table(state: &State) -> String {
        table(state)
    }
}
