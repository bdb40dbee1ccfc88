//! Shares of slots as stateright sees them: who may take, borrow, give back and change rows, and what comes
//! of it.

use stateright::{Model, Property};

use super::action::{Action, table};
use super::oversight::Oversight;
use super::state::{Holders, Named, OPERATORS, Of, Row, SWEEP, State, Table};
use crate::check::Told;

/// What a borrower leaves.
const FLOOR: i8 = 1;

/// How large a bucket, and who is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Slots of the whole bucket at first.
    pub slots: i8,
    /// Those of the share at first; 0 is no share.
    pub first: i8,
    /// What each operator wants the share to have (0 is no share), and the whole bucket.
    pub wanted: &'static [(i8, i8)],
    /// Whether there is a borrower, and callers that wait.
    pub lends: bool,
    /// Whether calls crash, and a sweep gives back what they had.
    pub crashes: bool,
    /// Whether a sweep goes on with changes.
    pub goes_on: bool,
}

impl Rows {
    /// A borrower, waiting callers, crashes, and nobody who changes anything.
    pub const LENT: Self =
        Self { slots: 4, first: 2, wanted: &[], lends: true, crashes: true, goes_on: false };

    /// All of it, and an operator who closes the share.
    pub const CLOSED: Self = Self { wanted: &[(0, 4)], ..Self::LENT };

    /// An operator who shrinks the share, one who removes it, and a sweep that goes on.
    pub const CHANGED_BY_TWO: Self =
        Self { slots: 3, first: 2, wanted: &[(1, 3), (0, 3)], lends: false, crashes: false, goes_on: true };

    /// An operator who gives the bucket a slot more, one who leaves it as it is, and a sweep.
    pub const LIMIT_CHANGED: Self =
        Self { slots: 2, first: 1, wanted: &[(1, 3), (1, 2)], lends: false, crashes: false, goes_on: true };

    /// An operator who gives the bucket and its share a slot more, one who leaves them as they are, and a
    /// sweep.
    pub const SHARE_CHANGED: Self = Self { wanted: &[(2, 3), (1, 2)], ..Self::LIMIT_CHANGED };

    /// Two operators who shrink the share, and one who gives it back what it had.
    pub const CHANGED_BY_THREE: Self = Self {
        slots: 4,
        first: 2,
        wanted: &[(1, 4), (2, 4), (1, 4)],
        lends: false,
        crashes: false,
        goes_on: false,
    };
}

/// Shares of slots, or those with an oversight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRows {
    pub(crate) rows: Rows,
    pub(crate) oversight: Option<Oversight>,
}

/// The next write of an operator.
#[derive(Clone, Copy)]
enum Step {
    /// The name, and how many slots both rows change to.
    State(Option<Named>, i8),
    Shrink(Of, i8),
    /// So many slots more for each row; and the change ends, if both are as wanted then.
    Grow {
        own: i8,
        its: i8,
        is_last: bool,
    },
    Remove,
}

impl SlotRows {
    fn is(&self, oversight: Oversight) -> bool {
        self.oversight == Some(oversight)
    }

    /// As `SlotRows::next` of core; `None` if nothing can be done.
    fn plan(&self, read: &Table, (wanted, slots): (i8, i8)) -> Option<Step> {
        let is_wanted = wanted > 0;
        let has_row = read.share.is_some();
        let named = match (is_wanted, has_row) {
            (true, _) => Some(Named { capacity: wanted, is_closed: !has_row }),
            (false, true) => Some(Named { capacity: 0, is_closed: true }),
            (false, false) => None,
        };
        let is_as_wanted = read.common.capacity == slots - wanted
            && read.share.map(|row| row.capacity) == is_wanted.then_some(wanted);
        if is_as_wanted && named == read.named && read.changes_to.is_none() {
            return None;
        }
        if named != read.named || read.changes_to != Some(slots) {
            return Some(Step::State(named, slots));
        }
        let common = slots - wanted;
        if read.common.capacity > common {
            return Some(Step::Shrink(Of::Common, common));
        }
        let most = if is_wanted { wanted } else { 1 };
        if read.share.is_some_and(|share| share.capacity > most) {
            return Some(Step::Shrink(Of::Share, most));
        }
        let counts = |row: Row| if self.is(Oversight::HeldNotCounted) { row.capacity } else { row.counts() };
        let room = (slots - counts(read.common) - read.share.map_or(0, counts)).max(0);
        let lacks = [
            common - read.common.capacity,
            if is_wanted { wanted - read.share.map_or(0, |row| row.capacity) } else { 0 },
        ];
        let its = lacks[1].min(room);
        let own = lacks[0].min(room - its);
        let is_last = [own, its] == lacks && is_wanted == (has_row || its > 0);
        if own + its > 0 || is_last {
            return Some(Step::Grow { own, its, is_last });
        }
        let is_free = read.share.is_some_and(|share| share.free >= share.capacity);
        (!is_wanted && is_free).then_some(Step::Remove)
    }

