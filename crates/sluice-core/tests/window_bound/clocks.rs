//! Clocks that are off by more than the bucket takes to fill, and anchors that lie ahead of them.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, Claim, Cost, Limit, LimitType, Plan, Planned, Rate, RatePlanner, RateReceipt, Take,
    Timestamp,
};

use super::item::Item;
use super::{Caller, check_windows, cost, limits, start, steps, tight_limits};

/// Each caller keeps its error: one clock is always ahead, another always lags.
fn run_skewed(limit: Limit, steps: &[super::Step], errors: [i64; 4]) -> Vec<(i64, i64)> {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, limit, begin);
    let mut item = Item::of(&bucket);
    let mut callers: Vec<Caller> = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
    let (mut now, mut grants) = (begin.micros(), Vec::new());
    for step in steps {
        now += step.gap.min(5_000_000);
        let patience = Duration::from_millis(step.patience_ms);
        let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience };
        let granted = callers[step.caller].acquire(&mut item, take, errors[step.caller]);
        grants.extend(granted.map(|granted| (granted.start, granted.cost)));
    }
    grants
}

proptest! {
    #![proptest_config(crate::cases::cases(300))]

    /// Up to a minute and a half, where a bucket fills within milliseconds to an hour.
    #[test]
    fn clocks_off_by_far_more_than_a_bucket_takes_to_fill_add_twice_their_error_once(
        limit in prop_oneof![limits(), tight_limits()], steps in steps(0, 5_000),
        errors in prop::array::uniform4(-90_000_000_i64..=90_000_000),
    ) {
        let most = errors.iter().map(|error| error.abs()).max().unwrap();
        check_windows(&limit, &mut run_skewed(limit, &steps, errors), most)?;
    }

    /// A write that passes, though others booked since its reading, starts within its caller's patience,
    /// wherever the anchor lies.
    #[test]
    fn no_start_is_booked_beyond_its_callers_patience(
        limit in tight_limits(), ahead in -5_000_000..20_000_000_i64, booked in 0..20_000_000_i64, wanted in 1..5_000_000_i64,
        patience_ms in 0..20_000_u64,
    ) {
        let (now, dimension) = start();
        let anchor = Timestamp::from_micros(now.micros() + ahead);
        let read = Bucket::full(dimension, limit, anchor);
        let mut item = Item::of(&read);
        item.put(sluice_core::schema::TOKENS, limit.capacity().minus(Amount::from_micros(booked)).to_string());
        let patience = Duration::from_millis(patience_ms);
        let take = Take { cost: cost(wanted.min(limit.capacity().micros())), now, patience };
        let probe = RatePlanner::new(&read).probe(take);
        if item.apply(&probe.update) {
            let start = RateReceipt::new(item.bucket(), take.cost).start_at(now);
            // To within the rounding of a microsecond's refill.
            let latest = now.after(patience).after(Duration::from_micros(2));
            prop_assert!(start <= latest, "{start} after {latest}");
        }
    }

    /// Whoever never refuses does not refuse by any clock; and whoever has less does by some, unless it is
    /// more than the bucket ever holds.
    #[test]
    fn a_bucket_that_never_refuses_has_enough_by_every_clock(
        limit in tight_limits(), taken in -2_000_000..5_000_000_i64, wanted in 1..6_000_000_i64, off in -200_000_000_i64..200_000_000,
    ) {
        let (now, dimension) = start();
        let mut item = Item::of(&Bucket::full(dimension, limit, now));
        let whole = limit.capacity().micros();
        let take = Take { cost: cost(taken.clamp(1, whole)), now, patience: Duration::ZERO };
        if let Plan::Write(planned) = RatePlanner::new(&item.bucket()).plan(take) {
            prop_assert!(item.apply(&planned.update));
        }
        let (bucket, wanted) = (item.bucket(), cost(wanted));
        let at = Timestamp::from_micros(now.micros() + off);
        let claim = Claim { cost: wanted, patience: Duration::ZERO };
        if RatePlanner::new(&bucket).never_refuses(wanted) {
            prop_assert_eq!(RatePlanner::new(&bucket).refusal(claim, at), None);
            let take = Take { cost: wanted, now: at, patience: Duration::ZERO };
            prop_assert!(matches!(RatePlanner::new(&bucket).plan(take), Plan::Write(_)));
        } else if wanted.amount() <= limit.capacity() {
            prop_assert!(RatePlanner::new(&bucket).refusal(claim, now.before(Duration::from_secs(200))).is_some());
        }
    }

    /// A refusal tells the exact wait, wherever the anchor lies.
    #[test]
    fn a_refused_caller_whose_clock_lags_behind_the_anchor_is_granted_when_it_comes_back_at_its_time(
        limit in tight_limits(), ahead in 0..200_000_000_i64, taken in 0..5_000_000_i64, wanted in 1..5_000_000_i64,
    ) {
        let (now, dimension) = start();
        let whole = limit.capacity().micros();
        let anchored = Bucket::full(dimension, limit, now.after(Duration::from_micros(ahead.unsigned_abs())));
        let mut item = Item::of(&anchored);
        let take = |micros: i64, now| Take { cost: cost(micros.clamp(1, whole)), now, patience: Duration::ZERO };
        if let Plan::Write(planned) = RatePlanner::new(&anchored).plan(take(taken, now)) {
            prop_assert!(item.apply(&planned.update), "what it holds at its anchor is there before it, too");
        }
        let bucket = item.bucket();
        let wanted = take(wanted, now);
        let Plan::Refuse(refusal) = RatePlanner::new(&bucket).plan(wanted) else { return Ok(()) };
        let granted = |now| matches!(
            RatePlanner::new(&bucket).plan(Take { now, ..wanted }),
            Plan::Write(Planned { update, .. }) if item.holds(&update)
        );
        let back = now.after(refusal.wait);
        prop_assert!(granted(back));
        prop_assert!(!granted(Timestamp::from_micros(back.micros() - 1)), "and not a moment earlier");
    }
}

