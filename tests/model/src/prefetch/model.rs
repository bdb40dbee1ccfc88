//! The prefetch as stateright sees it: who may take, use and give back, and what comes of it.

use stateright::{Model, Property};

use super::action::{Action, Form, Purpose, table};
use super::flaw::Flaw;
use super::state::{HOLDERS, Held, Holding, Receipt, State, effect};
use crate::check::Told;

/// How large a bucket, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// C, in tokens.
    pub capacity: i8,
    /// R, in tokens a tick.
    pub rate: i8,
    /// Holders of tokens that are not used yet: 3 at most.
    pub holders: usize,
    /// Ticks for which a lot may be used.
    pub use_by: u8,
    /// Ticks by which a reading of a clock may be off, either way.
    pub clock_error: i8,
    /// Whether calls leave tokens unused, which go back.
    pub settles: bool,
    /// How far below zero the line may be taken by those who wait for their start, in tokens.
    pub patience: i8,
    /// The largest booked call that leaves the anchor where it is.
    pub largest: i8,
}

/// The prefetch, or one with a flaw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetch {
    pub(crate) stock: Stock,
    pub(crate) flaw: Option<Flaw>,
}

impl Prefetch {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// What all clock errors together may add to a window.
    const fn slack(&self) -> i8 {
        2 * self.stock.clock_error * self.stock.rate
    }

    /// The highest line that differs from higher ones: full for every clock.
    const fn top(&self) -> i8 {
        self.stock.capacity + self.slack() + 1
    }

    /// What of `tokens` above a receipt's line, lifted by so much, lies below the brim.
    fn below_brim(&self, receipt: Receipt, lifted: i8, tokens: i8, clock: i8) -> i8 {
        let line = receipt.bottom + lifted + effect(clock, receipt.age) * self.stock.rate;
        tokens.min(self.stock.capacity - line).max(0)
    }

    fn take(&self, state: &State, action: Action) -> Option<State> {
        let Action::Take { tokens, purpose, form, clock } = action else { return None };
        let Stock { capacity, rate, .. } = self.stock;
        let mut next = *state;
        let effect = effect(clock, state.age);
        let read = state.line + effect * rate;
        let patience = if purpose == Purpose::Call { self.stock.patience } else { 0 };
        let is_full = read > capacity && !self.is(Flaw::SpentAboveTheBrim);
        if is_full || (form == Form::Reanchor && self.is(Flaw::FilledUnasked)) {
            // An anchor never moves back: a clock that lags would gain what lies between.
            let ahead = if self.is(Flaw::AnchoredBack) { clock } else { effect };
            next.line = capacity - tokens - ahead * rate;
            next.age = -ahead;
            next.receipts().for_each(|receipt| receipt.is_anchored = false);
        } else {
            if read < tokens - patience && !self.is(Flaw::TakenWithoutLevel) {
                return None;
            }
            next.line = state.line - tokens;
            let is_large = tokens > self.stock.largest && patience > 0 && !self.is(Flaw::LargeOnTheAnchor);
            if is_large || form == Form::Reanchor {
                let is_back = clock < -state.age && self.is(Flaw::ReanchoredBack);
                if clock <= -state.age && !is_large && !is_back {
                    return None;
                }
                // Forward by all means. The tokens of the flat line, at an anchor further back, are on a
                // higher line.
                next.line += if is_back { (effect - clock) * rate } else { 0 };
                next.age = if is_back { -clock } else { state.age.min(-clock) };
                next.receipts().for_each(|receipt| receipt.is_anchored = false);
            }
        }
        if purpose == Purpose::Lot {
            next.receipts().for_each(|receipt| receipt.is_last = false);
        }
        let starts_later = read < tokens;
        let (held, left) = match purpose {
            Purpose::Lot => (Held::Lot(self.stock.use_by), tokens),
            Purpose::Nothing => (Held::Unused, tokens),
            Purpose::Call if starts_later && !self.is(Flaw::TakenWithoutLevel) => (Held::Booked, tokens),
            Purpose::Call => {
                next.meter -= tokens;
                (Held::Unused, 0)
            }
        };
        if left > 0 {
            if state.holdings.iter().flatten().count() >= self.stock.holders {
                return None;
            }
            let free = next.holdings.iter_mut().find(|holding| holding.is_none())?;
            let receipt =
                Receipt { bottom: next.line, lifted: 0, age: next.age, is_anchored: true, is_last: true };
            *free = Some(Holding { receipt, held, taken: tokens, left });
        }
        Some(next)
    }

