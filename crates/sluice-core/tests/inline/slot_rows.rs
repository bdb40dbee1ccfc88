//! Shares of a concurrency bucket: operators change them while callers take and give back, and the vendor
//! never sees more calls at once than the limit.

use std::collections::BTreeMap;

use sluice_core::schema::KEY;
use sluice_core::{
    Amount, Bucket, Cost, DeclaredShare, Dimension, Exact, Limit, ShareName, SlotPlanner, SlotRows, SlotStep,
    Split, Timestamp, Update, Write, give_back,
};

use super::table::{Item, name};

mod crowd;
mod sweeps;

const NOW: Timestamp = Timestamp::from_secs(1_709_550_000);
const WHOLE: i32 = 7;
const SHARES: [&str; 3] = ["batch", "checkout", "search"];

/// The rows of the table.
#[derive(Clone, Default)]
struct Table(BTreeMap<String, Item>);

impl Table {
    fn bucket(&self, row: &Dimension) -> Option<Bucket> {
        self.0.get(row.as_str()).map(|item| Bucket::read(row, item).unwrap())
    }

    fn rows(&self) -> impl Iterator<Item = Bucket> {
        self.0.keys().map(|key| self.bucket(&Dimension::new(key).unwrap()).unwrap())
    }

    /// All of them, or none.
    fn apply(&mut self, writes: &[Write]) -> bool {
        let before = self.clone();
        let is_applied = writes.iter().all(|write| self.apply_one(write));
        if !is_applied {
            *self = before;
        }
        is_applied
    }

    fn apply_one(&mut self, write: &Write) -> bool {
        match write {
            Write::Update(update) => {
                // A row that is not there is made if the condition asks for none.
                let mut item = self.0.get(&update.key).cloned().unwrap_or_else(|| Item(BTreeMap::new()));
                let is_applied = item.apply(update);
                if is_applied {
                    self.0.insert(update.key.clone(), item);
                }
                is_applied
            }
            Write::Put(put) => {
                let item: Item =
                    Item(put.item.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect());
                let Some(sluice_core::Operand::Text(key)) = item.0.get(KEY).cloned() else {
                    panic!("no key")
                };
                self.0.insert(key, item).is_none()
            }
            Write::Delete(delete) => {
                // Judged as an update that changes nothing.
                let statement = std::borrow::Cow::Borrowed(delete.statement);
                let update = Update { key: delete.key.clone(), statement, values: delete.values.clone() };
                // A condition may be that there is no row.
                let none = Item(BTreeMap::new());
                let holds = self.0.get(&delete.key).unwrap_or(&none).is_as_asked(&update);
                if holds {
                    self.0.remove(&delete.key);
                }
                holds
            }
        }
    }

    /// As a sweep reads them: with what the bucket's row says is wanted.
    fn read_as_stated(&self) -> SlotRows {
        self.read(&self.bucket(&name()).unwrap().split())
    }

    fn read(&self, to: &Split) -> SlotRows {
        let common = self.bucket(&name()).unwrap();
        let names = SlotRows::names(&common, to);
        SlotRows {
            shares: names.iter().map(|share| self.bucket(&name().of_share(share).unwrap())).collect(),
            common,
        }
    }
}

fn split(parts: &[u8]) -> Split {
    let share = |(name, part): (&&str, &u8)| {
        let part = format!("0.{part}");
        (part != "0.0").then(|| DeclaredShare {
            name: ShareName::new(name).unwrap(),
            part: part.parse().unwrap(),
            floor: None,
            background: false,
        })
    };
    let whole = Limit::concurrent(Amount::from_tokens(WHOLE), Cost::ONE).unwrap();
    Split::new(whole, &SHARES.iter().zip(parts).filter_map(share).collect::<Vec<_>>()).unwrap()
}

/// What may be in use at once, now or later.
fn counted(table: &Table) -> Amount {
    let counts = |row: Bucket| row.limit().capacity().minus(row.tokens()).max(row.limit().capacity());
    table.rows().map(counts).fold(Amount::ZERO, Amount::plus)
}

fn holds_the_bound(table: &Table) {
    let counted = counted(table);
    assert!(counted <= Amount::from_tokens(WHOLE), "{counted} at once may be in use");
}

