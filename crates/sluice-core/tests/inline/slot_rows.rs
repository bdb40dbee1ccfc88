//! Shares of a concurrency bucket: operators change them while callers take and give back, and the vendor never sees
//! more calls at once than the limit.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::schema::KEY;
use sluice_core::{
    Amount, Bucket, Cost, DeclaredShare, Dimension, Limit, ShareName, SlotPlanner, SlotRows, SlotStep, Split,
    Timestamp, Update, Write, give_back,
};

use super::table::{Item, name};

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
            Write::Update(update) => self.0.get_mut(&update.key).is_some_and(|item| item.apply(update)),
            Write::Put(put) => {
                let item: Item =
                    Item(put.item.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect());
                let Some(sluice_core::Operand::Text(key)) = item.0.get(KEY).cloned() else { panic!("no key") };
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

    fn read(&self, to: &Split) -> SlotRows {
        let common = self.bucket(&name()).unwrap();
        let names = SlotRows::names(&common, to);
        SlotRows { shares: names.iter().map(|share| self.bucket(&name().of_share(share).unwrap())).collect(), common }
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

#[derive(Clone, Debug)]
enum Step {
    /// The operator reads the rows.
    Reads(usize),
    /// The operator writes what its last reading asks for.
    Writes(usize),
    Takes(usize),
    GivesBack(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..3).prop_map(Step::Reads),
        5 => (0_usize..3).prop_map(Step::Writes),
        6 => any::<usize>().prop_map(Step::Takes),
        4 => any::<usize>().prop_map(Step::GivesBack),
    ];
    proptest::collection::vec(step, 0..150)
}

/// Parts that leave room for a call in each line: tenths, of seven slots.
fn splits() -> impl Strategy<Value = Split> {
    let parts = proptest::sample::subsequence(vec![0_usize, 1, 2], 0..=3);
    (parts, 2_u8..5).prop_map(|(named, part)| {
        let of = |at| if named.contains(&at) { if named.len() > 2 { 2 } else { part.min(4) } } else { 0 };
        split(&[of(0), of(1), of(2)])
    })
}

fn holds_the_bound(table: &Table) {
    let amounts = |of: fn(&Bucket) -> Amount| table.rows().map(|row| of(&row)).fold(Amount::ZERO, Amount::plus);
    let held = amounts(|row| row.limit().capacity().minus(row.tokens()).max(row.limit().capacity()));
    assert!(held <= Amount::from_tokens(WHOLE), "{held} at once may be in use");
}

fn run(splits: [Split; 3], steps: Vec<Step>) {
    let whole = split(&[0, 0, 0]);
    let mut table = Table::default();
    assert!(table.apply(&[Write::Put(Bucket::full(name(), *whole.whole(), NOW).create())]));
    let (mut readings, mut held): (Vec<SlotRows>, Vec<Dimension>) = (vec![table.read(&whole); 3], Vec::new());
    for step in steps {
        match step {
            Step::Reads(who) => readings[who] = table.read(&splits[who]),
            Step::Writes(who) => match readings[who].next(&splits[who], NOW) {
                SlotStep::Write(writes) => drop(table.apply(&writes)),
                SlotStep::Remove(_, write) => drop(table.apply(&[write])),
                _ => {}
            },
            Step::Takes(of) => {
                let Some(bucket) = table.rows().nth(of % table.0.len()) else { continue };
                let one = Amount::from_tokens(1);
                if table.apply(&[Write::Update(SlotPlanner::new(&bucket).write(one, None, NOW))]) {
                    held.push(bucket.dimension().clone());
                }
            }
            Step::GivesBack(which) => {
                if held.is_empty() {
                    continue;
                }
                let row = held.swap_remove(which % held.len());
                let Some(bucket) = table.bucket(&row) else { panic!("a row with a slot in use is removed") };
                let capacity = sluice_core::Exact::new(bucket.limit().capacity());
                let back = give_back(bucket.dimension().to_string(), &capacity, Amount::from_tokens(1));
                assert!(table.apply(&[Write::Update(back)]), "there is always room for what was taken");
            }
        }
        holds_the_bound(&table);
    }
    // When all calls have ended, one operator comes to its end, whatever the other left behind.
    for row in held {
        let Some(bucket) = table.bucket(&row) else { panic!("a row with a slot in use is removed") };
        let capacity = sluice_core::Exact::new(bucket.limit().capacity());
        assert!(table.apply(&[Write::Update(give_back(row.to_string(), &capacity, Amount::from_tokens(1)))]));
    }
    let last = &splits[0];
    for _ in 0..100 {
        match table.read(last).next(last, NOW) {
            SlotStep::Done => break,
            SlotStep::Write(writes) => assert!(table.apply(&writes), "nobody is in the way"),
            SlotStep::Remove(_, write) => assert!(table.apply(&[write]), "nobody is in the way"),
            SlotStep::Wait(held) => panic!("it waits for {held} slots that nobody holds"),
            other => panic!("{other:?}"),
        }
        holds_the_bound(&table);
    }
    assert!(table.bucket(&name()).unwrap().is_split_as(last), "{:?}", table.bucket(&name()).unwrap().split());
    let found: Vec<(String, Amount)> = table.rows().map(|row| (row.dimension().to_string(), row.tokens())).collect();
    let mut wanted = vec![(name().to_string(), last.common().capacity())];
    wanted.extend(last.shares().iter().map(|s| (name().of_share(&s.name).unwrap().to_string(), s.limit.capacity())));
    assert_eq!(found, wanted, "each row is there, full, and no other");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn shares_change_and_the_vendor_never_sees_more_calls_than_the_limit(
        one in splits(), other in splits(), steps in steps(),
    ) {
        run([one.clone(), other, one], steps);
    }
}

/// Brings the rows to what is wanted, with nobody in the way.
fn complete(table: &mut Table, to: &Split) {
    for _ in 0..100 {
        match table.read(to).next(to, NOW) {
            SlotStep::Done => return,
            SlotStep::Write(writes) => assert!(table.apply(&writes)),
            SlotStep::Remove(_, write) => assert!(table.apply(&[write])),
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
