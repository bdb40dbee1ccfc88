//! Writes on inline leases, held against a row that they are applied to: no slot is made or lost, nothing is
//! granted that is not free, and whatever others did since the reading is met by a condition.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{CAPPED, LEASES};
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, Cost, InlineAnswer, InlinePlanner, InlineRelease, InlineTake, LeaseId,
    Limit, MOST_INLINE_LEASES, Operand, ReleaseAnswer, Serves, Timestamp, renew_inline,
};

#[path = "../cases/mod.rs"]
mod cases;
mod fleet;
mod one_write;
mod size;
mod slot_rows;
mod table;
mod wrong_cost;

use table::{Item, name};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn amount(tokens: i32) -> Amount {
    Amount::from_tokens(tokens)
}

fn cost(tokens: i32) -> Cost {
    Cost::new(amount(tokens)).unwrap()
}

/// The release of whatever the row says.
/// Of a slot.
fn back(text: impl ToString) -> InlineRelease {
    InlineRelease { id: id(text), cost: cost(1) }
}

fn id(text: impl ToString) -> LeaseId {
    LeaseId::new(text.to_string()).unwrap()
}

fn item(capacity: i32) -> Item {
    let limit = Limit::concurrent(amount(capacity), Cost::ONE).unwrap();
    Item::of(&Bucket::full(name(), limit, NOW))
}

fn take(id_of: impl ToString, slots: i32) -> InlineTake {
    InlineTake {
        id: id(id_of),
        cost: cost(slots),
        ends: NOW.after(Duration::from_secs(60)),
        serves: Serves::default(),
        borrows: None,
    }
}

/// A lease that ends so many seconds from [`NOW`].
fn entry(slots: i32, ends_in: i64) -> Operand {
    let ends = Timestamp::from_micros(NOW.micros() + ends_in * 1_000_000);
    Operand::Map(Box::from([
        ("c".into(), Operand::Number(slots.to_string())),
        ("t".into(), Operand::Number(ends.to_string())),
    ]))
}

/// Takes one slot each; they must be granted.
fn holding(capacity: i32, ids: &[&str]) -> Item {
    let mut item = item(capacity);
    let takes: Vec<_> = ids.iter().map(|id| take(id, 1)).collect();
    let plan = InlinePlanner::new(&item.bucket()).plan(&takes, &[], NOW);
    assert!(plan.takes.iter().all(|answer| *answer == InlineAnswer::Granted));
    plan.update.iter().for_each(|update| assert!(item.apply(update)));
    item
}

/// Slots that are neither free nor held.
fn drift(item: &Item) -> Amount {
    let bucket = item.bucket();
    let held = bucket.inline().map_or(Amount::ZERO, sluice_core::InlineLeases::held);
    bucket.limit().capacity().minus(bucket.tokens()).minus(held)
}

#[test]
fn an_entry_that_cannot_be_read_keeps_nobody_from_the_bucket_and_is_never_removed() {
    let mut item = item(3);
    for (id, spoiled) in [("a", Operand::Text("?".into())), ("b", Operand::Map(Box::from([])))] {
        item.put_lease(id, spoiled);
    }
    item.put_lease("c", entry(0, -60));
    let bucket = item.bucket();
    assert_eq!(bucket.inline().unwrap().unreadable(), ["a", "b", "c"]);
    assert_eq!(InlinePlanner::new(&bucket).reclaim(NOW), None);
    let plan =
        InlinePlanner::new(&bucket).plan(&[take("d", 2), take("e", 2), take("a", 1)], &[back("b")], NOW);
    assert!(matches!(plan.takes[..], [InlineAnswer::Granted, InlineAnswer::Refused(_), InlineAnswer::Held]));
    assert_eq!(plan.releases, [ReleaseAnswer::Gone]);
    assert!(item.apply(&plan.update.unwrap()));
    assert_eq!(item.bucket().inline().unwrap().len(), 4);
}

#[test]
fn a_renewal_moves_the_end_later_and_never_earlier_or_for_a_lease_that_is_gone() {
    let mut item = holding(2, &["a"]);
    let ends = |item: &Item| item.bucket().inline().unwrap().get(&id("a")).unwrap().ends.get();
    let renewal =
        |of: &str, secs: u64| renew_inline(name().to_string(), &id(of), NOW.after(Duration::from_secs(secs)));
    assert!(item.apply(&renewal("a", 90)));
    assert_eq!(ends(&item), NOW.after(Duration::from_secs(90)));
    assert!(!item.apply(&renewal("a", 70)), "a late renewal");
    assert!(!item.apply(&renewal("b", 90)), "a lease that is gone");
    assert_eq!((drift(&item), item.bucket().version()), (Amount::ZERO, 2));
}

