//! Shares of slots: what is waited for is not left free and not lent, and the floor is never lent.

use sluice_history::Ending::{Died, Released};
use sluice_history::{Event, Kind, Limit, Paused, Share, Verdict, Violation};

use crate::story::{MS, Story, TOKEN};

const SLOTS: &str = "v#slots";

/// Six slots, of which search has three and keeps one, and two are for batch; from `ms` on.
fn split(story: Story, ms: i64) -> Story {
    let share = |name, slots: i64, floor: i64| Share::new(name, slots * TOKEN, 0).with_floor(floor * TOKEN);
    let limit = Limit::new(SLOTS, Kind::Concurrent, 6 * TOKEN, 0, ms * MS);
    let mut story = story;
    story.0.push(Event::Limit(limit.with_shares(vec![share("search", 3, 1), share("batch", 2, 0)])));
    story
}

fn bucket() -> Story {
    split(Story::default(), 0)
}

/// Requests take half a second at most.
fn slow() -> Story {
    let header = sluice_history::Header { request_micros: 500 * MS, ..sluice_history::Header::new(0) };
    split(Story(vec![Event::History(header)]), 0)
}

/// A call that asked at `asked_ms`, was willing to wait, and began at `ms`, in a slot of `line`.
fn waited(story: Story, id: &str, (share, line): (&str, &str), asked_ms: i64, ms: i64) -> Story {
    story.granted(id, SLOTS, ms, |granted| {
        (granted.asked_at_micros, granted.booked) = (asked_ms * MS, true);
        (granted.share, granted.paid_from) = (Some(share.to_owned()), Some(line.to_owned()));
    })
}

/// A call that asked and began at `ms`.
fn took(story: Story, id: &str, (share, line): (&str, &str), ms: i64) -> Story {
    let mut story = waited(story, id, (share, line), ms, ms);
    if let Some(Event::Granted(granted)) = story.0.last_mut() {
        granted.booked = false;
    }
    story
}

fn ended(story: Story, id: &str, ms: i64) -> Story {
    story.released(id, SLOTS, ms, Released)
}

/// All slots of search are in use from 10 s on: `s1` and `s2` are its own, `b` is lent to batch.
fn full(story: Story) -> Story {
    let story = took(story, "b", ("batch", "search"), 9_000);
    let story = took(story, "s1", ("search", "search"), 10_000);
    took(story, "s2", ("search", "search"), 10_000)
}

fn left_free(verdict: &Verdict, share: &str) -> Option<i64> {
    let of = verdict.buckets[0].shares.iter().find(|figures| figures.share == share).unwrap();
    of.left_free.map(|window| (window.to_micros - window.from_micros) / MS)
}

#[test]
fn a_share_that_has_what_it_lent_as_soon_as_it_comes_back_passes() {
    let story = ended(full(bucket()), "b", 60_000);
    let verdict = waited(story, "s3", ("search", "search"), 11_000, 60_300).holds();
    let of = verdict.buckets[0].shares.iter().find(|of| of.share == "batch").unwrap();
    assert_eq!((of.grants, of.granted, of.borrowed), (1, 1_000_000, 1_000_000));
    // Nobody takes a slot away from a call, however long it lasts.
    assert_eq!(left_free(&verdict, "search"), Some(300));
}

#[test]
fn a_slot_that_came_back_and_was_left_free_while_a_caller_waited_is_named() {
    let story = ended(full(bucket()), "b", 20_000);
    let late = |ms| waited(ended(full(bucket()), "b", 20_000), "s3", ("search", "search"), 11_000, ms);
    assert_eq!(left_free(&late(24_000).holds(), "search"), Some(4_000));
    assert_eq!(
        late(24_001).told(),
        "v#slots: a caller of search waited in 20.000000 to 24.001000 (4.001 s), and a slot of search was free; at \
         most 4 s are allowed"
    );
    // Who was granted another share's slot, or nothing, waited too.
    let elsewhere = waited(story, "s3", ("search", "common"), 11_000, 30_000);
    assert!(matches!(elsewhere.check().violations[..], [Violation::SlotLeftFree { .. }]));
    let mut story = ended(full(bucket()), "b", 20_000).left("p", &[SLOTS], 11_000, 30_000);
    let Some(Event::Refused(refused)) = story.0.last_mut() else { panic!() };
    refused.share = Some("search".into());
    assert!(matches!(story.check().violations[..], [Violation::SlotLeftFree { .. }]));
}

