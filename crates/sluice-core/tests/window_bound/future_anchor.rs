//! Anchors of clocks that were wrong, and their repair.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, Claim, Cost, Form, FutureAnchor, Limit, LimitType, Plan, Rate, RatePlanner,
    RateReceipt, Starts, Take, Timestamp,
};

use super::item::Item;
use super::{Caller, Granted, Step, cost, refill, start, steps, tight_limits};

const HOUR: Duration = Duration::from_secs(3_600);

/// Ten calls, one more a second.
fn ten() -> Limit {
    let rate = Rate::per(Amount::from_tokens(1), Duration::from_secs(1)).unwrap();
    Limit::rate(LimitType::Requests, Amount::from_tokens(10), rate, Cost::ONE).unwrap()
}

/// A bucket that a clock an hour ahead left with `tokens`.
fn left_ahead(tokens: i32) -> (Item, Timestamp) {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, ten(), now);
    let mut item = Item::of(&bucket);
    let take = |tokens: i32| Take {
        cost: Cost::new(Amount::from_tokens(tokens)).unwrap(),
        now: now.after(HOUR),
        patience: Duration::ZERO,
    };
    Caller { reading: bucket }.acquire(&mut item, take(10 - tokens), 0).unwrap();
    assert_eq!((item.bucket().anchor(), item.bucket().tokens()), (now.after(HOUR), Amount::from_tokens(tokens)));
    (item, now)
}

fn take(tokens: i32, now: Timestamp) -> Take {
    Take { cost: Cost::new(Amount::from_tokens(tokens)).unwrap(), now, patience: Duration::ZERO }
}

fn repairing(bucket: &Bucket) -> RatePlanner<'_> {
    RatePlanner::new(bucket).on_future_anchor(FutureAnchor::Repair)
}

#[test]
fn an_anchor_of_the_future_is_moved_back_by_the_next_who_takes_and_nothing_is_given_away() {
    let (mut item, now) = left_ahead(4);
    let bucket = item.bucket();
    let Plan::Write(planned) = repairing(&bucket).plan(take(3, now)) else { panic!() };
    assert!(item.apply(&planned.update));
    let after = item.bucket();
    assert_eq!(
        (after.anchor(), after.level(now)),
        (now, Amount::from_tokens(1)),
        "four were there, and three are taken"
    );
    assert_eq!(after.level(now.after(Duration::from_secs(2))), Amount::from_tokens(3), "and it rises again");
    assert_eq!((planned.form, &planned.after), (Form::Reanchor, &after));
}

#[test]
fn an_anchor_of_the_future_stays_where_the_planner_does_not_know_the_time() {
    let (mut item, now) = left_ahead(4);
    let bucket = item.bucket();
    let Plan::Write(planned) = RatePlanner::new(&bucket).plan(take(3, now)) else { panic!() };
    assert!(item.apply(&planned.update));
    assert_eq!(item.bucket().anchor(), now.after(HOUR));
    assert_eq!(RatePlanner::new(&bucket).repair(now), None);
}

#[test]
fn an_anchor_that_clocks_may_differ_by_is_not_repaired() {
    let (now, dimension) = start();
    let ahead = |by| Bucket::full(dimension.clone(), ten(), now.after(by));
    let most = CLOCK_ERROR * 2;
    assert_eq!(repairing(&ahead(most)).repair(now), None);
    assert!(repairing(&ahead(most + Duration::from_micros(1))).repair(now).is_some());
}

/// Nobody can take from a bucket that was left empty; without a write of its own it would stay so for an hour.
#[test]
fn where_nothing_can_be_taken_the_repair_is_a_write_of_its_own_and_the_refusal_after_it_is_exact() {
    let (mut item, now) = left_ahead(0);
    let claim = Claim { cost: Cost::ONE, patience: Duration::ZERO };
    let bucket = item.bucket();
    let batch = repairing(&bucket).plan_batch(&[claim], now, Starts::InReply, Amount::ZERO);
    assert!(matches!(&batch.answers[..], [Plan::Refuse(refusal)] if refusal.wait == Duration::from_secs(1)));
    assert!(item.apply(&batch.write.unwrap().update));
    let repaired = item.bucket();
    assert_eq!((repaired.anchor(), repaired.tokens()), (now, Amount::ZERO));
    let later = now.after(Duration::from_secs(1));
    assert!(matches!(RatePlanner::new(&repaired).plan(take(1, later)), Plan::Write(_)));
    assert_eq!(repairing(&repaired).plan_batch(&[claim], now, Starts::InReply, Amount::ZERO).write, None, "once");
}

