//! A sweep, or a caller that finds no slot, goes on with a change that an operator began.

use super::*;

/// Calls hold five of seven slots, and the operator does not wait for them.
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
        let (SlotStep::Write(writes) | SlotStep::GoOn(writes)) = table.read(&wanted).next(&wanted) else {
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
    assert!(matches!(table.read(&wanted).next(&wanted), SlotStep::Wait(_)));
    assert_eq!(table.read_as_stated().resumed(), None, "nothing has come back");
    assert_eq!(table.bucket(&name()).unwrap().split(), wanted, "it says what it changes to");
    for _ in 0..5 {
        let full = Exact::new(table.bucket(&name()).unwrap().limit().capacity());
        assert!(table.apply(&[Write::Update(give_back(name().to_string(), &full, Amount::from_tokens(1)))]));
        while let Some(writes) = table.read_as_stated().resumed() {
            assert!(table.apply(&writes));
            holds_the_bound(&table);
        }
    }
    assert_eq!(table.read(&wanted).next(&wanted), SlotStep::Done);
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
    let SlotStep::Write(named) = table.read(&nine).next(&nine) else { panic!("it says what it wants") };
    assert!(table.apply(&named));
    let late = table.read_as_stated().resumed().unwrap();
    complete(&mut table, &seven);
    assert!(!table.apply(&late));
    holds_the_bound(&table);
}

/// A row that could not be read may have all of the slots that seem to be free.
#[test]
fn a_sweep_that_does_not_see_every_row_gives_nothing() {
    let (before, after) = (split(&[0, 0, 5]), split(&[0, 3, 0]));
    let mut table = with(&before);
    takes(&mut table, &row_of("search"), 2);
    assert_eq!(goes_as_far_as_it_can(&mut table, &after), Amount::from_tokens(2));
    takes(&mut table, &row_of("checkout"), 1);
    gives_back(&mut table, &row_of("search"), 1);
    let all = table.read_as_stated();
    assert!(all.resumed().is_some(), "a slot has come back");
    for at in 0..all.shares.len() {
        let mut without = all.clone();
        without.shares[at] = None;
        assert_eq!(without.resumed(), None, "without {:?}", all.shares[at]);
    }
}

/// It has one call's slots until an operator removes it; the others have no reason to wait for that.
#[test]
fn a_sweep_gives_slots_although_the_row_of_a_removed_share_is_free() {
    let mut table = with(&split(&[0, 0, 5]));
    let wanted = split(&[0, 8, 0]);
    takes(&mut table, &row_of("search"), 1);
    takes(&mut table, &name(), 4);
    assert_eq!(
        goes_as_far_as_it_can(&mut table, &wanted),
        Amount::from_tokens(3),
        "the fourth is of the row that goes"
    );
    gives_back(&mut table, &row_of("search"), 1);
    gives_back(&mut table, &name(), 2);
    let writes = table.read_as_stated().resumed().expect("two slots have come back");
    assert!(table.apply(&writes));
    holds_the_bound(&table);
    complete(&mut table, &wanted);
    gives_back(&mut table, &name(), 2);
    assert!(table.bucket(&name()).unwrap().is_split_as(&wanted));
}

/// The row says what a call will cost, also while the common line has no room for such a call.
#[test]
fn sweeps_end_a_change_of_what_a_call_costs_with_the_new_cost() {
    let one = |whole: i32| Split::from(Limit::concurrent(Amount::from_tokens(whole), Cost::ONE).unwrap());
    for (first, held, wanted) in [
        (one(7), (name(), 7), search_with(7, 2, "0.6", None)),
        (one(1), (name(), 0), search_with(8, 2, "0.5", None)),
        (search_with(10, 1, "0.9", None), (row_of("search"), 9), search_with(10, 2, "0.5", None)),
        (search_with(10, 2, "0.5", None), (row_of("search"), 4), search_with(10, 1, "0.9", None)),
    ] {
        let mut table = with(&first);
        let (row, slots) = held;
        let take = |table: &mut Table| (0..slots).for_each(|_| takes(table, &row, 1));
        let sweeps = |table: &mut Table| {
            gives_back(table, &row, slots);
            while let Some(writes) = table.read_as_stated().resumed() {
                assert!(table.apply(&writes));
            }
            table.bucket(&name()).unwrap()
        };
        take(&mut table);
        // Each of these could be the operator's last one.
        while let SlotStep::Write(writes) = table.read(&wanted).next(&wanted) {
            assert!(table.apply(&writes));
            let common = sweeps(&mut table.clone());
            let needs_operator = table.read_as_stated().needs_operator();
            assert!(needs_operator || common.is_split_as(&wanted), "{common:?}");
        }
        assert!(sweeps(&mut table).is_split_as(&wanted), "{first:?}");
        assert_eq!(table.read(&wanted).next(&wanted), SlotStep::Done);
    }
}
