//! Leases in the row whose cost is not what they took: an edit by hand, or another client.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{CAPACITY, CAPPED};
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, Census, Drift, InlineAnswer, InlinePlanner, InlineRelease, Operand,
    ReleaseAnswer, Returned,
};

use super::table::Item;
use super::{NOW, amount, cost, entry, holding, id, item, take};

/// Eight slots: six are held, of which the lease `wrong` holds one, says that it holds `says`, and ends so
/// many seconds from now.
fn with_wrong(says: i32, ends_in: i64) -> Item {
    let mut item = holding(8, &["a", "b", "c", "d", "e", "wrong"]);
    item.put_lease("wrong", entry(says, ends_in));
    item
}

fn reclaim(item: &mut Item) -> bool {
    let bucket = item.bucket();
    let reclaim = InlinePlanner::new(&bucket).reclaim(NOW.before(CLOCK_ERROR)).unwrap();
    item.apply(&reclaim.update)
}

#[test]
fn a_holder_gives_back_what_it_took_whatever_the_row_says_of_its_lease() {
    for says in [2, 100, i32::MAX] {
        let mut item = with_wrong(says, 60);
        let release = InlineRelease { id: id("wrong"), cost: cost(1) };
        let plan = InlinePlanner::new(&item.bucket()).plan(&[], &[release], NOW);
        assert_eq!(plan.releases, [ReleaseAnswer::GivenBack]);
        assert!(item.apply(&plan.update.unwrap()));
        assert_eq!(item.bucket().tokens(), amount(3), "{says}: others hold five of eight");
    }
}

