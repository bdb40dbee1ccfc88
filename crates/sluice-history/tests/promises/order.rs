//! Bookings: who asks later does not start earlier.

use sluice_history::{Ending, Violation};

use crate::story::{MS, Story};

/// One at once and one a second; `a` has the first token, `b` has booked the next and `c` the one after it.
fn queue() -> Story {
    let story = Story::default().rate("v#rpm", 1, 1, 0).grant("a", "v#rpm", 10_000);
    story.booked("b", "v#rpm", 10_010, 11_000).booked("c", "v#rpm", 10_020, 12_000)
}

#[test]
fn starts_in_the_order_of_the_asking_pass() {
    queue().booked("d", "v#rpm", 10_030, 13_000).holds();
}

#[test]
fn a_later_caller_that_starts_earlier_is_named_with_whom_it_passed() {
    let story = queue().booked("e", "v#rpm", 10_025, 14_000).booked("d", "v#rpm", 10_030, 13_000);
    assert_eq!(
        story.told(),
        "v#rpm: d, asked for at 10.030000, starts at 13.000000, before e, which was granted at 10.025000 and starts at 14.000000"
    );
}

#[test]
fn an_immediate_grant_past_a_queue_is_named() {
    let story = Story::default().rate("v#rpm", 2, 1, 0).booked("b", "v#rpm", 10_000, 12_000);
    assert!(matches!(
        story.grant("c", "v#rpm", 10_100).check().violations[..],
        [Violation::Overtaken { .. }]
    ));
}

#[test]
fn callers_whose_asks_overlap_may_be_served_in_either_order() {
    let story = queue().booked("e", "v#rpm", 10_025, 14_000);
    let story = story.granted("d", "v#rpm", 10_030, |d| {
        (d.asked_at_micros, d.start_at_micros) = (10_025 * MS, 13_000 * MS);
    });
    story.holds();
}

#[test]
fn a_start_that_was_left_may_be_taken_over_by_one_caller_of_the_same_process() {
    // b leaves its start; another caller of the process takes it.
    let left = || queue().released("b", "v#rpm", 10_030, Ending::GivenBackUnused);
    left().booked("b2", "v#rpm", 10_040, 11_000).holds();
    assert!(left().booked("d", "v#rpm", 10_040, 11_000).told().contains("d, asked for"));
    // A second one would need another start that was left, whatever the bound says.
    let twice = left().booked("b2", "v#rpm", 10_040, 11_000).booked("b3", "v#rpm", 10_050, 11_500).check();
    assert!(
        twice
            .violations
            .iter()
            .any(|v| matches!(v, Violation::Overtaken { later_id, .. } if later_id == "b3"))
    );
}

#[test]
fn a_caller_that_left_without_a_grant_may_have_left_a_start() {
    let story = |process, names: &[&str], at| {
        let story = Story::default()
            .rate("v#rpm", 1, 1, 0)
            .grant("a", "v#rpm", 10_000)
            .left(process, names, 10_005, at);
        story.booked("c", "v#rpm", 10_020, 12_000).booked("d", "v#rpm", 10_040, 11_000)
    };
    story("d", &["v#rpm"], 10_030).holds();
    story("d", &["v#rpm", "v#tpm"], 10_050).holds();
    assert!(story("d", &["v#rpm"], 10_050).told().contains("d, asked for"), "it had not left yet");
    assert!(
        story("x", &["v#rpm"], 10_030).told().contains("d, asked for"),
        "a process takes over its own alone"
    );
    assert!(story("d", &["v#tpm"], 10_030).told().contains("d, asked for"), "another bucket's");
}

#[test]
fn a_change_of_the_limit_may_bring_starts_forward() {
    let story = |changed| {
        let story = queue().rate("v#rpm", 2, 10, changed);
        story.booked("d", "v#rpm", 10_040, 11_900)
    };
    story(10_030).holds();
    assert!(story(10_050).told().contains("d, asked for"));
}

#[test]
fn the_start_of_a_grant_over_several_buckets_may_be_that_of_another() {
    let story = Story::default().rate("v#rpm", 1, 1, 0).rate("v#tpm", 1, 1, 0);
    let story = story.booked("a", "v#rpm", 10_000, 15_000).booked("a", "v#tpm", 10_000, 15_000);
    story.booked("b", "v#rpm", 10_010, 11_000).holds();
}

#[test]
fn clocks_may_turn_the_order_by_twice_their_error() {
    let story = |error| {
        let story = Story::default().errors(error, 0).rate("v#rpm", 10, 1, 0);
        story.booked("a", "v#rpm", 10_000, 10_900).booked("b", "v#rpm", 10_100, 10_500)
    };
    story(200).holds();
    assert!(story(199).told().contains("b, asked for"));
}

#[test]
fn what_went_back_meanwhile_brings_a_later_caller_forward_by_as_much() {
    // One a second: half a token is half a second.
    let is_passed = |(from, by), start| {
        let story = queue().returned("v#rpm", 500, from, by).booked("d", "v#rpm", 10_030, start);
        story.check().violations.iter().any(|violation| matches!(violation, Violation::Overtaken { .. }))
    };
    assert!(!is_passed((10_025, 10_028), 11_500));
    assert!(is_passed((10_025, 10_028), 11_499));
    // It was there before the first was asked for, or was sent after the later one had its answer.
    assert!(is_passed((10_015, 10_019), 11_500));
    assert!(is_passed((10_031, 10_035), 11_500));
}