/// Brings the rows to what is wanted, with nobody in the way.
fn complete(table: &mut Table, to: &Split) {
    for _ in 0..100 {
        match table.read(to).next(to) {
            SlotStep::Done => return,
            SlotStep::Write(writes) | SlotStep::GoOn(writes) | SlotStep::Remove(_, writes) => {
                assert!(table.apply(&writes))
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it comes to no end");
}

/// Its row would be left without a name, and its slots would be given to others beside it.
#[test]
fn names_that_another_operator_wrote_since_are_not_overwritten() {
    let mut table = Table::default();
    let (first, second, third) = (split(&[0, 0, 4]), split(&[0, 3, 4]), split(&[3, 0, 0]));
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *first.whole(), NOW).create())]));
    complete(&mut table, &first);
    let stale = table.read(&third);
    complete(&mut table, &second);
    let SlotStep::Write(late) = stale.next(&third) else { panic!("it names its share first") };
    assert!(!table.apply(&late));
    complete(&mut table, &third);
    holds_the_bound(&table);
}

/// The bucket would have its old slots, and the shares theirs.
#[test]
fn a_limit_is_not_changed_by_a_reading_from_before_its_shares() {
    let mut table = Table::default();
    let (whole, with_share) = (split(&[0, 0, 0]), split(&[0, 0, 4]));
    let limit = *with_share.common();
    assert!(table.apply(&[Write::Put(Bucket::full(name(), limit, NOW).create())]));
    let stale = table.read(&whole).common;
    complete(&mut table, &with_share);
    assert_eq!(table.bucket(&name()).unwrap().limit(), &limit, "the same slots as then");
    let late = sluice_core::Change::plan(&stale, whole.whole(), NOW).unwrap();
    assert!(!table.apply(&[Write::Update(late)]));
}

/// The common row would get a slot that a call of the share still holds.
#[test]
fn a_line_that_has_fallen_below_zero_since_the_reading_lets_no_other_grow() {
    let mut table = Table::default();
    let (two, three) = (split(&[0, 0, 3]), split(&[0, 0, 5]));
    let search = name().of_share(&ShareName::new("search").unwrap()).unwrap();
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *two.whole(), NOW).create())]));
    complete(&mut table, &three);
    let shrinks = |table: &mut Table| {
        for _ in 0..2 {
            let SlotStep::Write(writes) = table.read(&two).next(&two) else { panic!("names, then shrinks") };
            assert!(table.apply(&writes));
            if table.bucket(&search).unwrap().limit().capacity() == Amount::from_tokens(2) {
                return;
            }
        }
        panic!("{search} does not shrink");
    };
    shrinks(&mut table);
    let SlotStep::GoOn(late) = table.read(&two).next(&two) else { panic!("the common row grows") };
    complete(&mut table, &three);
    let row = table.bucket(&search).unwrap();
    let takes = SlotPlanner::new(&row).write(Amount::from_tokens(3), None, NOW);
    assert!(table.apply(&[Write::Update(takes)]));
    shrinks(&mut table);
    assert!(!table.apply(&late));
    holds_the_bound(&table);
}

/// Takes free slots of a row.
fn takes(table: &mut Table, row: &Dimension, slots: i32) {
    let bucket = table.bucket(row).unwrap();
    let write = SlotPlanner::new(&bucket).write(Amount::from_tokens(slots), None, NOW);
    assert!(table.apply(&[Write::Update(write)]));
}

fn gives_back(table: &mut Table, row: &Dimension, slots: i32) {
    let full = Exact::new(table.bucket(row).unwrap().limit().capacity());
    let back = give_back(row.to_string(), &full, Amount::from_tokens(slots));
    assert!(table.apply(&[Write::Update(back)]));
}

/// As an operator who then stops: the steps until nothing can be done. Returns what is still to move.
fn goes_as_far_as_it_can(table: &mut Table, to: &Split) -> Amount {
    for _ in 0..100 {
        match table.read(to).next(to) {
            SlotStep::Wait(lacking) => return lacking,
            SlotStep::Done => return Amount::ZERO,
            SlotStep::Write(writes) | SlotStep::GoOn(writes) | SlotStep::Remove(_, writes) => {
                assert!(table.apply(&writes))
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it comes to no end");
}

fn row_of(share: &str) -> Dimension {
    name().of_share(&ShareName::new(share).unwrap()).unwrap()
}

/// A bucket with these shares.
fn with(split: &Split) -> Table {
    let mut table = Table::default();
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *split.whole(), NOW).create())]));
    complete(&mut table, split);
    table
}