#[test]
fn a_share_that_holds_what_it_was_promised_is_owed_nothing() {
    let story = took(took(bucket(), "s1", ("search", "search"), 1_000), "s2", ("search", "search"), 1_000);
    let story = took(story, "s3", ("search", "search"), 1_000);
    // Slots of others are free all the time: that they are lent is not promised.
    let story = ended(waited(story, "s4", ("search", "search"), 2_000, 90_000), "s1", 89_900);
    assert_eq!(left_free(&story.holds(), "search"), Some(100));
}

#[test]
fn a_slot_that_is_lent_while_a_caller_waits_is_named() {
    // Two are lent, one comes back at 20 s, and batch has it again.
    let story = |asked_ms| {
        let story = ended(full(bucket()), "b", 20_000);
        let story = took(story, "b2", ("batch", "search"), 20_000);
        waited(ended(story, "s1", 25_000), "s3", ("search", "search"), asked_ms, 25_000)
    };
    let told: Vec<_> = story(11_000).check().violations.iter().map(ToString::to_string).collect();
    let lent = "v#slots: b2, granted at 20.000000, borrowed a slot of search, and a caller of search had waited for \
                one since 11.000000";
    assert!(told.iter().any(|told| told == lent), "{told:?}");
    let is_waited_for = |violation: &Violation| matches!(violation, Violation::LentWhileWaited { .. });
    // It takes four seconds at most until all know that it waits.
    assert!(story(16_000).check().violations.iter().any(is_waited_for));
    assert!(!story(16_001).check().violations.iter().any(is_waited_for));
    // A caller of the share itself may have the slot, and one that borrowed before may keep it.
    let own = took(ended(full(bucket()), "b", 20_000), "s4", ("search", "search"), 20_000);
    waited(ended(own, "s1", 25_000), "s3", ("search", "search"), 11_000, 25_000).holds();
}

/// It was taken at some time between its asking and its answer, and the caller of the share waited after
/// that.
#[test]
fn a_borrower_that_had_waited_itself_borrowed_within_a_request_of_its_answer() {
    let story = |asked_ms| {
        let story = waited(ended(full(slow()), "b", 19_000), "b2", ("batch", "search"), 12_000, 20_000);
        waited(ended(story, "s1", 26_000), "s3", ("search", "search"), asked_ms, 26_000)
    };
    let is_waited_for = |violation: &Violation| matches!(violation, Violation::LentWhileWaited { .. });
    // Half a second for its request, and half a second for that of the caller that waits.
    assert!(story(15_000).check().violations.iter().any(is_waited_for));
    assert!(!story(15_001).check().violations.iter().any(is_waited_for));
}

#[test]
fn a_floor_that_is_lent_is_named() {
    let lent = |floor_of: &str| {
        let story = took(took(bucket(), "a", ("batch", floor_of), 10_000), "b", ("batch", floor_of), 10_500);
        took(ended(story, "a", 30_000), "c", ("batch", floor_of), 20_000)
    };
    assert_eq!(
        lent("search").told(),
        "v#slots: c, granted at 20.000000, borrowed a slot of search and left at most 0 free; 1 must stay free"
    );
    // What its own callers hold is not free, and they may take the floor.
    let own = took(took(bucket(), "a", ("search", "search"), 10_000), "b", ("search", "search"), 10_500);
    took(own, "c", ("search", "search"), 20_000).holds();
    let own = took(took(bucket(), "a", ("search", "search"), 10_000), "b", ("search", "search"), 10_500);
    assert!(matches!(
        took(own, "c", ("batch", "search"), 20_000).check().violations[..],
        [Violation::FloorLent { .. }]
    ));
    // One that was answered after the borrower had asked may have been taken after it.
    let own = took(took(bucket(), "a", ("search", "search"), 10_000), "b", ("search", "search"), 20_000);
    waited(own, "c", ("batch", "search"), 20_000, 20_010).holds();
    // Batch keeps nothing.
    let all = |share| took(took(bucket(), "a", (share, "batch"), 10_000), "b", (share, "batch"), 10_500);
    all("search").holds();
}