    /// As `SlotRows::resumed` of core: what a sweep writes.
    fn resumed(&self, read: &Table) -> Option<Step> {
        let wanted = (read.named.map_or(0, |named| named.capacity), read.changes_to?);
        let step = self.plan(read, wanted)?;
        matches!(step, Step::Grow { .. }).then_some(step)
    }

    /// The table after the write, if its conditions hold.
    fn write(&self, read: &Table, now: &Table, step: Step) -> Option<Table> {
        let mut after = *now;
        let has_capacity =
            |of: Of| now.row(of).map(|row| row.capacity) == read.row(of).map(|row| row.capacity);
        let is_named = (now.named, now.changes_to) == (read.named, read.changes_to);
        let is_stated = is_named && has_capacity(Of::Common);
        match step {
            Step::State(named, changes_to) => {
                if !is_stated && !self.is(Oversight::NameWrittenOverAnother) {
                    return None;
                }
                (after.named, after.changes_to) = (named, Some(changes_to));
            }
            Step::Shrink(of, to) => {
                let step = to - read.row(of)?.capacity;
                let row = now.row(of)?;
                let is_as_read = has_capacity(of) || self.is(Oversight::ShrankByAnOldCapacity);
                if !is_as_read || !is_stated && !self.is(Oversight::ShrankAfterTheChange) {
                    return None;
                }
                after.set(of, Row { capacity: to, free: row.free + step });
            }
            Step::Remove => {
                let row = now.share?;
                let is_free = row.free >= row.capacity || self.is(Oversight::RemovedWhileHeld);
                if !is_stated || !has_capacity(Of::Share) || !is_free {
                    return None;
                }
                (after.share, after.named) = (None, None);
            }
            Step::Grow { own, its, is_last } => {
                if !is_named && !self.is(Oversight::GrewUnderOtherNames) {
                    return None;
                }
                let is_end = own + its == 0 && self.is(Oversight::EndedWithoutTheShare);
                for of in Of::BOTH {
                    let (Some(was), Some(is)) = (read.row(of), now.row(of)) else { continue };
                    let is_as_read = is.capacity == was.capacity
                        || self.is(Oversight::GrewByAnOldCapacity)
                        || is_end && of == Of::Share;
                    let is_above = is.free >= was.free.min(0) || self.is(Oversight::GrewBesideOneBelowZero);
                    if !is_as_read || !is_above {
                        return None;
                    }
                }
                after.changes_to = now.changes_to.filter(|_| !is_last);
                let grown =
                    |was: Row, is: Row, more: i8| Row { capacity: was.capacity + more, free: is.free + more };
                after.common = grown(read.common, now.common, own);
                after.share = match (read.share, now.share) {
                    (Some(was), Some(is)) => Some(grown(was, is, its)),
                    (None, None) if its > 0 => {
                        let is_closed = self.is(Oversight::MadeUnderAClosedName);
                        after.named = read.named.map(|named| Named { is_closed, ..named });
                        Some(Row::full(its))
                    }
                    (None, None) => None,
                    // A row that is made asks for none; one that is changed asks for itself.
                    _ => return None,
                };
            }
        }
        Some(after)
    }

    fn lends(row: Row, is_waited: bool) -> bool {
        row.free > FLOOR && !is_waited
    }

    fn borrow(&self, state: &State) -> Option<State> {
        let of = state.borrows?;
        let mut next = State { borrows: None, ..*state };
        let Some(row) = state.table.row(of) else { return Some(next) };
        let (at, is_waited) = (of as usize, state.waited[of as usize]);
        let least = if self.is(Oversight::BorrowedBelowTheFloor) { 1 } else { 1 + FLOOR };
        let is_in_turn = !is_waited || self.is(Oversight::BorrowedBeforeThoseThatWait);
        if row.free >= least && is_in_turn {
            next.is_wronged |= !Self::lends(row, is_waited);
            next.table.set(of, Row { free: row.free - 1, ..row });
            next.holders[at].borrowed += 1;
        }
        Some(next)
    }

    /// A slot goes back, and one of those that the counter counts is gone.
    fn give_back(state: &State, of: Of, to: Of, counter: fn(&mut Holders) -> &mut i8) -> Option<State> {
        let mut next = *state;
        let holders = counter(&mut next.holders[of as usize]);
        if *holders == 0 {
            return None;
        }
        *holders -= 1;
        let row = state.table.row(to)?;
        next.table.set(to, Row { free: row.free + 1, ..row });
        (row.free < row.capacity).then_some(next)
    }

