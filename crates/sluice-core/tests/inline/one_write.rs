//! What one write serves, and which interleavings its condition meets.

use std::time::Duration;

use sluice_core::schema::{ADMITTED, ADMITTED_INLINE, BLOCKED_UNTIL, CAPACITY, LEASES, LIMIT_TYPE};
use sluice_core::{
    Amount, InlineAnswer, InlinePlan, InlinePlanner, InlineTake, MOST_CHANGES, Operand, Reason,
    ReleaseAnswer, Serves,
};

use super::table::Item;
use super::{NOW, amount, back, drift, entry, holding, item, take};

fn plan(item: &Item, takes: &[(&str, i32)], releases: &[&str]) -> InlinePlan {
    let takes: Vec<_> = takes.iter().map(|(id, slots)| take(id, *slots)).collect();
    let releases: Vec<_> = releases.iter().map(back).collect();
    InlinePlanner::new(&item.bucket()).plan(&takes, &releases, NOW)
}

fn granted(plan: &InlinePlan) -> Vec<bool> {
    plan.takes.iter().map(|answer| *answer == InlineAnswer::Granted).collect()
}

/// Applies a plan that must be applied, and holds the row against what the plan says of it.
fn apply(item: &mut Item, plan: &InlinePlan) {
    let before = item.bucket();
    assert!(item.apply(plan.update.as_ref().unwrap()));
    assert_eq!(item.bucket(), plan.after(&before));
    assert_eq!(drift(item), Amount::ZERO);
}

#[test]
fn the_slots_of_those_that_release_are_there_for_those_that_take() {
    let mut item = holding(3, &["a", "b", "c"]);
    let swap = plan(&item, &[("d", 1), ("e", 2), ("f", 1)], &["a", "b"]);
    assert_eq!(granted(&swap), [true, false, true], "a small one behind a large one that is refused");
    assert_eq!(swap.releases, [ReleaseAnswer::GivenBack; 2]);
    apply(&mut item, &swap);
    assert_eq!((item.number(ADMITTED), item.number(ADMITTED_INLINE)), (amount(5), amount(5)));
}

#[test]
fn a_take_whose_reply_was_lost_is_found_held_and_a_release_gone() {
    let mut item = holding(3, &["a"]);
    let both = plan(&item, &[("b", 1)], &["a"]);
    apply(&mut item, &both);
    assert!(!item.apply(both.update.as_ref().unwrap()), "a second application");
    let again = plan(&item, &[("b", 1)], &["a"]);
    assert_eq!(
        (&again.takes[..], &again.releases[..]),
        (&[InlineAnswer::Held][..], &[ReleaseAnswer::Gone][..])
    );
    assert_eq!(again.update, None);
}

#[test]
fn one_id_is_never_set_and_removed_or_set_twice_in_one_write() {
    let mut item = holding(5, &["a"]);
    let mixed = plan(&item, &[("a", 1), ("b", 1), ("b", 1)], &["a", "a"]);
    assert_eq!(mixed.takes, [InlineAnswer::Later, InlineAnswer::Granted, InlineAnswer::Later]);
    assert_eq!(mixed.releases, [ReleaseAnswer::GivenBack, ReleaseAnswer::Gone]);
    apply(&mut item, &mixed);
}

#[test]
fn a_cool_down_refuses_takes_and_lets_releases_through() {
    let mut item = holding(2, &["a"]);
    let before = plan(&item, &[("b", 1)], &[]);
    item.set_number(BLOCKED_UNTIL, NOW.after(Duration::from_secs(9)));
    assert!(!item.apply(&before.update.unwrap()), "it began since the reading");
    let blocked = plan(&item, &[("b", 1), ("a", 1)], &["a"]);
    let InlineAnswer::Refused(refusal) = blocked.takes[0] else { panic!("{blocked:?}") };
    assert_eq!((refusal.reason, refusal.wait), (Reason::CoolingDown, Duration::from_secs(9)));
    apply(&mut item, &blocked);
}

/// Two processes see slots that nobody takes, and pass over the same numbers: those after them have callers
/// that wait.
#[test]
fn numbers_of_others_are_passed_over_once_and_own_ones_counted_beside_others() {
    let served = |item: &Item| item.bucket().served();
    let taken = |item: &Item, id: &str, numbers, passes_over| {
        let take = InlineTake { serves: Serves { numbers, passes_over }, ..take(id, 1) };
        InlinePlanner::new(&item.bucket()).plan(&[take], &[], NOW)
    };
    let mut item = holding(9, &["a"]);
    let first = [taken(&item, "b", 7, true), taken(&item, "c", 1, false)];
    let late = [taken(&item, "d", 7, true), taken(&item, "e", 40, false)];
    first.iter().for_each(|plan| assert!(item.apply(plan.update.as_ref().unwrap())));
    assert!(!item.apply(late[0].update.as_ref().unwrap()), "others have counted since");
    assert_eq!(served(&item), 8);
    assert!(item.apply(late[1].update.as_ref().unwrap()), "what only this process counts needs no condition");
    assert_eq!(served(&item), 48);
    let again = taken(&item, "d", 7, true);
    assert!(item.apply(again.update.as_ref().unwrap()));
    assert_eq!((served(&item), drift(&item)), (55, Amount::ZERO));
}

