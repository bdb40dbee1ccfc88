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
        match table.read(to).next(to, NOW) {
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
    let SlotStep::Write(late) = stale.next(&third, NOW) else { panic!("it names its share first") };
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
            let SlotStep::Write(writes) = table.read(&two).next(&two, NOW) else {
                panic!("names, then shrinks")
            };
            assert!(table.apply(&writes));
            if table.bucket(&search).unwrap().limit().capacity() == Amount::from_tokens(2) {
                return;
            }
        }
        panic!("{search} does not shrink");
    };
    shrinks(&mut table);
    let SlotStep::GoOn(late) = table.read(&two).next(&two, NOW) else { panic!("the common row grows") };
    complete(&mut table, &three);
    let row = table.bucket(&search).unwrap();
    let takes = SlotPlanner::new(&row).write(Amount::from_tokens(3), None, NOW);
    assert!(table.apply(&[Write::Update(takes)]));
    shrinks(&mut table);
    assert!(!table.apply(&late));
    holds_the_bound(&table);
}

/// Calls of before hold five of seven slots, and the operator does not wait for them.
#[test]
fn shares_are_used_with_what_is_free_and_sweeps_give_them_the_rest() {
    let mut table = Table::default();
    let (whole, wanted) = (split(&[0, 0, 0]), split(&[0, 3, 5]));
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *whole.whole(), NOW).create())]));
    let five = Amount::from_tokens(5);
    let common = table.bucket(&name()).unwrap();
    assert!(table.apply(&[Write::Update(SlotPlanner::new(&common).write(five, None, NOW))]));
    // Names, shrinks, grows.
    for _ in 0..3 {
        let (SlotStep::Write(writes) | SlotStep::GoOn(writes)) = table.read(&wanted).next(&wanted, NOW)
        else {
            panic!("slots are free")
        };
        assert!(table.apply(&writes));
    }
    let of = |share: &str| name().of_share(&ShareName::new(share).unwrap()).unwrap();
    let slots = |table: &Table| {
        [of("checkout"), of("search")].map(|row| table.bucket(&row).unwrap().limit().capacity().to_string())
    };
    assert_eq!(slots(&table), ["1", "1"], "one for each, before any has two");
    assert!(table.bucket(&name()).unwrap().slot_shares().iter().all(|share| !share.is_closed));
    assert!(matches!(table.read(&wanted).next(&wanted, NOW), SlotStep::Wait(_)));
    assert_eq!(table.read_as_stated().resumed(NOW), None, "nothing has come back");
    assert_eq!(table.bucket(&name()).unwrap().split(), wanted, "it says what it changes to");
    for _ in 0..5 {
        let full = Exact::new(table.bucket(&name()).unwrap().limit().capacity());
        assert!(table.apply(&[Write::Update(give_back(name().to_string(), &full, Amount::from_tokens(1)))]));
        while let Some(writes) = table.read_as_stated().resumed(NOW) {
            assert!(table.apply(&writes));
            holds_the_bound(&table);
        }
    }
    assert_eq!(table.read(&wanted).next(&wanted, NOW), SlotStep::Done);
    assert!(table.bucket(&name()).unwrap().is_split_as(&wanted));
}

/// The names and the rows are as they were read, and the slots would be more than the limit.
#[test]
fn a_sweep_does_not_go_on_with_a_change_that_another_operator_took_back() {
    let mut table = Table::default();
    let seven = split(&[0, 0, 5]);
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *seven.whole(), NOW).create())]));
    complete(&mut table, &seven);
    // Nine slots, of which the share has as many.
    let nine = Limit::concurrent(Amount::from_tokens(9), Cost::ONE).unwrap();
    let (share, part) = (ShareName::new("search").unwrap(), "0.34".parse().unwrap());
    let share = DeclaredShare { name: share, part, floor: None, background: false };
    let nine = Split::new(nine, &[share]).unwrap();
    let SlotStep::Write(named) = table.read(&nine).next(&nine, NOW) else { panic!("it says what it wants") };
    assert!(table.apply(&named));
    let late = table.read_as_stated().resumed(NOW).unwrap();
    complete(&mut table, &seven);
    assert!(!table.apply(&late));
    holds_the_bound(&table);
}