    fn operate(&self, state: &State, who: usize) -> Option<State> {
        let read = state.readings[who]?;
        let step = match who {
            SWEEP => self.resumed(&read),
            _ => self.plan(&read, self.rows.wanted[who]),
        }?;
        let table = self.write(&read, &state.table, step)?;
        let mut next = State { table, ..*state };
        let wanted = state.table.changes_to.max(table.changes_to);
        let most = state.table.counts().max(wanted.unwrap_or(0));
        next.is_beyond |= table.counts() > most;
        next.readings[who] = None;
        Some(next)
    }
}

impl Model for SlotRows {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Rows { slots, first, .. } = self.rows;
        let has_share = first > 0;
        let table = Table {
            common: Row::full(slots - first),
            share: has_share.then(|| Row::full(first)),
            named: has_share.then_some(Named { capacity: first, is_closed: false }),
            changes_to: None,
        };
        vec![State {
            table,
            holders: [Holders::default(); 2],
            waited: [false; 2],
            readings: [None; OPERATORS + 1],
            borrows: None,
            is_wronged: false,
            is_beyond: false,
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        for of in Of::BOTH {
            actions.extend([Action::Take(of), Action::GiveBack(of)]);
            if self.rows.lends {
                actions.extend([
                    Action::Wait(of),
                    Action::Leave(of),
                    Action::Look(of),
                    Action::GiveBackBorrowed(of),
                ]);
            }
            if self.rows.crashes {
                actions.extend([Action::Crash(of), Action::Sweep(of)]);
            }
        }
        actions.push(Action::Borrow);
        for who in 0..self.rows.wanted.len() {
            actions.extend([Action::Read(who), Action::Write(who)]);
        }
        if self.rows.goes_on {
            actions.extend([Action::SweepReads, Action::GoOn]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no more may be in use than the limit", |model: &Self, state: &State| {
                let most = model.rows.wanted.iter().map(|(_, slots)| *slots).fold(model.rows.slots, i8::max);
                state.table.counts() <= most
            }),
            Property::always("a row grows to what is wanted, and not beyond", |_: &Self, state: &State| {
                !state.is_beyond
            }),
            Property::always("a slot is free, or a call holds it", |_: &Self, state: &State| {
                Of::BOTH
                    .into_iter()
                    .all(|of| state.table.row(of).map_or(0, Row::held) == state.holders[of as usize].all())
            }),
            Property::always(
                "a name is open, or goes, if and only if it has a row",
                |_: &Self, state: &State| {
                    let has_row =
                        state.table.named.is_some_and(|named| !named.is_closed || named.capacity == 0);
                    state.table.share.is_some() == has_row
                },
            ),
            Property::always(
                "while no change is under way, the share has what its name says",
                |_: &Self, state: &State| {
                    let Table { share, named, changes_to, .. } = state.table;
                    changes_to.is_some() || share.map(|row| row.capacity) == named.map(|named| named.capacity)
                },
            ),
            Property::always(
                "a borrower leaves what stays, and what others wait for",
                |_: &Self, state: &State| !state.is_wronged,
            ),
        ]
    }
}

impl Told for SlotRows {
    fn step(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        match action {
            Action::Take(of) => {
                let row = state.table.row(of).filter(|row| row.free > 0)?;
                next.table.set(of, Row { free: row.free - 1, ..row });
                next.holders[of as usize].own += 1;
            }
            Action::Wait(of) => {
                next.waited[of as usize] |= state.table.row(of).is_some_and(|row| row.free <= 0)
            }
            Action::Leave(of) => next.waited[of as usize] = false,
            Action::Look(of) => {
                let lends = |row: &Row| Self::lends(*row, state.waited[of as usize]);
                next.borrows = state.table.row(of).filter(lends).map(|_| of);
            }
            Action::Borrow => return self.borrow(state),
            Action::GiveBack(of) => return Self::give_back(state, of, of, |holders| &mut holders.own),
            Action::GiveBackBorrowed(of) => {
                let to = if self.is(Oversight::ReturnedToTheOther) { of.other() } else { of };
                return Self::give_back(state, of, to, |holders| &mut holders.borrowed);
            }
            Action::Crash(of) => {
                let holders = &mut next.holders[of as usize];
                let lives = if holders.own > 0 { &mut holders.own } else { &mut holders.borrowed };
                if *lives == 0 {
                    return None;
                }
                *lives -= 1;
                holders.crashed += 1;
            }
            Action::Sweep(of) => return Self::give_back(state, of, of, |holders| &mut holders.crashed),
            Action::Read(who) => next.readings[who] = Some(state.table),
            Action::Write(who) => return self.operate(state, who),
            Action::SweepReads => next.readings[SWEEP] = Some(state.table),
            Action::GoOn => return self.operate(state, SWEEP),
        }
        Some(next)
    }

    fn canonical(&self, state: State) -> State {
        state
    }

    fn words(_: &State, action: Action) -> String {
        action.words()
    }

    fn table(state: &State) -> String {
        table(state)
    }
}