/// Both plan from a row without a map; the second would erase the first's lease.
#[test]
fn two_first_takes_do_not_erase_each_other() {
    let mut item = item(3);
    let (one, other) = (plan(&item, &[("a", 1)], &[]), plan(&item, &[("b", 1)], &[]));
    apply(&mut item, &one);
    assert!(!item.apply(other.update.as_ref().unwrap()));
    let again = plan(&item, &[("b", 1)], &[]);
    apply(&mut item, &again);
}

#[test]
fn a_bucket_that_was_removed_or_made_anew_gets_no_lease_by_an_old_plan() {
    let holding = holding(3, &["a"]);
    let old =
        [plan(&holding, &[("b", 1)], &[]), plan(&holding, &[], &["a"]), plan(&holding, &[("b", 1)], &["a"])];
    let mut rate = holding.clone();
    rate.0.insert(LIMIT_TYPE.to_owned(), Operand::Text("requests".into()));
    for update in old.iter().filter_map(|plan| plan.update.as_ref()) {
        assert!(!item(3).apply(update), "made anew: there is no map");
        assert!(!Item([].into()).apply(update), "removed");
        assert!(!rate.apply(update), "a limit over time");
    }
}

#[test]
fn a_resize_between_the_reading_and_the_write_is_met() {
    let mut item = holding(3, &["a", "b", "c"]);
    let (release, swap) = (plan(&item, &[], &["a"]), plan(&item, &[("d", 1)], &["a"]));
    item.set_number(CAPACITY, 1);
    item.add_tokens(amount(-2));
    assert!(!item.apply(&release.update.unwrap()), "the room is judged by another capacity");
    assert!(!item.apply(&swap.update.unwrap()), "what comes back is owed");
    let swap = plan(&item, &[("d", 1)], &["a", "b"]);
    assert_eq!(granted(&swap), [false]);
    apply(&mut item, &swap);
}

#[test]
fn what_others_took_since_the_reading_is_not_granted_again() {
    let mut item = holding(2, &["a"]);
    let (one, other) = (plan(&item, &[("b", 1)], &[]), plan(&item, &[("c", 1)], &[]));
    apply(&mut item, &one);
    assert!(!item.apply(&other.update.unwrap()));
    let refused = plan(&item, &[("c", 1), ("d", 3)], &[]);
    assert_eq!(refused.takes[1], InlineAnswer::NeverSatisfiable { capacity: amount(2) });
    assert!(
        matches!(refused.takes[0], InlineAnswer::Refused(refusal) if refusal.reason == Reason::NoFreeSlot)
    );
    assert_eq!(refused.update, None);
}

fn with_dead(alive: &[&str], dead: &[(&str, i32)]) -> Item {
    let slots: i32 = dead.iter().map(|(_, slots)| slots).sum();
    let mut item = holding(i32::try_from(alive.len()).unwrap() + slots, alive);
    for (id, slots) in dead {
        item.put_lease(id, entry(*slots, -60));
    }
    item.add_tokens(amount(-slots));
    item
}

#[test]
fn all_that_have_ended_are_taken_over_where_that_makes_up_for_what_is_missing() {
    let mut item = with_dead(&["a"], &[("x", 1), ("y", 2)]);
    let nothing = plan(&item, &[("b", 4)], &[]);
    assert!(nothing.update.is_none() && nothing.taken_over.is_empty(), "not enough: left to a sweep");
    let over = plan(&item, &[("b", 1), ("c", 1)], &[]);
    assert_eq!((granted(&over), over.taken_over.len()), (vec![true, true], 2));
    apply(&mut item, &over);
    assert_eq!(item.bucket().tokens(), amount(1));
}

