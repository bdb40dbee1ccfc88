//! Buckets with shares: each gets its guarantee while it waits, and no line grants more than it has.

use sluice_history::{Event, Header, Verdict, Violation};

use crate::story::{MS, Story};

/// Ten a second; search has five, batch two, and the others three.
fn bucket() -> Story {
    Story::default().shared("v#rpm", 10, &[("search", 5), ("batch", 2)], 0)
}

/// Callers of `share`, each of whom waits from the call before its own until its start: one in `pace_ms`.
fn waiting(story: Story, share: &str, line: &str, (from_ms, pace_ms): (i64, i64), calls: i64) -> Story {
    let call = |n: i64| from_ms + n * pace_ms;
    (1..=calls).fold(story, |story, n| {
        story.paid(&format!("{share}{from_ms}.{n}"), (share, line), call(n - 1), call(n))
    })
}

fn figures(verdict: &Verdict, share: &str) -> (u64, i128, i128, Option<(i128, i128)>) {
    let of = verdict.buckets[0].shares.iter().find(|figures| figures.share == share).unwrap();
    (of.grants, of.granted, of.borrowed, of.worst.map(|worst| (worst.granted, worst.guaranteed)))
}

#[test]
fn shares_that_wait_and_get_what_they_were_promised_pass() {
    let story = waiting(bucket(), "search", "search", (10_000, 200), 100);
    let verdict = waiting(story, "batch", "batch", (10_000, 500), 60).holds();
    let (grants, granted, borrowed, worst) = figures(&verdict, "search");
    assert_eq!((grants, granted, borrowed), (100, 100_000_000, 0));
    // The call at the end of a window is not in it.
    assert_eq!(worst, Some((19_000_000, 20_000_000)));
    assert_eq!(figures(&verdict, "common"), (0, 0, 0, None));
}

#[test]
fn a_share_that_waits_and_gets_half_of_its_guarantee_is_named_with_the_window() {
    let story = waiting(bucket(), "search", "search", (10_000, 400), 50);
    assert_eq!(
        story.told(),
        "v#rpm: search got 49 in 10.000000 to 30.000000 (20 s), and a caller of it waited all the time; 100 are \
         guaranteed, at least 98.999988 must be granted"
    );
    let worst =
        story.check().buckets[0].shares.iter().find(|of| of.share == "search").unwrap().worst.unwrap();
    assert!(worst.granted * 2 <= worst.guaranteed, "{worst:?}");
}

#[test]
fn what_a_share_borrows_counts_for_it_and_is_told() {
    let story = waiting(bucket(), "batch", "batch", (10_000, 500), 1);
    let story = waiting(story, "batch", "search", (10_500, 500), 20);
    let verdict = story.holds();
    assert_eq!(figures(&verdict, "batch").2, 20_000_000);
}

#[test]
fn a_share_is_owed_nothing_while_nobody_waits_or_while_it_is_paused() {
    let calls = |story: Story| {
        waiting(waiting(story, "search", "search", (10_000, 200), 30), "search", "search", (40_000, 200), 30)
    };
    calls(bucket()).holds();
    let starved = |story: Story| story.paid("s", ("search", "search"), 10_000, 20_000);
    assert!(!starved(bucket()).check().holds());
    starved(bucket().paused(10_000, 19_800)).holds();
    assert!(!starved(bucket().paused(10_000, 19_000)).check().holds(), "a second is five calls");
}

#[test]
fn the_time_of_a_request_and_the_error_of_clocks_are_allowed_once() {
    let header = |request_ms: i64| {
        let header = Header { request_micros: request_ms * MS, ..Header::new(0) };
        let story = Story(vec![Event::History(header)]).shared("v#rpm", 10, &[("search", 5)], 0);
        waiting(story.paid("s", ("search", "search"), 9_500, 10_000), "search", "search", (10_000, 200), 30)
    };
    assert!(!header(290).check().holds());
    header(300).holds();
    let clocks = Story::default().errors(150, 0).shared("v#rpm", 10, &[("search", 5)], 0);
    clocks.paid("s", ("search", "search"), 9_500, 10_000).holds();
}

#[test]
fn a_share_is_judged_by_what_it_is_promised_at_the_time() {
    // Two a second from 20 s on, and it is removed at 40 s.
    let changed =
        |story: Story| story.shared("v#rpm", 10, &[("search", 2)], 20_000).shared("v#rpm", 10, &[], 40_000);
    let story = waiting(changed(bucket()), "search", "search", (10_000, 200), 50);
    waiting(story, "search", "search", (20_000, 500), 40).holds();
    let story = waiting(changed(bucket()), "search", "search", (10_000, 500), 20);
    assert!(!story.check().holds(), "it had five a second until then");
    // What names a share that is not there is of the common line, which has the rest.
    let story = waiting(changed(bucket()), "search", "common", (50_000, 100), 50);
    let verdict = story.holds();
    assert_eq!(figures(&verdict, "common").0, 50);
    assert!(!waiting(changed(bucket()), "search", "common", (50_000, 200), 50).check().holds());
}

/// A start stays where it was booked, however much flows in later.
#[test]
fn a_caller_that_booked_before_its_guarantee_rose_is_not_owed_the_larger_one() {
    let raised = || {
        let bucket = Story::default().shared("v#rpm", 10, &[("search", 1)], 0);
        bucket.shared("v#rpm", 10, &[("search", 5)], 11_000)
    };
    raised().paid("s", ("search", "search"), 10_000, 18_000).holds();
    assert!(!raised().paid("s", ("search", "search"), 12_000, 18_000).check().holds());
}