/// A caller that waits books from the repaired line, in the same write.
#[test]
fn a_booking_repairs_the_anchor_and_starts_when_the_repaired_line_has_its_tokens() {
    let (mut item, now) = left_ahead(0);
    let bucket = item.bucket();
    let patient = Take { patience: Duration::from_secs(30), ..take(2, now) };
    for starts in [Starts::InReply, Starts::Pinned] {
        let claim = Claim { cost: patient.cost, patience: patient.patience };
        let write = repairing(&bucket).plan_batch(&[claim], now, starts, Amount::ZERO).write.unwrap();
        let mut item = item.clone();
        assert!(item.apply(&write.update));
        let receipt = RateReceipt::new(item.bucket(), patient.cost);
        assert_eq!(receipt.start_at(now), now.after(Duration::from_secs(2)), "{starts:?}");
    }
    let Plan::Write(planned) = repairing(&bucket).plan(patient) else { panic!() };
    assert!(item.apply(&planned.update));
}

/// Its clock lies before what they took. They would have the refill of its way a second time.
#[test]
fn a_repair_that_is_on_its_way_while_others_take_fails() {
    let (mut item, now) = left_ahead(8);
    let bucket = item.bucket();
    let Plan::Write(late) = repairing(&bucket).plan(take(1, now)) else { panic!() };
    let alone = repairing(&bucket).repair(now).unwrap();
    let Plan::Write(other) = RatePlanner::new(&bucket).plan(take(1, now.after(Duration::from_secs(5)))) else {
        panic!()
    };
    assert!(item.apply(&other.update));
    assert!(!item.apply(&late.update));
    assert!(!item.apply(&alone.update));
}

/// The anchor meets one that stood there before the wrong write: that of a return that is on its way.
#[test]
fn no_return_crosses_a_repair_though_the_anchor_is_that_of_its_take() {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, ten(), now);
    let mut item = Item::of(&bucket);
    let mut caller = Caller { reading: bucket };
    let early = caller.acquire(&mut item, take(5, now), 0).unwrap();
    let late = early.receipt.give_back(now).unwrap();
    caller.acquire(&mut item, take(5, now.after(HOUR)), 0).unwrap();
    let repair = repairing(&item.bucket()).repair(now).unwrap();
    assert!(item.apply(&repair.update));
    assert_eq!((item.bucket().anchor(), item.bucket().tokens()), (now, Amount::from_tokens(5)));
    assert!(!item.apply(&late), "the bucket was full since, by the wrong clock, and has paid them out");
}

/// Three with clocks that err by `error`, who repair, and one whose clock is an hour ahead and runs on from there.
fn run(limit: Limit, steps: &[Step]) -> (Vec<(i64, i64)>, Vec<i64>) {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, limit, begin);
    let mut item = Item::of(&bucket);
    let mut callers: Vec<Caller> = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
    let (mut now, mut grants, mut wrong) = (begin.micros(), Vec::new(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        now += step.gap.min(2_000_000);
        let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience: Duration::ZERO };
        let granted = if step.caller == 3 && at % 5 == 0 {
            let granted = callers[3].acquire(&mut item, take, 3_600_000_000);
            wrong.extend(granted.iter().map(|_| now));
            granted
        } else {
            repaired(&mut callers[step.caller % 3], &mut item, take, step.error)
        };
        grants.extend(granted.map(|granted| (granted.start, granted.cost)));
    }
    (grants, wrong)
}

/// As [`Caller::acquire`], by one who has the time.
fn repaired(caller: &mut Caller, item: &mut Item, take: Take, error: i64) -> Option<Granted> {
    let local = Timestamp::from_micros(take.now.micros() + error);
    for _ in 0..3 {
        let claim = Claim { cost: take.cost, patience: take.patience };
        let batch = repairing(&caller.reading).plan_batch(&[claim], local, Starts::InReply, Amount::ZERO);
        let applied = batch.write.as_ref().is_some_and(|planned| item.apply(&planned.update));
        caller.reading = item.bucket();
        if applied && batch.total > Amount::ZERO {
            let receipt = RateReceipt::new(caller.reading.clone(), take.cost);
            let start = receipt.start_at(local).micros() - error;
            return Some(Granted { start, cost: take.cost.amount().micros(), receipt });
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Beside one that writes anchors an hour ahead, again and again: each such write gains the capacity at most, and between two of them
    /// the bound is what it is.
    #[test]
    fn each_wrong_write_gains_the_capacity_at_most_and_the_bound_holds_again_from_then_on(
        limit in tight_limits(), steps in steps(500_000, 0),
    ) {
        let (mut grants, wrong) = run(limit, &steps);
        grants.sort_unstable();
        for first in 0..grants.len() {
            let mut sum = 0;
            for last in first..grants.len() {
                sum += grants[last].1;
                let (from, to) = (grants[first].0, grants[last].0);
                let between = i64::try_from(wrong.iter().filter(|at| (from..=to).contains(*at)).count()).unwrap();
                let bound = limit.capacity().micros() * (1 + between) + refill(&limit, to - from + 1_000_000);
                prop_assert!(sum <= bound, "{sum} granted in {} us with {between} wrong writes, at most {bound}", to - from);
            }
        }
    }
}
