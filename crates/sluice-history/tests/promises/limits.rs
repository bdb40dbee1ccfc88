//! Limits that change.

use sluice_history::Event;

use crate::story::{MS, Story};

fn confirmed_ms(mut story: Story, ms: i64) -> Story {
    if let Some(Event::Limit(limit)) = story.0.last_mut() {
        *limit = limit.clone().by(ms * MS);
    }
    story
}

#[test]
fn a_raised_rate_counts_from_the_change_on() {
    let story = |at| {
        let story = Story::default().rate("v#rpm", 1, 1, 0).rate("v#rpm", 1, 10, 10_000);
        story.grant("a", "v#rpm", 10_000).grant("b", "v#rpm", at)
    };
    story(10_100).holds();
    assert!(story(10_099).told().contains("at most 1.99 are allowed"));
    let early = Story::default().rate("v#rpm", 1, 1, 0).rate("v#rpm", 1, 10, 10_000);
    assert!(early.grant("a", "v#rpm", 9_000).grant("b", "v#rpm", 9_100).told().contains("at most 1.1 are"));
}

#[test]
fn a_lowered_rate_counts_from_its_confirmation_on() {
    let story = |at: i64| {
        let story = Story::default().rate("v#rpm", 1, 10, 0).rate("v#rpm", 1, 1, 10_000);
        confirmed_ms(story, 10_200).grant("a", "v#rpm", at).grant("b", "v#rpm", at + 100)
    };
    story(10_100).holds();
    assert!(story(10_201).told().contains("at most 1.1 are allowed"));
}

#[test]
fn starts_that_were_booked_before_a_change_keep_their_pace() {
    let queue = |asked: i64| {
        let story = Story::default().rate("v#rpm", 1, 10, 0).rate("v#rpm", 1, 1, 10_000);
        (0..20).fold(story, |story, n| story.booked(&format!("a{n}"), "v#rpm", asked, 10_001 + n * 100))
    };
    queue(9_999).holds();
    assert!(queue(10_001).told().contains("20 granted"));
}

#[test]
fn a_lowered_capacity_still_counts_in_windows_that_began_before_it() {
    let story = |first| {
        let story = Story::default().rate("v#rpm", 3, 1, 0).rate("v#rpm", 1, 1, 10_000);
        let story = story.grant("a", "v#rpm", first).grant("b", "v#rpm", first);
        story.grant("c", "v#rpm", first.max(10_001))
    };
    story(9_999).holds();
    let verdict = story(10_001).check();
    assert!(verdict.violations[0].to_string().contains("3 granted"), "{:?}", verdict.violations);
}

#[test]
fn after_a_resize_to_less_holders_may_hold_on_and_a_new_one_must_find_room() {
    let story = |released| {
        let story = Story::default().slots("v#slots", 3, 0).slots("v#slots", 1, 10_000);
        let story = ["a", "b", "c"].into_iter().fold(story, |story, id| story.grant(id, "v#slots", 9_000));
        let end = sluice_history::Ending::Released;
        let story =
            ["a", "b"].into_iter().fold(story, |story, id| story.released(id, "v#slots", 11_000, end));
        story.released("c", "v#slots", released, end).grant("d", "v#slots", 12_000)
    };
    story(12_000).holds();
    assert!(story(12_001).told().starts_with("v#slots: 2 held at once in 12.000000 to 12.001000"));
}

#[test]
fn a_limit_that_is_told_again_as_it_was_changes_nothing() {
    let story = Story::default().rate("v#rpm", 1, 1, 0).rate("v#rpm", 1, 1, 10_000);
    assert!(story.grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_000).told().contains("at most 1 are"));
}