/// They stay where they are, and whoever asks later stands behind them.
#[test]
fn starts_that_were_booked_at_the_rate_before_are_paid_first() {
    let booked = || {
        let bucket = Story::default().shared("v#rpm", 10, &[("search", 2)], 0);
        let bucket = bucket.shared("v#rpm", 10, &[("search", 1)], 11_000);
        let start = |n: i64| 10_000 + n * 500;
        (1..=20).fold(bucket, |s, n| s.paid(&format!("b{n}"), ("search", "search"), 10_000, start(n)))
    };
    booked().paid("s", ("search", "search"), 12_000, 30_000).holds();
    assert!(!booked().paid("s", ("search", "search"), 30_500, 40_000).check().holds());
}

#[test]
fn callers_that_leave_are_owed_too_and_are_worth_a_call() {
    let leaves = |from_ms: i64, ms: i64| {
        let mut story = Story::default().shared("v#rpm", 10, &[], 0).left("s", &["v#rpm"], from_ms, ms);
        story = story.shared("v#rpm", 10, &[("search", 5)], 1);
        story.paid("p", ("common", "common"), 8_000, 8_000)
    };
    assert!(!leaves(10_000, 11_000).check().holds(), "five of the common line's are missing");
    leaves(10_000, 10_200).holds();
}

#[test]
fn a_line_that_grants_more_than_it_has_is_named_though_the_bucket_does_not() {
    let seven =
        |line: &str| (0..7).fold(bucket(), |s, n| s.paid(&format!("s{n}"), ("search", line), 10_000, 10_000));
    let verdict = seven("search").check();
    let [Violation::LineExceeded { share, window, .. }] = &verdict.violations[..] else {
        panic!("{verdict:?}")
    };
    assert_eq!((share.as_str(), window.granted, window.allowed), ("search", 7_000_000, 5_000_000));
    // A history that does not tell the line is judged by the bucket alone.
    let mut story = seven("search");
    for event in &mut story.0 {
        if let Event::Granted(granted) = event {
            granted.paid_from = None;
        }
    }
    story.holds();
}

/// A share that goes leaves the common line what it had: starts that are booked there are then no debt any
/// more.
#[test]
fn starts_that_were_booked_before_the_shares_changed_are_judged_with_the_bucket_alone() {
    let book = |story: Story, id: String, (asked_ms, start_ms): (i64, i64)| {
        story.granted(&id, "v#rpm", asked_ms, |granted| {
            (granted.start_at_micros, granted.booked) = (start_ms * MS, true);
            (granted.share, granted.paid_from) = (None, Some("common".into()));
        })
    };
    // Five at once, five a second, and two seconds booked ahead.
    let booked = || {
        let begun = Story::default().shared("v#rpm", 10, &[("batch", 5)], 0).paused(0, 60_000);
        let full = (0..5).fold(begun, |s, n| s.paid(&format!("a{n}"), ("common", "common"), 1_000, 1_000));
        (0..10).fold(full, |s, n| book(s, format!("b{n}"), (1_000, 1_200 + n * 200)))
    };
    let again = |story: Story| (0..4).fold(story, |s, n| book(s, format!("c{n}"), (1_500, 3_010 + n)));
    let is_of_line = |violation: &Violation| matches!(violation, Violation::LineExceeded { .. });
    again(booked().shared("v#rpm", 10, &[("search", 5)], 1_300)).holds();
    assert!(again(booked()).check().violations.iter().any(is_of_line), "nothing changed");
    let more = (0..9).fold(booked().shared("v#rpm", 10, &[("search", 5)], 1_300), |s, n| {
        book(s, format!("d{n}"), (1_500, 3_010 + n))
    });
    assert!(more.check().violations.iter().any(is_of_line), "of what was booked since, the line has no more");
}

#[test]
fn starts_are_in_order_on_each_line_and_not_across_lines() {
    let booked = |story: Story, id: &str, line: &str, ms: i64, start_ms: i64| {
        story.granted(id, "v#rpm", ms, |granted| {
            (granted.start_at_micros, granted.booked) = (start_ms * MS, true);
            (granted.share, granted.paid_from) = (Some("search".into()), Some(line.into()));
        })
    };
    let first = || booked(bucket().paused(0, 20_000), "a", "search", 10_000, 11_000);
    booked(first(), "b", "batch", 10_100, 10_100).holds();
    let told = booked(first(), "b", "search", 10_100, 10_100).told();
    assert!(
        told.starts_with("v#rpm, line of search: b, asked for at 10.100000, starts at 10.100000, before a"),
        "{told}"
    );
}

#[test]
fn shares_that_are_more_than_the_bucket_make_no_sense() {
    let told = Story::default().shared("v#rpm", 10, &[("search", 6), ("batch", 5)], 0).told();
    assert!(told.contains("shares.capacity_micros = -1000000 makes no sense"), "{told}");
}

#[test]
fn a_bucket_without_shares_has_no_figures_of_them() {
    let text =
        serde_json::to_string(&Story::default().rate("v#rpm", 2, 1, 0).grant("a", "v#rpm", 10).0).unwrap();
    assert!(!text.contains("share") && !text.contains("paid_from"), "{text}");
    let verdict = Story::default().rate("v#rpm", 2, 1, 0).grant("a", "v#rpm", 10).holds();
    assert!(verdict.buckets[0].shares.is_empty());
}
