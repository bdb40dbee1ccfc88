//! The conditions of shares of slots. The random runs of `crates/sluice-core/tests/inline/slot_rows` speak of
//! these.

use std::collections::BTreeMap;

use sluice_core::{
    Amount, Borrowing, Bucket, Cost, DeclaredShare, Field, Limit, Operand, Row, ShareName, SlotPlanner,
    SlotRows, SlotStep, Split, Write,
};

use super::{AS_READ, NEED, NOT_BLOCKED, NOW, bucket, condition};

const NOT_WAITED_FOR: &str =
    "(attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :far)";
/// With what the rows change to.
const NAMES_AS_READ: &str = "#shares = :read_shares AND #changes_to = :read_changes_to \
     AND #cost_changes_to = :read_cost_changes_to";
const GROWS: &str = "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens >= :least \
     AND attribute_not_exists(#blocked_until)";
const NO_PROTOCOL: &str = "attribute_not_exists(#protocol)";

/// Attributes of a row, or of an entry of a map.
struct Fields(BTreeMap<&'static str, &'static str>);

impl Row for Fields {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        let text = self.0.get(name)?;
        Some(if name == "limit_type" { Field::Text(text) } else { Field::Number(text) })
    }
}

/// A row that names shares.
struct Named(Fields, Vec<(&'static str, Fields)>);

impl Row for Named {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        if name == "shares" { Some(Field::Other) } else { self.0.field(name) }
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        assert_eq!(name, "shares");
        self.1.iter().for_each(|(name, entry)| visit(name, Some(entry)));
        true
    }
}

/// The bucket's row with so many slots, all free, that changes to five, of which the share `search` has so
/// many. Its name is closed or open.
fn names_search(capacity: &'static str, of_share: &'static str, closed: &'static str) -> Bucket {
    let row = [
        ("changes_to", "5"),
        ("cost_changes_to", "1"),
        ("capacity", capacity),
        ("tokens", capacity),
        ("refill_rate", "0"),
        ("last_refill_at", "0"),
        ("cost_per_call", "1"),
        ("limit_type", "concurrent"),
        ("version", "0"),
    ];
    let share = Fields(BTreeMap::from([("c", of_share), ("x", closed)]));
    Bucket::read(bucket(2).dimension(), &Named(Fields(row.into()), vec![("search", share)])).unwrap()
}

/// The row of the share, with so many slots.
fn search(capacity: i32) -> Bucket {
    let row = bucket(2).dimension().of_share(&ShareName::new("search").unwrap()).unwrap();
    Bucket::full(row, Limit::concurrent(Amount::from_tokens(capacity), Cost::ONE).unwrap(), NOW)
}

/// Five slots: two for the share, or none.
fn wanted(has_share: bool) -> Split {
    let (name, part) = (ShareName::new("search").unwrap(), "0.4".parse().unwrap());
    let share = DeclaredShare { name, part, floor: None, background: false };
    Split::new(*bucket(5).limit(), if has_share { std::slice::from_ref(&share) } else { &[] }).unwrap()
}

/// The conditions of the next step.
fn next(common: Bucket, share: Option<Bucket>, to: &Split) -> Vec<String> {
    let shares = SlotRows::names(&common, to).iter().map(|_| share.clone()).collect();
    match (SlotRows { common, shares }).next(to) {
        SlotStep::Write(writes) | SlotStep::GoOn(writes) | SlotStep::Remove(_, writes) => {
            writes.iter().map(condition).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_borrows_asks_for_what_stays_and_that_nobody_waits() {
    let one = Amount::from_tokens(1);
    let write = SlotPlanner::new(&bucket(3)).write(one, Some(one.plus(one)), NOW);
    let free =
        format!("#limit_type = :concurrent AND #tokens >= :least AND {NOT_BLOCKED} AND {NOT_WAITED_FOR}");
    assert_eq!(write.statement.condition, free);
    let lease = sluice_core::InlineTake {
        id: sluice_core::LeaseId::new("a".into()).unwrap(),
        cost: Cost::ONE,
        ends: NOW,
        serves: sluice_core::Serves::default(),
        borrows: Some(Borrowing { by: None, leaves: one }),
    };
    let inline = sluice_core::InlinePlanner::new(&bucket(3)).plan(&[lease], &[], NOW).update.unwrap();
    let asked = format!("{NEED} AND {NOT_BLOCKED} AND {NOT_WAITED_FOR} AND attribute_not_exists(#leases)");
    assert_eq!(inline.statement.condition, asked);
}

#[test]
fn names_ask_for_the_names_that_were_read_for_what_they_change_to_and_for_the_common_row() {
    let first = format!(
        "{AS_READ} AND attribute_not_exists(#shares) AND attribute_not_exists(#changes_to) AND attribute_not_exists(#cost_changes_to)"
    );
    assert_eq!(next(bucket(5), None, &wanted(true)), [first], "named, before there is a row");
    let later = format!("{AS_READ} AND {NAMES_AS_READ}");
    assert_eq!(
        next(names_search("5", "2", "0"), Some(search(2)), &wanted(false)),
        [later.as_str()],
        "closed"
    );
    assert_eq!(next(names_search("3", "2", "1"), None, &wanted(false)), [later.as_str()], "unnamed");
}

#[test]
fn a_row_shrinks_from_the_capacity_that_was_read_and_while_the_change_is_under_way() {
    let own = format!("{AS_READ} AND {NAMES_AS_READ}");
    // As a bucket without shares.
    let of_share =
        format!("{AS_READ} AND attribute_not_exists(#shares) AND attribute_not_exists(#changes_to)");
    assert_eq!(next(names_search("5", "2", "1"), None, &wanted(true)), [own.as_str()]);
    assert_eq!(next(names_search("3", "2", "0"), Some(search(3)), &wanted(true)), [own, of_share]);
}

#[test]
fn rows_grow_from_the_capacities_and_names_that_were_read_and_from_no_more_than_was_held() {
    let own = format!("{GROWS} AND {NO_PROTOCOL} AND {NAMES_AS_READ}");
    let row = format!("{AS_READ} AND #tokens >= :least");
    let made = [own.as_str(), "attribute_not_exists(#key)"];
    assert_eq!(next(names_search("3", "2", "1"), None, &wanted(true)), made);
    let both = [own, row];
    assert_eq!(next(names_search("3", "2", "0"), Some(search(1)), &wanted(true)), both);
    assert_eq!(next(names_search("3", "2", "0"), Some(search(2)), &wanted(true)), both, "a change ends");
}

/// So nobody makes the row under another name, and nobody finds it without one.
#[test]
fn a_row_is_made_in_the_write_that_opens_its_name() {
    let rows = SlotRows { common: names_search("3", "2", "1"), shares: vec![None] };
    let SlotStep::GoOn(writes) = rows.next(&wanted(true)) else { panic!("two slots are free") };
    let [Write::Update(own), Write::Update(_)] = &writes[..] else { panic!("{writes:?}") };
    let Some((_, Operand::Map(names))) = own.values.iter().find(|(name, _)| *name == ":shares") else {
        panic!("{own:?}")
    };
    let [(name, Operand::Map(search))] = &names[..] else { panic!("{names:?}") };
    assert_eq!((name.as_ref(), search.len()), ("search", 1), "its slots, and not that it is closed");
}

#[test]
fn a_row_goes_if_all_of_its_slots_are_free_and_its_name_goes_with_it() {
    // The common row has all that it can have beside a row that goes.
    let removed = next(names_search("4", "0", "1"), Some(search(1)), &wanted(false));
    let names = format!("{AS_READ} AND {NAMES_AS_READ}");
    assert_eq!(removed, [names, format!("{AS_READ} AND #tokens >= :read_capacity")]);
}