    fn use_lot(&self, state: &State, holder: usize, tokens: i8, clock: i8) -> Option<State> {
        let mut next = *state;
        let holding = next.holdings[holder].as_mut()?;
        let there = match self.flaw {
            Some(Flaw::UsedOverTheBrim) => holding.left,
            _ => self.below_brim(holding.receipt, 0, holding.left, clock),
        };
        if !matches!(holding.held, Held::Lot(_)) || there < tokens {
            return None;
        }
        // What overflowed is gone for good: uses come from the top of what is there.
        let gone = if self.is(Flaw::SpilledKept) { 0 } else { holding.left - there };
        holding.left -= gone + tokens;
        next.meter -= tokens;
        Some(next)
    }

    /// A holder gives back what is left, and forgets it before it hears whether it came.
    fn give_back(&self, state: &State, holder: usize, clock: i8) -> Option<State> {
        let Holding { receipt, held, taken, left } = state.holdings[holder]?;
        let unused = if self.is(Flaw::UsedReturned) { taken } else { left };
        let tokens = self.may_return(state, receipt, held, unused, clock);
        let mut next = *state;
        if !(self.is(Flaw::UsedAfterReturn) && matches!(held, Held::Lot(_))) {
            next.holdings[holder] = None;
        }
        for _ in 0..if self.is(Flaw::ReturnedAgain) { 2 } else { 1 } {
            next.line += tokens;
            next.receipts().for_each(|receipt| receipt.lifted += tokens);
        }
        Some(next)
    }

    /// How much of what is unused the conditions of a return let back.
    fn may_return(&self, state: &State, receipt: Receipt, held: Held, unused: i8, clock: i8) -> i8 {
        let Stock { capacity, rate, largest, .. } = self.stock;
        let is_anchored = receipt.is_anchored || self.is(Flaw::ReturnedToAnyAnchor);
        let is_top = state.line == receipt.bottom;
        let is_excused =
            self.is(Flaw::ReturnedUnderALot) || (is_top && self.is(Flaw::ReturnedOnTopUnderALot));
        if !is_anchored || !(receipt.is_last || is_excused) {
            return 0;
        }
        let lifted = if self.is(Flaw::ReturnsUncounted) { 0 } else { receipt.lifted };
        let clock_there = effect(clock, receipt.age);
        let is_to_come = held == Held::Booked && receipt.bottom + clock_there * rate < 0;
        if is_to_come {
            let is_as_left = is_top || self.is(Flaw::ReturnedFromTheMiddle);
            let is_tail = is_as_left && (lifted == 0 || self.is(Flaw::ReturnedAsItLooked));
            return if is_tail { unused } else { 0 };
        }
        let in_room = match self.flaw {
            Some(Flaw::ReturnedOverTheBrim) => unused,
            _ => self.below_brim(receipt, lifted, unused, clock),
        };
        let beside_starts = capacity - largest - lifted;
        if in_room <= beside_starts || self.is(Flaw::ReturnedBesideStarts) {
            return in_room;
        }
        // All of it where no start is to come, or as much as fits beside one.
        let is_above = state.line + clock_there * rate >= 0 || self.is(Flaw::ReturnedBelowZero);
        if is_above && lifted == 0 { in_room } else { beside_starts.max(0) }
    }

