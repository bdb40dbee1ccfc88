//! Concurrency buckets: never more live grants than capacity.

use sluice_history::Ending::{Died, LeaseGone, Released};

use crate::story::{MS, Story};

/// Two slots, both taken at 10 s by a and b.
fn taken() -> Story {
    Story::default().slots("v#slots", 2, 0).grant("a", "v#slots", 10_000).grant("b", "v#slots", 10_000)
}

#[test]
fn a_slot_passes_on_at_the_moment_of_its_release() {
    let verdict = taken().released("a", "v#slots", 11_000, Released).grant("c", "v#slots", 11_000).holds();
    let peak = verdict.buckets[0].peak.clone().unwrap();
    assert_eq!((peak.granted, peak.allowed, peak.first_id.as_str()), (2_000_000, 2_000_000, "b"));
}

#[test]
fn a_slot_that_passes_on_before_its_release_is_named_with_its_window() {
    let story = taken().grant("c", "v#slots", 10_900).released("a", "v#slots", 11_000, Released);
    assert_eq!(
        story.told(),
        "v#slots: 3 held at once in 10.900000 to 11.000000 (0.1 s, from c to c); at most 2 are allowed"
    );
}

#[test]
fn one_stretch_of_too_much_is_one_violation_with_its_peak() {
    let story = taken().grant("c", "v#slots", 10_100).grant("d", "v#slots", 10_200);
    let story = story.released("a", "v#slots", 10_300, Released).released("b", "v#slots", 10_400, Released);
    assert_eq!(
        story.told(),
        "v#slots: 4 held at once in 10.100000 to 10.400000 (0.3 s, from c to d); at most 2 are allowed"
    );
}

#[test]
fn a_lease_that_has_ended_makes_room_whether_or_not_it_is_released() {
    let story = |ends: i64| {
        let story = Story::default().errors(100, 0).slots("v#slots", 1, 0);
        story
            .granted("a", "v#slots", 10_000, |a| a.ends_at_micros = Some(ends * MS))
            .grant("b", "v#slots", 11_000)
    };
    story(11_200).holds();
    story(11_200).released("a", "v#slots", 12_000, LeaseGone).holds();
    // Others may take it for ended by their own clock, up to two errors earlier.
    assert!(story(11_201).told().contains("2 held at once"));
}

#[test]
fn a_killed_holder_keeps_its_slot_until_its_lease_ends() {
    let story = |at| {
        let story = Story::default().slots("v#slots", 1, 0);
        let story = story.granted("a", "v#slots", 10_000, |a| a.ends_at_micros = Some(13_000 * MS));
        story.released("a", "v#slots", 10_500, Died).grant("b", "v#slots", at)
    };
    story(13_000).holds();
    assert!(story(12_999).told().contains("12.999000 to 13.000000"));
}

#[test]
fn stamps_of_several_clocks_are_granted_their_error() {
    let story = |stamp| {
        let story = Story::default().errors(0, stamp).slots("v#slots", 1, 0).grant("a", "v#slots", 10_000);
        story.grant("b", "v#slots", 10_900).released("a", "v#slots", 11_000, Released)
    };
    story(50).holds();
    assert!(story(49).told().contains("2 held at once"));
}

#[test]
fn a_grant_over_several_buckets_is_one_and_counts_in_each() {
    let story = |second| {
        let story = Story::default().slots("v#slots", 1, 0).rate("v#rpm", 1, 1, 0);
        let story = story.grant("a", "v#slots", 10_000).grant("a", "v#rpm", 10_000);
        let story = story.released("a", "v#slots", 10_100, Released);
        story.grant("b", "v#slots", 10_200).grant("b", "v#rpm", second)
    };
    assert_eq!(story(11_000).holds().grants, 2);
    assert!(story(10_200).told().starts_with("v#rpm: 2 granted"));
}

#[test]
fn a_grant_that_was_never_released_is_found_where_each_must_be() {
    let story =
        Story::default().slots("v#x", 3, 0).grant("a", "v#x", 1).grant("b", "v#x", 2).grant("c", "v#x", 3);
    let story = story.released("a", "v#x", 5, Released).released("c", "v#x", 6, Died);
    story.holds();
    let verdict = story.check_all_released();
    let told: Vec<_> = verdict.violations.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["v#x: 2 of 3 grants were never released; the first is b, granted at 0.002000"]);
    let slot = Story::default().slots("v#x", 1, 0).grant("a", "v#x", 1).released("a", "v#x", 2, LeaseGone);
    assert!(slot.check_all_released().holds());
}

/// Four slots, of which search has two.
fn shared(lines: [&str; 3]) -> Story {
    let mut story = Story::default().shared_slots("v#slots", 4, &[("search", 2)]);
    for (id, line) in ["a", "b", "c"].into_iter().zip(lines) {
        story = story.granted(id, "v#slots", 10_000, |granted| granted.paid_from = Some(line.to_owned()));
    }
    story
}

#[test]
fn a_line_that_has_more_slots_in_use_than_it_has_is_named_though_the_bucket_does_not() {
    shared(["search", "search", "common"]).holds();
    let told = shared(["search", "search", "search"]).told();
    assert!(told.starts_with("v#slots: 3 slots of search held at once in 10.000000 to"), "{told}");
    assert!(told.ends_with("at most 2 are allowed"), "{told}");
    let mut story = shared(["search", "search", "search"]);
    for event in &mut story.0 {
        if let sluice_history::Event::Granted(granted) = event {
            granted.paid_from = None;
        }
    }
    story.holds();
}
