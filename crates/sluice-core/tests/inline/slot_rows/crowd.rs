//! Operators who want other limits and other shares, and callers that take, wait, borrow and give back. Each
//! acts by readings that may be old.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, Change, Cost, DeclaredShare, Dimension, Exact, Limit, Plan, ShareName, SlotPlanner,
    SlotRows, SlotShare, SlotStep, Split, Timestamp, Update, Write, give_back, mark_waiting,
};

use super::{NOW, SHARES, Table, counted};
use crate::table::name;

#[derive(Clone, Debug)]
enum Step {
    /// The operator reads the rows.
    Reads(usize),
    /// The operator writes what its last reading asks for.
    Writes(usize),
    /// A sweep reads the rows.
    SweepReads,
    /// It goes on with a change that it saw.
    Sweeps,
    /// A caller takes slots of a row, also of one that is closed.
    Takes {
        row: usize,
        cost: i32,
    },
    /// A caller of one line reads the names and the row of another line, which has enough above what stays.
    Looks {
        caller: usize,
        own: usize,
        lender: usize,
        cost: i32,
    },
    /// It borrows what it saw.
    Borrows(usize),
    /// Callers wait for slots of a row.
    Marks(usize),
    GivesBack(usize),
    TimePasses,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = any::<usize>;
    let step = prop_oneof![
        4 => (0_usize..3).prop_map(Step::Reads),
        5 => (0_usize..3).prop_map(Step::Writes),
        2 => Just(Step::SweepReads),
        3 => Just(Step::Sweeps),
        4 => (any(), 1..=3).prop_map(|(row, cost)| Step::Takes { row, cost }),
        4 => (0_usize..2, any(), any(), 1..=2)
            .prop_map(|(caller, own, lender, cost)| Step::Looks { caller, own, lender, cost }),
        4 => (0_usize..2).prop_map(Step::Borrows),
        1 => any().prop_map(Step::Marks),
        5 => any().prop_map(Step::GivesBack),
        1 => Just(Step::TimePasses),
    ];
    proptest::collection::vec(step, 0..150)
}

/// A limit with up to three shares, each with room for a call.
fn splits() -> impl Strategy<Value = Split> {
    let share = proptest::option::of((1_u8..=5, proptest::option::of(0_i32..=2), any::<bool>()));
    (3_i32..=12, 1_i32..=2, proptest::array::uniform3(share)).prop_filter_map(
        "no room",
        |(capacity, call, shares)| {
            let call = Cost::new(Amount::from_tokens(call)).unwrap();
            let declared = SHARES.iter().zip(shares).filter_map(|(name, share)| {
                let (part, floor, background) = share?;
                let (name, part) = (ShareName::new(name).unwrap(), format!("0.{part}").parse().unwrap());
                Some(DeclaredShare { name, part, floor: floor.map(Amount::from_tokens), background })
            });
            Split::new(
                Limit::concurrent(Amount::from_tokens(capacity), call).ok()?,
                &declared.collect::<Vec<_>>(),
            )
            .ok()
        },
    )
}

/// What an operator does first: a limit without shares is changed by one write, if the row names none either.
/// In the middle of a change it goes by [`SlotRows::next`].
fn planned(reading: &SlotRows, to: &Split, now: Timestamp) -> SlotStep {
    let is_changing = reading.common.changes_to().is_some();
    if reading.common.slot_shares().is_empty() && to.shares().is_empty() && !is_changing {
        let is_done = reading.common.limit() == to.whole();
        let change = Write::Update(Change::plan(&reading.common, to.whole(), now).unwrap());
        return if is_done { SlotStep::Done } else { SlotStep::Write(vec![change]) };
    }
    reading.next(to)
}

/// A write that borrows.
struct Loan {
    write: Update,
    row: Dimension,
    cost: Amount,
    leaves: Amount,
    planned_at: Timestamp,
}

struct Crowd {
    now: Timestamp,
    table: Table,
    splits: [Split; 3],
    readings: [SlotRows; 3],
    swept: SlotRows,
    loans: [Option<Loan>; 2],
    held: Vec<(Dimension, Amount)>,
}