    fn tick(&self, state: &State) -> State {
        let Stock { capacity, rate, .. } = self.stock;
        let mut next = *state;
        next.line += rate;
        next.age += 1;
        next.meter = (state.meter + rate).min(capacity);
        next.receipts().for_each(|receipt| {
            receipt.bottom += rate;
            receipt.age += 1;
        });
        for holding in next.holdings.iter_mut().flatten() {
            if let Held::Lot(ticks) = holding.held {
                holding.held = match ticks.checked_sub(1) {
                    Some(ticks) => Held::Lot(if self.is(Flaw::NoUseBy) { self.stock.use_by } else { ticks }),
                    None => Held::Unused,
                };
            }
        }
        next
    }

    /// Whether a booked call has its start by the fastest clock, and by the slowest.
    fn has_started(&self, holding: &Holding) -> (bool, bool) {
        let error = self.stock.clock_error * self.stock.rate;
        let is_booked = holding.held == Held::Booked;
        (is_booked && holding.receipt.bottom + error >= 0, is_booked && holding.receipt.bottom - error >= 0)
    }
}

impl Model for Prefetch {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self.stock.capacity)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Stock { capacity, clock_error, .. } = self.stock;
        let clocks = -clock_error..=clock_error;
        // Calls do not let their start pass.
        if !state.holdings.iter().flatten().any(|holding| self.has_started(holding).1) {
            actions.push(Action::Tick);
        }
        for clock in clocks.clone() {
            for tokens in 1..=capacity {
                for form in [Form::Spend, Form::Reanchor] {
                    let take = |purpose| Action::Take { tokens, purpose, form, clock };
                    actions.extend([Purpose::Lot, Purpose::Call].map(take));
                    if self.stock.settles {
                        actions.push(take(Purpose::Nothing));
                    }
                }
                let uses = (0..HOLDERS).map(|holder| Action::Use { holder, tokens, clock });
                actions.extend(uses);
            }
        }
        for (holder, holding) in state.holdings.iter().enumerate() {
            let Some(holding) = holding else { continue };
            actions.push(Action::Drop { holder });
            if self.has_started(holding).0 {
                actions.push(Action::Begin { holder });
                if self.stock.settles {
                    actions.push(Action::BeginUnused { holder });
                }
            }
            actions.extend(clocks.clone().map(|clock| Action::Return { holder, clock }));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).map(|next| self.canonical(next)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no window uses more than R * W + C", |model: &Self, state: &State| {
                state.meter >= -model.slack()
            }),
            Property::always("what is lost flows back", |model: &Self, state: &State| {
                state.line >= -model.stock.patience - model.slack()
            }),
        ]
    }
}

impl Told for Prefetch {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        match action {
            Action::Tick => Some(self.tick(state)),
            Action::Take { .. } => self.take(state, action),
            Action::Use { holder, tokens, clock } => self.use_lot(state, holder, tokens, clock),
            Action::Begin { holder } => {
                let mut next = *state;
                next.meter -= next.holdings[holder].take()?.left;
                Some(next)
            }
            Action::BeginUnused { holder } => {
                let mut next = *state;
                next.holdings[holder].as_mut()?.held = Held::Unused;
                Some(next)
            }
            Action::Return { holder, clock } => self.give_back(state, holder, clock),
            Action::Drop { holder } => {
                let mut next = *state;
                next.holdings[holder] = None;
                Some(next)
            }
        }
    }

    fn canonical(&self, state: State) -> State {
        let mut next = state;
        let top = self.top();
        next.line = next.line.min(top);
        let error = self.stock.clock_error;
        next.age = next.age.min(error + 1);
        for receipt in next.receipts() {
            // Older than that, no clock reads it before its anchor.
            receipt.age = receipt.age.min(error);
            receipt.bottom = receipt.bottom.min(top);
            receipt.lifted = receipt.lifted.min(top - receipt.bottom);
        }
        for holding in next.holdings.iter_mut().flatten() {
            if !self.is(Flaw::UsedReturned) {
                holding.taken = holding.left;
            }
        }
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