#[test]
fn a_slot_that_its_holder_never_gave_back_counts_until_a_grant_shows_that_it_came_back() {
    // `b` is lent, and its holder dies; its lease ends at 20 s, and nobody says when a sweep came by.
    let died = || {
        let mut story = full(bucket()).released("b", SLOTS, 12_000, Died);
        for event in &mut story.0 {
            if let Event::Granted(granted) = event
                && granted.id == "b"
            {
                granted.ends_at_micros = Some(20_000 * MS);
            }
        }
        story
    };
    waited(ended(died(), "s1", 90_000), "s3", ("search", "search"), 11_000, 90_000).holds();
    // Another of the share was granted at 30 s, beside the two that are held: the slot is back.
    let back = || ended(took(died(), "s4", ("search", "search"), 30_000), "s4", 31_000);
    assert!(matches!(
        waited(back(), "s3", ("search", "search"), 31_000, 40_000).check().violations[..],
        [Violation::SlotLeftFree { .. }]
    ));
    // If one of them had ended by then, the grant may have had its slot.
    let ended_before = ended(died(), "s1", 29_000);
    let story = ended(took(ended_before, "s4", ("search", "search"), 30_000), "s4", 39_000);
    waited(story, "s3", ("search", "search"), 31_000, 39_000).holds();
}

#[test]
fn nothing_is_judged_in_a_pause_nor_until_all_know_of_a_change() {
    let late = |story: Story| waited(ended(story, "b", 20_000), "s3", ("search", "search"), 11_000, 30_000);
    let paused = |from_ms: i64, to_ms: i64| {
        let (dimension, from_micros, to_micros) = (SLOTS.to_owned(), from_ms * MS, to_ms * MS);
        let mut story = late(full(bucket()));
        story.0.push(Event::Paused(Paused { dimension, from_micros, to_micros }));
        story
    };
    paused(19_000, 26_000).holds();
    assert!(!paused(19_000, 25_000).check().holds(), "five seconds later it is still free");
    let changed = |ms: i64| {
        let limit = Limit::new(SLOTS, Kind::Concurrent, 6 * TOKEN, 0, 0);
        let mut story = Story::default();
        story.0.push(Event::Limit(limit.with_shares(vec![Share::new("search", 3 * TOKEN, 0)])));
        late(full(split(story, ms)))
    };
    changed(16_500).holds();
    assert!(!changed(8_000).check().holds(), "from 18 s on all know");
    // A bucket without shares is read once a minute.
    late(full(split(Story::default().slots(SLOTS, 6, -100_000), -33_000))).holds();
    assert!(!late(full(split(Story::default().slots(SLOTS, 6, -100_000), -36_000))).check().holds());
}

#[test]
fn a_call_over_several_buckets_is_owed_no_slot_and_may_hold_one() {
    let several = |story: Story, id: &str, asked_ms, ms| {
        let story = waited(story, id, ("search", "search"), asked_ms, ms);
        story.granted(id, "v#rpm", ms, |granted| {
            (granted.asked_at_micros, granted.booked) = (asked_ms * MS, true);
        })
    };
    let begun = || Story::default().rate("v#rpm", 100, 100, 0);
    let story = ended(full(split(begun(), 0)), "b", 20_000);
    several(story, "s3", 11_000, 30_000).holds();
    // It may have held the slot that came back, for as long as it waited for tokens.
    let story = several(ended(full(split(begun(), 0)), "b", 20_000), "s3", 11_000, 30_000);
    waited(ended(story, "s1", 30_000), "s4", ("search", "search"), 11_000, 30_000).holds();
}

#[test]
fn a_history_that_does_not_say_the_lines_is_not_judged_line_by_line() {
    let mut story = waited(ended(full(bucket()), "b", 20_000), "s3", ("search", "search"), 11_000, 90_000);
    assert!(!story.check().holds());
    for event in &mut story.0 {
        if let Event::Granted(granted) = event {
            granted.paid_from = None;
        }
    }
    assert_eq!(left_free(&story.holds(), "search"), None);
}