impl Crowd {
    fn new(first: &Split, splits: [Split; 3]) -> Self {
        let mut table = Table::default();
        assert!(table.apply(&[Write::Put(Bucket::full(name(), *first.whole(), NOW).create())]));
        let readings = splits.each_ref().map(|to| table.read(to));
        let swept = readings[0].clone();
        Self { now: NOW, table, splits, readings, swept, loans: [None, None], held: Vec::new() }
    }

    /// Does the step. No more may be in use than before, or than the operator wants who wrote.
    fn step(&mut self, step: Step) {
        let (before, mut most) = (counted(&self.table), Amount::ZERO);
        match step {
            Step::Reads(who) => self.readings[who] = self.table.read(&self.splits[who]),
            Step::Writes(who) => {
                most = self.splits[who].whole().capacity();
                let (reading, to) = (&self.readings[who], &self.splits[who]);
                let step = if who == 0 { planned(reading, to, self.now) } else { reading.next(to) };
                self.writes(&step);
            }
            Step::SweepReads => self.swept = self.table.read_as_stated(),
            Step::Sweeps => {
                // What is wanted now, whatever was when it read.
                most = self
                    .table
                    .bucket(&name())
                    .unwrap()
                    .changes_to()
                    .map_or(Amount::ZERO, |whole| whole.capacity());
                self.sweeps();
            }
            Step::Takes { row, cost } => {
                let row = self.row(row);
                self.takes(&row, Amount::from_tokens(cost));
            }
            Step::Looks { caller, own, lender, cost } => self.loans[caller] = self.looks(own, lender, cost),
            Step::Borrows(caller) => self.borrows(caller),
            Step::Marks(row) => {
                let row = self.row(row);
                self.table.apply(&[Write::Update(mark_waiting(row.dimension(), self.now))]);
            }
            Step::GivesBack(which) if !self.held.is_empty() => self.gives_back(which % self.held.len()),
            Step::GivesBack(_) => {}
            Step::TimePasses => self.now = self.now.after(Duration::from_secs(1)),
        }
        let after = counted(&self.table);
        assert!(
            after <= before.max(most),
            "{after} at once may be in use, {before} before, {most} are wanted"
        );
        let common = self.table.bucket(&name()).unwrap();
        for share in common.slot_shares() {
            let has_row = self.table.bucket(&share.row).is_some();
            assert_eq!(has_row, !share.is_closed || share.is_going(), "{share:?}");
        }
        let is_named = |row: &Dimension| common.slot_shares().iter().any(|share| share.row == *row);
        assert!(self.table.rows().all(|row| *row.dimension() == name() || is_named(row.dimension())));
    }

    /// True if it wrote something.
    fn sweeps(&mut self) -> bool {
        self.swept.resumed().is_some_and(|writes| self.table.apply(&writes))
    }

    fn row(&self, nth: usize) -> Bucket {
        self.table.rows().nth(nth % self.table.0.len()).unwrap()
    }

    fn writes(&mut self, step: &SlotStep) -> bool {
        match step {
            SlotStep::Write(writes) | SlotStep::GoOn(writes) | SlotStep::Remove(_, writes) => {
                self.table.apply(writes)
            }
            _ => true,
        }
    }

    fn takes(&mut self, row: &Bucket, cost: Amount) {
        if self.table.apply(&[Write::Update(SlotPlanner::new(row).write(cost, None, self.now))]) {
            self.held.push((row.dimension().clone(), cost));
        }
    }