/// Their holders may be about to renew them.
#[test]
fn nothing_that_has_ended_is_taken_over_by_a_planner_that_does_not() {
    let item = with_dead(&["a"], &[("x", 1), ("y", 2)]);
    let bucket = item.bucket();
    let (planner, b) = (InlinePlanner::new(&bucket).without_taking_over(), take("b", 1));
    let swap = planner.plan(std::slice::from_ref(&b), &[back("a")], NOW);
    assert_eq!((granted(&swap), swap.taken_over.len()), (vec![true], 0), "what another gives back");
    let none = planner.plan(&[b], &[], NOW);
    assert!(none.update.is_none() && matches!(none.takes[0], InlineAnswer::Refused(_)), "{none:?}");
}

#[test]
fn nothing_is_taken_over_while_slots_are_free() {
    let item = with_dead(&[], &[("x", 1)]);
    let mut roomy = item;
    roomy.set_number(CAPACITY, 2);
    roomy.add_tokens(amount(1));
    assert!(plan(&roomy, &[("b", 1)], &[]).taken_over.is_empty());
    let both = plan(&roomy, &[("b", 1), ("c", 1)], &[]);
    assert_eq!((granted(&both), both.taken_over.len()), (vec![true, true], 1));
}

#[test]
fn a_lease_that_was_renewed_or_is_the_callers_own_is_not_taken_over() {
    let mut item = with_dead(&[], &[("x", 1), ("y", 1)]);
    let own = plan(&item, &[("x", 1), ("b", 2)], &[]);
    assert_eq!((own.takes[0], own.update.is_none()), (InlineAnswer::Held, true), "{own:?}");
    let over = plan(&item, &[("b", 2)], &[]);
    item.put_lease("y", entry(1, 60));
    assert!(!item.apply(&over.update.unwrap()), "its holder renewed it");
}

/// Its first try was applied and its reply lost; the row then shows another lease that has ended, and room
/// for a second.
#[test]
fn a_take_over_never_gives_one_lease_two_slots() {
    let mut item = with_dead(&[], &[("x", 1)]);
    let over = plan(&item, &[("b", 1)], &[]);
    apply(&mut item, &over);
    item.put_lease("x", entry(1, -60));
    assert!(!item.apply(&over.update.unwrap()));
}

#[test]
fn what_is_beyond_one_write_comes_later_and_in_order() {
    let ids: Vec<String> = (0..50).map(|n| format!("{n:02}")).collect();
    let held: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut item = holding(100, &held);
    let new: Vec<String> = (0..50).map(|n| format!("new{n:02}")).collect();
    let takes: Vec<_> = new.iter().map(|id| (id.as_str(), 1)).collect();
    let first = plan(&item, &takes, &held);
    assert!(first.releases.iter().all(|answer| *answer == ReleaseAnswer::GivenBack));
    let now = first.takes.iter().take_while(|answer| **answer == InlineAnswer::Granted).count();
    assert_eq!(now, MOST_CHANGES - held.len());
    assert!(first.takes[now..].iter().all(|answer| *answer == InlineAnswer::Later));
    apply(&mut item, &first);
    let rest = plan(&item, &takes[now..], &[]);
    assert!(granted(&rest).into_iter().all(|granted| granted));
    apply(&mut item, &rest);
    assert!(item.0.contains_key(LEASES));
}

#[test]
fn a_write_that_takes_over_keeps_a_place_for_the_take() {
    let ids: Vec<String> = (0..MOST_CHANGES).map(|n| n.to_string()).collect();
    let dead: Vec<_> = ids.iter().map(|id| (id.as_str(), 1)).collect();
    let mut item = with_dead(&[], &dead);
    let over = plan(&item, &[("a", 1), ("b", 1)], &[]);
    assert_eq!((over.taken_over.len(), over.takes[1]), (MOST_CHANGES - 1, InlineAnswer::Later));
    apply(&mut item, &over);
}

/// Another client gave a slot back twice: the bucket is full, and yet one is held.
#[test]
fn slots_that_were_minted_are_not_granted() {
    let mut item = holding(2, &["a"]);
    item.add_tokens(amount(1));
    let swap = plan(&item, &[("b", 1), ("c", 1), ("d", 1)], &["a"]);
    assert_eq!(granted(&swap), [true, true, false]);
    assert!(item.apply(&swap.update.unwrap()));
    assert_eq!(item.bucket().inline().unwrap().len(), 2);
}

/// Nobody knows when a holder releases; when the next lease ends is known.
#[test]
fn a_refusal_waits_no_longer_than_until_the_next_lease_has_ended() {
    let mut item = holding(1, &["a"]);
    let wait = |item: &Item| match plan(item, &[("b", 1)], &[]).takes[0] {
        InlineAnswer::Refused(refusal) => refusal.wait,
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(&item), Duration::from_secs(1));
    item.put_lease("a", entry(1, -2));
    assert_eq!(wait(&item), Duration::from_micros(1));
}
