use sluice_core::{Amount, Cost, Dimension, LimitType, Rate};

use super::*;
use crate::api::refusal::RetryIn;

fn refused(reason: RetryReason) -> RetryIn {
    RetryIn::new(Duration::from_secs(1), Dimension::new("a#b").unwrap(), reason)
}

fn full() -> Setback {
    Setback::Refused(refused(RetryReason::NoFreeSlot))
}

fn throttled() -> Setback {
    Setback::Throttled(refused(RetryReason::Contended))
}

/// The longest pause, in milliseconds.
fn longest(poll: &mut Poll, why: &Setback, crowd: Option<u32>) -> u128 {
    poll.longest(why, of(crowd)).as_millis()
}

fn of(crowd: Option<u32>) -> WaitContext {
    WaitContext { crowd, ..WaitContext::default() }
}

#[test]
fn a_process_alone_looks_as_often_whether_it_knows_that_it_is_or_not() {
    for crowd in [None, Some(0), Some(1), Some(25)] {
        let mut poll = Poll::default();
        assert_eq!(
            [0; 4].map(|_| longest(&mut poll, &full(), crowd)),
            [25, 50, 100, 100].map(|ms| { if crowd == Some(25) { 100 } else { ms } })
        );
    }
}

#[test]
fn up_to_500_processes_look_500_times_a_second_together() {
    for crowd in [26, 100, 500] {
        let mut poll = Poll::default();
        let mean_ms = longest(&mut poll, &full(), Some(crowd)) / 2;
        assert_eq!(u128::from(crowd) * 1_000 / mean_ms, 500, "{crowd}");
    }
}

#[test]
fn a_throttled_look_doubles_the_pause_to_four_times_and_it_comes_back_gradually() {
    let mut poll = Poll { looks: 9, ..Poll::default() };
    assert_eq!([0; 4].map(|_| longest(&mut poll, &throttled(), None)), [200, 400, 400, 400]);
    assert_eq!([0; 7].map(|_| longest(&mut poll, &full(), None)), [300, 225, 175, 137, 112, 100, 100]);
}

#[test]
fn no_crowd_makes_a_pause_longer_than_two_seconds_or_four_after_throttling() {
    for crowd in [500, 501, 10_000, u32::MAX] {
        let mut poll = Poll::default();
        assert_eq!(longest(&mut poll, &full(), Some(crowd)), 2_000, "{crowd}");
        assert_eq!([0; 9].map(|_| longest(&mut poll, &throttled(), Some(crowd))), [4_000; 9], "{crowd}");
        let drawn = (0..1_000).map(|_| poll.next(&throttled(), of(Some(crowd))));
        assert!(drawn.max().unwrap() <= LONGEST_STRETCHED);
    }
}

#[test]
fn throttled_looks_at_a_bucket_that_counts_nobody_are_two_seconds_apart_at_most() {
    let mut poll = Poll { looks: 9, ..Poll::uncounted() };
    let throttled = [0; 6].map(|_| longest(&mut poll, &throttled(), None));
    assert_eq!(throttled, [200, 400, 800, 1_600, 2_000, 2_000]);
    (0..11).for_each(|_| poll.succeeded());
    assert_eq!(longest(&mut poll, &full(), None), 25, "as before, once it is over");
}

/// A slot that is not given back keeps all callers waiting.
#[test]
fn what_gives_back_pauses_as_one_alone_does() {
    let gives_back = WaitContext { crowd: Some(500), gives_back: true, ..WaitContext::default() };
    let mut poll = Poll::default();
    let pauses = [0; 4].map(|_| poll.longest(&throttled(), gives_back).as_millis());
    assert_eq!(pauses, [25, 50, 100, 100]);
}

#[tokio::test(start_paused = true)]
async fn who_has_the_earliest_deadline_in_line_has_a_last_look_before_it() {
    let (mut poll, throttled) = (Poll::default(), throttled());
    for left_ms in [3_000, 4_000] {
        let until = Some(Instant::now() + Duration::from_millis(left_ms));
        let context = WaitContext { crowd: Some(500), until, ..WaitContext::default() };
        let latest = (0..1_000).map(|_| poll.next(&throttled, context)).max().unwrap();
        assert!(latest <= Duration::from_millis(left_ms) - LAST_LOOK, "{latest:?}");
    }
    // A caller with a nearer deadline has had its looks. Otherwise the deadlines of many callers would make
    // the crowd look without a pause.
    let context = WaitContext { crowd: Some(500), until: Some(Instant::now()), ..WaitContext::default() };
    let mean = (0..1_000).map(|_| poll.next(&throttled, context)).sum::<Duration>() / 1_000;
    assert!(mean >= Duration::from_millis(1_500), "{mean:?}");
}

#[test]
fn a_cool_down_is_waited_for_a_second_at_a_time() {
    let mut retry = refused(RetryReason::CoolingDown);
    retry.wait = Duration::from_millis(30);
    let why = Setback::Refused(retry);
    let pause = Poll::default().next(&why, WaitContext::default());
    assert!((30..=40).contains(&pause.as_millis()), "{pause:?}");
    assert_eq!(longest(&mut Poll::default(), &why, None), 1_000);
}

/// All of them know when the cool-down ends.
#[test]
fn processes_that_wait_for_the_end_of_a_cool_down_do_not_look_in_the_same_instant() {
    let why = Setback::Refused(RetryIn::new(
        Duration::from_millis(300),
        Dimension::new("a#b").unwrap(),
        RetryReason::CoolingDown,
    ));
    let looks: Vec<_> = (0..100).map(|_| Poll::default().next(&why, of(Some(100)))).collect();
    let (first, last) = (looks.iter().min().unwrap(), looks.iter().max().unwrap());
    assert!(
        *first >= Duration::from_millis(300) && *last <= Duration::from_millis(700),
        "{first:?} {last:?}"
    );
    assert!(*last - *first >= Duration::from_millis(200), "{first:?} {last:?}");
}

#[test]
fn starts_after_a_cool_down_are_spread_over_a_tenth_of_the_wait_a_second_at_most() {
    let longest = |waited_ms, limit: Option<&Limit>, left_ms| {
        let (waited, left) = (Duration::from_millis(waited_ms), Duration::from_millis(left_ms));
        let drawn = (0..2_000).map(|_| spread_after_cool_down(waited, limit, left));
        drawn.max().unwrap().as_millis()
    };
    assert!((95..=100).contains(&longest(1_000, None, 30_000)));
    assert!((950..=1_000).contains(&longest(60_000, None, 30_000)));
    assert!((190..=200).contains(&longest(60_000, None, 400)), "half of the time that is left");
    assert_eq!(longest(60_000, None, 0), 0);
    let two = Amount::from_tokens(2);
    let fast =
        Limit::rate(LimitType::Requests, two, Rate::per(two, Duration::from_millis(34)).unwrap(), Cost::ONE);
    assert!((32..=34).contains(&longest(60_000, fast.as_ref().ok(), 30_000)), "its refill spreads them");
}
