//! Rate buckets: no window grants more than it may.

use sluice_history::{Ending, Violation};

use crate::story::{MS, Story, TOKEN};

/// Two at once, one a second.
fn bucket() -> Story {
    Story::default().rate("v#rpm", 2, 1, 0)
}

#[test]
fn a_burst_and_what_flows_in_after_it_pass() {
    let verdict =
        bucket().grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_000).grant("c", "v#rpm", 11_000).holds();
    let busiest = verdict.buckets[0].busiest.clone().unwrap();
    assert_eq!((busiest.granted, busiest.allowed), (2_000_000, 2_000_000));
    assert_eq!((verdict.grants, verdict.buckets[0].granted), (3, 3_000_000));
}

#[test]
fn a_microsecond_too_early_is_named_with_its_window() {
    let story = bucket().grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_000);
    let story = story.granted("c", "v#rpm", 10_000, |c| {
        c.start_at_micros = 11_000 * MS - 1;
        c.granted_at_micros = c.start_at_micros;
    });
    assert_eq!(
        story.told(),
        "v#rpm: 3 granted in 10.000000 to 10.999999 (0.999999 s, from a to c); at most 2.999999 are allowed"
    );
}

#[test]
fn a_long_window_is_judged_as_a_short_one() {
    let thousand = |story: Story, pace_ms: i64| {
        (0..1_000).fold(story, |story, n| story.grant(&format!("a{n}"), "v#rpm", 10_000 + n * pace_ms))
    };
    thousand(bucket(), 1_000).holds();
    // Each alone looks well: a thousandth too fast, which takes a thousand grants to be one too many.
    let verdict = thousand(bucket(), 998).check();
    let [Violation::RateExceeded { window, .. }] = &verdict.violations[..] else { panic!("{verdict:?}") };
    assert_eq!((window.first_id.as_str(), window.last_id.as_str()), ("a0", "a999"));
    assert_eq!((window.granted, window.allowed), (1_000 * 1_000_000, 999_002_000));
}

#[test]
fn of_overlapping_windows_that_offend_the_worst_is_named_and_two_bursts_are_two() {
    let burst =
        |story: Story, at: i64, ids: [&str; 4]| ids.into_iter().fold(story, |s, id| s.grant(id, "v#rpm", at));
    let story = burst(bucket(), 10_000, ["a", "b", "c", "d"]).grant("e", "v#rpm", 20_000);
    let verdict = burst(story, 30_000, ["f", "g", "h", "i"]).check();
    let ends = |violation: &Violation| match violation {
        Violation::RateExceeded { window, .. } => {
            (window.first_id.clone(), window.last_id.clone(), window.granted)
        }
        other => panic!("{other}"),
    };
    let named: Vec<_> = verdict.violations.iter().map(ends).collect();
    assert_eq!(named, [("a".into(), "d".into(), 4_000_000), ("f".into(), "i".into(), 4_000_000)]);
}

#[test]
fn the_error_of_clocks_is_granted_once_and_not_per_call() {
    let early = |error_ms, n: i64| {
        let story = bucket().errors(error_ms, 0);
        (0..n).fold(story, |story, n| story.grant(&format!("a{n}"), "v#rpm", 10_000))
    };
    early(500, 3).holds();
    assert!(early(499, 3).told().contains("at most 2.998 are allowed"));
    assert!(early(500, 4).told().contains("4 granted"));
}

#[test]
fn what_was_given_back_unused_does_not_count_and_what_was_used_does() {
    let story = |how| {
        bucket()
            .booked("a", "v#rpm", 10_000, 10_000)
            .booked("b", "v#rpm", 10_000, 10_000)
            .booked("c", "v#rpm", 10_000, 11_000)
            .released("c", "v#rpm", 10_500, how)
            .grant("d", "v#rpm", 11_000)
    };
    let verdict = story(Ending::GivenBackUnused).holds();
    assert_eq!((verdict.buckets[0].grants, verdict.buckets[0].unused), (4, 1));
    assert!(story(Ending::Released).told().contains("from a to d"));
}

#[test]
fn a_costly_call_counts_as_much_as_it_takes() {
    let story =
        |cost| bucket().grant("a", "v#rpm", 10_000).granted("b", "v#rpm", 10_500, |b| b.cost_micros = cost);
    story(TOKEN + TOKEN / 2).holds();
    assert!(story(TOKEN + TOKEN / 2 + 1).told().contains("2.500001 granted"));
}

#[test]
fn a_start_that_is_not_told_exactly_counts_only_where_it_surely_lies() {
    let story = |judged_from: i64| {
        bucket().grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_000).granted("c", "v#rpm", 12_000, |c| {
            c.asked_at_micros = 9_000 * MS;
            c.judged_from_micros = Some(judged_from * MS);
            c.start_at_micros = 10_500 * MS;
        })
    };
    // By its bucket it may have started a second before the others.
    story(9_500).holds();
    assert!(story(9_501).told().contains("3 granted in 9.501000 to 10.500000 (0.999 s, from c to c)"));
}

#[test]
fn the_busiest_window_holds_something_however_long_a_grant_was_under_way() {
    let story = bucket().granted("a", "v#rpm", 20_000, |a| {
        (a.asked_at_micros, a.judged_from_micros) = (10_000 * MS, Some(10_000 * MS));
    });
    let verdict = story.grant("b", "v#rpm", 30_000).grant("c", "v#rpm", 30_500).holds();
    let busiest = verdict.buckets[0].busiest.clone().unwrap();
    assert_eq!((busiest.granted, busiest.allowed, busiest.first_id.as_str()), (2_000_000, 2_500_000, "b"));
}

#[test]
fn a_call_counts_what_it_used_and_never_more_than_it_took() {
    let story = || bucket().grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_000);
    assert!(story().grant("c", "v#rpm", 10_500).told().contains("3 granted"));
    let settled = story().settled("a", "v#rpm", 10_200, 0).grant("c", "v#rpm", 10_500);
    assert_eq!(settled.holds().buckets[0].granted, 2 * i128::from(TOKEN));
    // The last word counts, and what is above the cost is a debt of later calls.
    assert!(settled.settled("a", "v#rpm", 10_600, 5).told().contains("3 granted"));
    assert!(
        bucket()
            .settled("a", "v#rpm", 10_600, 1)
            .told()
            .contains("a is settled in v#rpm and was not granted")
    );
}