/// A row can name 32 shares, and a third set of sixteen comes beside rows that have not gone.
#[test]
fn more_names_than_a_row_can_have_come_one_after_the_other() {
    let set = |letter: char| {
        let share = |at: u8| DeclaredShare {
            name: ShareName::new(&format!("{letter}{at}")).unwrap(),
            part: "0.05".parse().unwrap(),
            floor: None,
            background: false,
        };
        let whole = Limit::concurrent(Amount::from_tokens(60), Cost::ONE).unwrap();
        Split::new(whole, &(0..16).map(share).collect::<Vec<_>>()).unwrap()
    };
    let [first, second, third] = ['a', 'b', 'c'].map(set);
    let mut table = with(&first);
    let held: Vec<Dimension> = (0..16).map(|at| row_of(&format!("a{at}"))).collect();
    held.iter().for_each(|row| takes(&mut table, row, 1));
    goes_as_far_as_it_can(&mut table, &second);
    let more: Vec<Dimension> = (0..16).map(|at| row_of(&format!("b{at}"))).collect();
    more.iter().for_each(|row| takes(&mut table, row, 1));
    goes_as_far_as_it_can(&mut table, &third);
    let common = table.bucket(&name()).unwrap();
    assert_eq!(common.slot_shares().len(), 32);
    // A sweep does not give the common line what is for shares that have no name yet.
    for row in &held[..8] {
        gives_back(&mut table, row, 1);
    }
    while let Some(writes) = table.read_as_stated().resumed() {
        assert!(table.apply(&writes));
    }
    assert!(table.bucket(&name()).unwrap().limit().capacity() <= third.common().capacity());
    for row in &held[..8] {
        takes(&mut table, row, 1);
    }
    for row in held.iter().chain(&more) {
        gives_back(&mut table, row, 1);
        goes_as_far_as_it_can(&mut table, &third);
    }
    assert!(table.bucket(&name()).unwrap().is_split_as(&third));
    assert_eq!(table.rows().count(), 17);
}

fn search_with(whole: i32, call: i32, part: &str, floor: Option<i32>) -> Split {
    let share = DeclaredShare {
        name: ShareName::new("search").unwrap(),
        part: part.parse().unwrap(),
        floor: floor.map(Amount::from_tokens),
        background: false,
    };
    let call = Cost::new(Amount::from_tokens(call)).unwrap();
    Split::new(Limit::concurrent(Amount::from_tokens(whole), call).unwrap(), &[share]).unwrap()
}

/// The bucket's row is as it was read, and the row of the share has two slots too many: nobody would take
/// them away.
#[test]
fn a_change_does_not_end_by_a_reading_from_before_another_one() {
    let (seven, nine) = (search_with(7, 1, "0.5", Some(1)), search_with(9, 1, "0.6", None));
    let mut table = with(&search_with(7, 1, "0.5", None));
    let SlotStep::Write(named) = table.read(&seven).next(&seven) else { panic!("its floor") };
    assert!(table.apply(&named));
    let late = table.read_as_stated().resumed().expect("the slots are as wanted");
    complete(&mut table, &nine);
    let SlotStep::Write(named) = table.read(&seven).next(&seven) else { panic!("its slots") };
    assert!(table.apply(&named));
    assert_eq!(table.bucket(&name()).unwrap().limit(), seven.common(), "four slots, as then");
    assert!(!table.apply(&late));
    complete(&mut table, &seven);
    holds_the_bound(&table);
}

/// The rows of a bucket cool down together, and keep out the same versions.
#[test]
fn a_row_is_made_only_if_the_bucket_cools_down_and_keeps_out_versions_as_it_was_read() {
    let cools = |seconds: u64| {
        let until = NOW.after(core::time::Duration::from_secs(seconds));
        Write::Update(sluice_core::cool_down(&name(), until))
    };
    let until = NOW.after(core::time::Duration::from_secs(60));
    let ends = || Write::Update(sluice_core::end_cool_down(&name(), until));
    let requires = || Write::Update(Bucket::require_protocol(&name(), 1));
    let wanted = split(&[0, 0, 5]);
    let about_to_make = |first: &[Write]| {
        let mut table = Table::default();
        assert!(table.apply(&[Write::Put(Bucket::full(name(), *wanted.whole(), NOW).create())]));
        first.iter().for_each(|write| assert!(table.apply_one(write)));
        while let SlotStep::Write(writes) = table.read(&wanted).next(&wanted) {
            assert!(table.apply(&writes));
        }
        let SlotStep::GoOn(made) = table.read(&wanted).next(&wanted) else { panic!("all are free") };
        (table, made)
    };
    for (first, since) in
        [(vec![], cools(60)), (vec![cools(60)], ends()), (vec![cools(60)], cools(120)), (vec![], requires())]
    {
        let (mut table, made) = about_to_make(&first);
        assert!(table.clone().apply(&made), "nothing has changed since");
        assert!(table.apply_one(&since));
        assert!(!table.apply(&made), "{first:?}, then {since:?}");
        complete(&mut table, &wanted);
        let [own, share] = [name(), row_of("search")].map(|row| {
            ["blocked_until", "protocol"].map(|attribute| table.0[row.as_str()].0.get(attribute).cloned())
        });
        assert_eq!(own, share);
    }
}