    /// As `lane/slot_lines` does: the names, then the row of a lender.
    fn looks(&self, own: usize, lender: usize, cost: i32) -> Option<Loan> {
        let names = self.table.bucket(&name()).unwrap();
        let own =
            names.slot_shares().get(own % (names.slot_shares().len() + 1)).map(|share| share.name.clone());
        let lenders = names.slot_lenders(own.as_ref());
        let (lender, leaves) = lenders.get(lender % lenders.len().max(1))?;
        let row = lender.map_or(name(), |share: &SlotShare| share.row.clone());
        let reading = self.table.bucket(&row)?;
        let cost = Cost::new(Amount::from_tokens(cost)).unwrap();
        let planner = SlotPlanner::new(&reading);
        let Plan::Write(total) = planner.judge(cost, Amount::ZERO, Some(*leaves), self.now) else {
            return None;
        };
        let write = planner.write(total, Some(total.plus(*leaves)), self.now);
        Some(Loan { write, row, cost: total, leaves: *leaves, planned_at: self.now })
    }

    /// It leaves what stays, and takes nothing that others wait for, whatever has changed since it looked.
    fn borrows(&mut self, caller: usize) {
        let Some(loan) = self.loans[caller].take() else { return };
        let before = self.table.bucket(&loan.row);
        if !self.table.apply(&[Write::Update(loan.write)]) {
            return;
        }
        let left = self.table.bucket(&loan.row).unwrap().tokens();
        assert!(left >= loan.leaves, "{} has {left} left of the {} that stay", loan.row, loan.leaves);
        assert!(!before.unwrap().is_waited_for(loan.planned_at), "somebody waits for slots of {}", loan.row);
        self.held.push((loan.row, loan.cost));
    }

    fn gives_back(&mut self, which: usize) {
        let (row, slots) = self.held.remove(which);
        let Some(bucket) = self.table.bucket(&row) else { panic!("a row with a slot in use is removed") };
        let back = give_back(row.to_string(), &Exact::new(bucket.limit().capacity()), slots);
        assert!(self.table.apply(&[Write::Update(back)]), "there is always room for what was taken");
    }

    /// One operator is left, and comes to its end, whatever the others left behind: calls end, others begin
    /// in open lines.
    fn ends(&mut self) {
        let last = self.splits[0].clone();
        let most = last.whole().capacity();
        for round in 0..300 {
            let before = counted(&self.table);
            let step = planned(&self.table.read(&last), &last, self.now);
            match step {
                SlotStep::Done => break,
                SlotStep::Wait(slots) if self.held.is_empty() => {
                    panic!("it waits for {slots} slots that nobody holds")
                }
                SlotStep::Wait(_) => self.gives_back(0),
                step => assert!(self.writes(&step), "nobody is in the way: {step:?}"),
            }
            assert!(counted(&self.table) <= before.max(most));
            if round % 4 == 0 {
                self.swept = self.table.read_as_stated();
                let stated = self.swept.common.changes_to().map_or(Amount::ZERO, |whole| whole.capacity());
                self.sweeps();
                assert!(counted(&self.table) <= before.max(most).max(stated));
            }
            if round % 3 == 0 {
                let common = self.table.bucket(&name()).unwrap();
                self.takes(&common, Amount::from_tokens(1));
            }
        }
        assert_eq!(self.table.read(&last).next(&last), SlotStep::Done, "it comes to no end");
        while !self.held.is_empty() {
            self.gives_back(0);
        }
        let rows = self.table.rows().map(|row| (row.dimension().to_string(), row.tokens(), *row.limit()));
        let wanted = |row: Dimension, limit: &Limit| (row.to_string(), limit.capacity(), *limit);
        let shares =
            last.shares().iter().map(|share| wanted(name().of_share(&share.name).unwrap(), &share.limit));
        let all: Vec<_> = std::iter::once(wanted(name(), last.common())).chain(shares).collect();
        assert_eq!(rows.collect::<Vec<_>>(), all, "each row is there, full, and no other");
        assert!(self.table.bucket(&name()).unwrap().is_split_as(&last));
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(3_000))]

    #[test]
    fn shares_and_the_limit_change_and_no_more_is_in_use_than_the_larger_limit(
        first in splits(), [one, other] in proptest::array::uniform2(splits()), same in any::<bool>(), steps in steps(),
    ) {
        let third = if same { one.clone() } else { first.clone() };
        let mut crowd = Crowd::new(&first, [one, other, third]);
        steps.into_iter().for_each(|step| crowd.step(step));
        crowd.ends();
    }
}