/// A slot would be neither free nor held until two recounts had found it.
#[test]
fn a_holder_gives_back_what_it_took_also_where_the_row_says_less() {
    let mut item = item(8);
    let plan = InlinePlanner::new(&item.bucket()).plan(&[take("wrong", 3)], &[], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    item.put_lease("wrong", entry(1, 60));
    let release = InlineRelease { id: id("wrong"), cost: cost(3) };
    let plan = InlinePlanner::new(&item.bucket()).plan(&[], &[release], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    assert_eq!(item.bucket().tokens(), amount(8));
}

#[test]
fn a_sweep_gives_back_no_slot_that_others_hold() {
    for says in [2, 3, 8, 100, i32::MAX] {
        let mut item = with_wrong(says, -60);
        assert!(reclaim(&mut item));
        assert_eq!(item.bucket().tokens(), amount(3), "{says}: others hold five of eight");
    }
}

#[test]
fn a_take_over_is_given_no_slot_that_others_hold() {
    for says in [3, 100] {
        let mut item = with_wrong(says, -60);
        // Two are free and one is dead, whatever it says.
        let plan = InlinePlanner::new(&item.bucket()).plan(&[take("four", 4)], &[], NOW);
        assert!(matches!(plan.takes[..], [InlineAnswer::Refused(_)]), "{says}: {:?}", plan.takes);
        let before = item.bucket();
        let plan = InlinePlanner::new(&before).plan(&[take("three", 3)], &[], NOW);
        assert_eq!(plan.takes, [InlineAnswer::Granted]);
        assert!(item.apply(plan.update.as_ref().unwrap()));
        assert_eq!(item.bucket(), plan.after(&before));
        assert_eq!(item.bucket().tokens(), Amount::ZERO, "{says}");
    }
}

/// Its cost was edited. All slots but the free ones would seem minted, and what ended beside it would find no
/// room.
#[test]
fn a_lease_that_lives_and_says_more_than_the_capacity_does_not_shut_its_bucket() {
    let mut item = with_wrong(100, 60);
    item.put_lease("e", entry(1, -60));
    let bucket = item.bucket();
    let found = Drift::between(&bucket, &bucket, &Census::default(), Returned::default());
    assert_eq!(found, Drift::Unknown);
    let plan = InlinePlanner::new(&bucket).plan(&[take("three", 3)], &[], NOW);
    assert_eq!(plan.takes, [InlineAnswer::Granted], "two are free and one is dead");
    assert!(reclaim(&mut item));
    assert_eq!(item.bucket().tokens(), amount(3), "others hold four, and it holds one of eight");
    item.put_lease("wrong", entry(100, -60));
    assert!(reclaim(&mut item));
    assert_eq!(item.bucket().tokens(), amount(4), "its end makes it good");
    let bucket = item.bucket();
    let found = Drift::between(&bucket, &bucket, &Census::default(), Returned::default());
    assert_eq!(found, Drift::None);
}

/// Others hold less then than when it was planned, and what they gave back is free already.
#[test]
fn a_reclaim_that_is_on_its_way_while_another_releases_fails_and_is_planned_again() {
    let mut item = with_wrong(1, -60);
    let late = InlinePlanner::new(&item.bucket()).reclaim(NOW.before(CLOCK_ERROR)).unwrap();
    let mut taken = item.clone();
    let plan = InlinePlanner::new(&taken.bucket()).plan(&[take("f", 1)], &[], NOW);
    assert!(taken.apply(&plan.update.unwrap()));
    assert!(taken.apply(&late.update), "a take leaves the room as it was");
    assert_eq!(taken.bucket().tokens(), amount(2));
    let plan =
        InlinePlanner::new(&item.bucket()).plan(&[], &[InlineRelease { id: id("a"), cost: cost(1) }], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    assert!(!item.apply(&late.update));
    assert!(reclaim(&mut item));
    assert_eq!(item.bucket().tokens(), amount(4));
}

/// Others gave back and took meanwhile, so that as much is free as before, and they hold more in the row.
/// Found by a seed of the simulation (1795401779530): three slots, of which a lease row held one, which the
/// bucket's row does not know.
#[test]
fn a_reclaim_of_too_much_that_is_on_its_way_while_others_change_hands_fails_and_is_planned_again() {
    let mut item = holding(3, &["wrong", "a"]);
    item.put_lease("wrong", entry(9, -60));
    item.add_tokens(amount(-1));
    let late = InlinePlanner::new(&item.bucket()).reclaim(NOW.before(CLOCK_ERROR)).unwrap();
    item.add_tokens(amount(1));
    let plan =
        InlinePlanner::new(&item.bucket()).plan(&[], &[InlineRelease { id: id("a"), cost: cost(1) }], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    let plan = InlinePlanner::new(&item.bucket()).plan(&[take("b", 2)], &[], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    assert_eq!(item.bucket().tokens(), Amount::ZERO, "as it was");
    assert!(!item.apply(&late.update));
    assert!(reclaim(&mut item));
    assert_eq!(item.bucket().tokens(), amount(1), "another holds two of three");
}

#[test]
fn a_lease_of_more_than_a_capacity_that_was_lowered_comes_back_whole() {
    let mut item = item(8);
    let plan = InlinePlanner::new(&item.bucket()).plan(&[take("large", 5)], &[], NOW);
    assert!(item.apply(&plan.update.unwrap()));
    item.put_lease("large", entry(5, -60));
    item.set_number(CAPACITY, 3);
    item.add_tokens(amount(-5));
    assert_eq!(item.bucket().tokens(), amount(-2));
    assert!(reclaim(&mut item));
    assert_eq!(item.bucket().tokens(), amount(3));
}

/// Summed, they would be beyond all numbers, and nobody could read the bucket any more.
#[test]
fn leases_that_say_too_much_leave_a_row_that_can_be_read() {
    let mut item = item(8);
    for round in 0..5 {
        let most = Amount::from_micros(i64::MAX).to_string();
        let ends = Operand::Number((NOW.micros() / 1_000_000 - 60).to_string());
        let huge = Operand::Map(Box::from([("c".into(), Operand::Number(most)), ("t".into(), ends)]));
        item.put_lease(&format!("huge{round}"), huge);
        assert!(reclaim(&mut item));
    }
    assert_eq!((item.bucket().tokens(), item.number(CAPPED)), (amount(8), amount(5_000_000)));
}

/// The first send was thought lost, its retry was applied and released. It holds its slots, without anyone's
/// knowing, until its lease ends, and no longer; nobody has them a second time.
#[test]
fn a_late_first_send_of_a_take_parks_its_slots_until_its_lease_ends_and_no_longer() {
    let mut item = holding(3, &["other"]);
    let late = InlinePlanner::new(&item.bucket()).plan(&[take("mine", 1)], &[], NOW).update.unwrap();
    let retry = late.clone();
    assert!(item.apply(&retry));
    assert!(!item.apply(&late), "it is there, and there is room for another");
    let release = InlineRelease { id: id("mine"), cost: cost(1) };
    let back = InlinePlanner::new(&item.bucket()).plan(&[], &[release], NOW).update.unwrap();
    assert!(item.apply(&back));
    assert!(item.apply(&late), "and here it is gone");
    let next = |at| InlinePlanner::new(&item.bucket()).plan(&[take("next", 2)], &[], at).takes;
    assert!(matches!(next(NOW.after(Duration::from_secs(62)))[..], [InlineAnswer::Refused(_)]));
    assert_eq!(next(NOW.after(Duration::from_secs(63))), [InlineAnswer::Granted]);
}

/// What one holds that says more than the capacity cannot be told.
fn held(bucket: &Bucket) -> Amount {
    bucket.inline().map_or(Amount::ZERO, |leases| leases.held_within(bucket.limit().capacity()))
}

proptest! {
    #![proptest_config(crate::cases::cases(2_000))]

    /// Leases that say anything, of which some have ended, and any number of free slots.
    #[test]
    fn no_reclaim_or_take_over_leaves_more_free_than_the_capacity_less_what_stays_held(
        capacity in 1..10, free in -5..12, leases in prop::collection::vec((1..12, -100_i64..100), 1..8),
        takes in prop::collection::vec(1..4, 0..4),
    ) {
        let mut item = item(capacity);
        item.set_number("tokens", free);
        for (at, (cost, ends_in)) in leases.iter().enumerate() {
            item.put_lease(&format!("{at}"), entry(*cost, *ends_in));
        }
        let bucket = item.bucket();
        let asked: Vec<_> = takes.iter().enumerate().map(|(at, slots)| take(format!("new{at}"), *slots)).collect();
        let plan = InlinePlanner::new(&bucket).plan(&asked, &[], NOW);
        let reclaimed = InlinePlanner::new(&bucket).reclaim(NOW.before(CLOCK_ERROR));
        let has_taken_over = !plan.taken_over.is_empty();
        for update in plan.update.iter().filter(|_| has_taken_over).chain(reclaimed.iter().map(|plan| &plan.update)) {
            let mut item = item.clone();
            prop_assert!(item.apply(update), "planned from the row as it is");
            let (before, after) = (bucket.clone(), item.bucket());
            let most = after.limit().capacity().minus(held(&after)).max(before.tokens());
            prop_assert!(after.tokens() <= most, "{:?} after {:?}", after, before);
            prop_assert!(after.tokens() >= before.tokens().min(Amount::ZERO));
        }
    }
}