#[test]
fn a_row_whose_leases_are_no_map_names_them() {
    let mut item = item(2);
    item.set_number(LEASES, 7);
    let error = Bucket::read(&name(), &item).unwrap_err();
    assert_eq!(error.to_string(), "attribute \"leases\" is not a map (M)");
}

/// Costs that are parts of a slot: the row is full before the bucket is.
#[test]
fn a_row_never_has_more_leases_than_it_may() {
    let mut item = item(300);
    let mut granted = 0;
    for round in 0..10 {
        let takes: Vec<_> = (0..40).map(|n| take(format!("{round}-{n}"), 1)).collect();
        let plan = InlinePlanner::new(&item.bucket()).plan(&takes, &[], NOW);
        granted += plan.takes.iter().filter(|answer| **answer == InlineAnswer::Granted).count();
        plan.update.iter().for_each(|update| assert!(item.apply(update)));
    }
    assert_eq!(granted, MOST_INLINE_LEASES);
    assert_eq!(item.bucket().inline().unwrap().len(), MOST_INLINE_LEASES);
    assert!(!item.bucket().limit().fits_inline());
}

/// A double restore of another client: the slots that a lease's end makes good are counted and not given
/// back.
#[test]
fn what_has_no_room_is_counted_and_not_given_back() {
    let mut item = holding(3, &["a", "b"]);
    item.add_tokens(amount(2));
    let plan = InlinePlanner::new(&item.bucket()).plan(&[], &[back("a"), back("b")], NOW);
    assert_eq!(plan.releases, [ReleaseAnswer::Capped, ReleaseAnswer::Capped]);
    let late = plan.update.unwrap();
    item.add_tokens(amount(-1));
    assert!(!item.apply(&late), "the room is another by now");
    let bucket = item.bucket();
    let plan = InlinePlanner::new(&bucket).plan(&[], &[back("a"), back("b")], NOW);
    assert_eq!(plan.releases, [ReleaseAnswer::GivenBack, ReleaseAnswer::Capped]);
    assert!(item.apply(plan.update.as_ref().unwrap()));
    assert_eq!(
        (item.bucket().tokens(), item.number(CAPPED), drift(&item)),
        (amount(3), amount(1), Amount::ZERO)
    );
    assert_eq!(item.bucket(), plan.after(&bucket));
}

/// What such a client leaves is less than a reading shows, and must not keep a release from being served for
/// ever.
#[test]
fn the_noise_of_a_client_that_counts_in_floats_stops_no_release() {
    let mut item = holding(3, &["a"]);
    item.set_number("tokens", "2.0000000000000004");
    let plan = InlinePlanner::new(&item.bucket()).plan(&[], &[back("a")], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    assert_eq!(item.bucket().tokens(), amount(3));
}

#[test]
fn a_sweep_reclaims_what_has_ended_for_every_clock_and_nothing_else() {
    let mut item = item(10);
    let ends = [("over", -3), ("perhaps", -2), ("alive", 1)];
    for (lease, ends_in) in ends {
        item.put_lease(lease, entry(2, ends_in));
    }
    item.add_tokens(amount(-6));
    let reclaim = InlinePlanner::new(&item.bucket()).reclaim(NOW.before(CLOCK_ERROR)).unwrap();
    assert_eq!((&reclaim.leases[..], reclaim.slots, reclaim.more), (&[id("over")][..], amount(2), false));
    let mut renewed = item.clone();
    renewed.put_lease("over", entry(2, 60));
    assert!(!renewed.apply(&reclaim.update), "its holder renewed it");
    assert!(item.apply(&reclaim.update));
    assert!(!item.apply(&reclaim.update), "the other sweep");
    assert_eq!((item.bucket().tokens(), drift(&item)), (amount(6), Amount::ZERO));
}

proptest! {
    /// Whatever the texts in it.
    #[test]
    fn no_map_of_leases_panics(entries in prop::collection::vec(("\\PC{0,8}", any::<bool>(), "\\PC{0,12}", "\\PC{0,12}"), 0..8)) {
        let mut item = item(5);
        for (id, as_map, c, t) in entries {
            let value = if as_map {
                Operand::Map(Box::from([("c".into(), Operand::Number(c)), ("t".into(), Operand::Text(t))]))
            } else {
                Operand::Number(c)
            };
            item.put_lease(&id, value);
        }
        let bucket = item.bucket();
        let _ = InlinePlanner::new(&bucket).plan(&[take("x", 1)], &[back("y")], NOW);
    }
}