/// Calls that a caller with an exact clock is granted of those that it asks for, in percent, beside one whose
/// clock is `ahead`. The other asks for half of the limit; this one for `share` percent of it, and comes back
/// as it is told until its next call is due.
fn served(limit: &Limit, ahead: Duration, share: u32) -> u64 {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, *limit, begin);
    let mut item = Item::of(&bucket);
    let per_call =
        bucket.reaches(limit.capacity().plus(Amount::from_tokens(1_000))).unwrap().since(begin) / 1_000;
    let (every, theirs) = (per_call * 100 / share, per_call * 2);
    let (mut exact, mut fast) = (Caller { reading: bucket.clone() }, Caller { reading: bucket });
    let ahead = i64::try_from(ahead.as_micros()).unwrap();
    let take = |now| Take { cost: Cost::ONE, now, patience: Duration::ZERO };
    let (mut due, mut asks_at, mut fast_at) = (begin.after(per_call), begin.after(per_call), begin);
    let (mut asked, mut granted) = (1_u64, 0_u64);
    while asked < 400 {
        if fast_at <= asks_at {
            fast.acquire(&mut item, take(fast_at), ahead);
            fast_at = fast_at.after(theirs);
            continue;
        }
        let is_granted = exact.acquire(&mut item, take(asks_at), 0).is_some();
        granted += u64::from(is_granted);
        let claim = Claim { cost: Cost::ONE, patience: Duration::ZERO };
        let told = RatePlanner::new(&exact.reading)
            .refusal(claim, asks_at)
            .map(|refusal| asks_at.after(refusal.wait));
        let next = due.after(every);
        match told.filter(|told| !is_granted && *told < next) {
            Some(told) => asks_at = told,
            None => (due, asks_at, asked) = (next, next, asked + 1),
        }
    }
    granted * 100 / asked
}

fn limit(capacity: i32, rate: &str) -> Limit {
    let rate: Rate = rate.parse().unwrap();
    Limit::rate(LimitType::Requests, Amount::from_tokens(capacity), rate, Cost::ONE).unwrap()
}

#[test]
fn a_caller_with_an_exact_clock_is_served_beside_one_whose_clock_is_ahead() {
    // The recipe of docs/buckets.md: full again after 34 ms.
    let cases = [(2, "58.8", 100), (10, "10", 2_000), (60, "1", 240_000), (2, "58.8", 240_000)];
    for (capacity, rate, ahead_ms) in cases {
        let percent = served(&limit(capacity, rate), Duration::from_millis(ahead_ms), 20);
        assert!(percent >= 99, "{capacity} at {rate} a second beside +{ahead_ms} ms: {percent} % served");
    }
}

/// What a flat line does not mend: who is ahead takes the refill first.
#[test]
fn a_small_bucket_that_is_asked_for_nearly_all_it_has_serves_the_clock_that_is_ahead_first() {
    let percent = served(&limit(2, "58.8"), Duration::from_millis(100), 45);
    assert!((50..=60).contains(&percent), "{percent} %: the corrected clock has to help here");
    let percent = served(&limit(60, "1"), Duration::from_secs(240), 45);
    assert!(percent >= 98, "{percent} %");
}

/// `buckets apply` warns where the error that is left of corrected clocks is above C / R.
#[test]
fn a_bucket_with_room_for_one_call_serves_an_exact_clock_as_long_as_the_other_is_ahead_by_less_than_a_call() {
    let one = limit(1, "10");
    assert!(served(&one, Duration::from_millis(40), 20) >= 95);
    assert!(served(&one, Duration::from_millis(240_000), 20) < 50, "the corrected clock has to help here");
}
