//! Debts and penalties that meet other writers of the row, one interleaving each.

use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Cost, Debt, Limit, LimitType, Observation, Rate, RatePlanner, Remaining, Settle, Take,
    Timestamp,
};

use super::item::Item;
use super::{Caller, LONGEST, start};

/// Half of a hundred tokens a minute is taken, and a debt of ten is planned `secs` later.
fn world(secs: u64) -> (Item, Caller, Timestamp, sluice_core::RateReceipt, sluice_core::Update) {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, super::settles::limit(1), now);
    let (mut item, mut caller) = (Item::of(&bucket), Caller { reading: bucket });
    let half = Take { cost: Cost::new(Amount::from_tokens(50)).unwrap(), now, patience: Duration::ZERO };
    let receipt = caller.acquire(&mut item, half, 0).unwrap().receipt;
    let debt =
        RatePlanner::new(&item.bucket()).lower(Amount::from_tokens(10), now.after(Duration::from_secs(secs)));
    (item, caller, now, receipt, debt)
}

#[test]
fn a_debt_of_a_full_bucket_fails_where_a_clock_that_lags_spent_meanwhile() {
    // After 40 s the line is at 116, so that the level is set; one who takes it for 1 s takes 20 of it.
    let (mut item, mut caller, now, _, debt) = world(40);
    let twenty = Cost::new(Amount::from_tokens(20)).unwrap();
    let take = Take { cost: twenty, now: now.after(Duration::from_secs(1)), patience: Duration::ZERO };
    caller.acquire(&mut item, take, 0).unwrap();
    assert!(!item.apply(&debt), "the level is 96, and 90 would forgive most of the debt");
    let later = now.after(Duration::from_secs(40));
    let again = RatePlanner::new(&item.bucket()).lower(Amount::from_tokens(10), later);
    assert!(item.apply(&again));
    assert_eq!(item.bucket().level(later).to_string(), "86.666666");
}

#[test]
fn a_debt_fails_where_a_clock_that_lags_gave_back_meanwhile_and_the_bucket_is_full() {
    let (mut item, _, now, receipt, debt) = world(20);
    let lagging = now.after(Duration::from_secs(10));
    let fifty = Amount::from_tokens(50);
    let unused = Settle { receipt, counted: fifty, surplus: fifty };
    let settling = RatePlanner::new(&item.bucket()).settle(&[unused], Debt::Capped, lagging);
    assert!(item.apply(&settling.write.unwrap()));
    assert!(!item.apply(&debt), "what is above the brim would pay it");
    let later = now.after(Duration::from_secs(20));
    let again = RatePlanner::new(&item.bucket()).lower(Amount::from_tokens(10), later);
    assert!(item.apply(&again));
    assert_eq!(item.bucket().level(later), Amount::from_tokens(90));
}

#[test]
fn a_reply_whose_line_is_not_known_lowers_the_level_that_was_read_and_not_what_others_left_of_it() {
    let (mut item, mut caller, now, receipt, _) = world(0);
    // Full again: another line, on which the vendor's word bounds the level alone.
    let later = now.after(Duration::from_secs(50));
    let ten =
        Take { cost: Cost::new(Amount::from_tokens(10)).unwrap(), now: later, patience: Duration::ZERO };
    caller.acquire(&mut item, ten, 0).unwrap();
    let read = item.bucket();
    let said = Remaining { receipt, start: now, left: Amount::from_tokens(-60) };
    let Observation::Lower(_, write) = RatePlanner::new(&read).observe(&said, LONGEST, later) else {
        panic!()
    };
    caller.acquire(&mut item, ten, 0).unwrap();
    assert!(!item.apply(&write), "it would take away again what the other call took");
    let Observation::Lower(by, write) = RatePlanner::new(&item.bucket()).observe(&said, LONGEST, later)
    else {
        panic!()
    };
    assert!(item.apply(&write));
    assert_eq!(item.bucket().level(later).plus(by), Amount::from_tokens(80));
}

/// A client that multiplies what it reads would make -20 of -25: no penalty at all.
#[test]
fn a_penalty_of_a_bucket_whose_starts_are_booked_raises_nothing() {
    let (mut item, mut caller, now, ..) = world(0);
    let booked =
        Take { cost: Cost::new(Amount::from_tokens(75)).unwrap(), now, patience: Duration::from_secs(60) };
    for factor in ["0", "0.3", "0.8", "1"] {
        let bucket = item.bucket();
        let penalty = RatePlanner::new(&bucket).penalize(factor.parse().unwrap(), None, now);
        if let Some(update) = penalty {
            let mut item = item.clone();
            assert!(item.apply(&update));
            assert!(item.bucket().level(now) <= bucket.level(now), "{factor} of {}", bucket.level(now));
        }
    }
    caller.acquire(&mut item, booked, 0).unwrap();
    let bucket = item.bucket();
    assert!(bucket.level(now) < Amount::from_tokens(-24));
    for factor in ["0", "0.3", "0.8", "1"] {
        assert_eq!(RatePlanner::new(&bucket).penalize(factor.parse().unwrap(), None, now), None, "{factor}");
    }
}

#[test]
fn one_reply_lowers_a_days_bucket_by_a_quarter_of_an_hours_refill_and_the_next_ones_lower_it_further() {
    let (now, dimension) = start();
    let day = Duration::from_secs(86_400);
    let capacity = Amount::from_tokens(9_600);
    let limit =
        Limit::rate(LimitType::Requests, capacity, Rate::per(capacity, day).unwrap(), Cost::ONE).unwrap();
    let bucket = Bucket::full(dimension, limit, now);
    let (mut item, mut caller) = (Item::of(&bucket), Caller { reading: bucket });
    let (mut level, refill) = (capacity, Amount::from_tokens(100));
    for _ in 0..5 {
        let one = Take { cost: Cost::ONE, now, patience: Duration::ZERO };
        let receipt = caller.acquire(&mut item, one, 0).unwrap().receipt;
        let nothing_left = Remaining { receipt, start: now, left: Amount::ZERO };
        let seen = RatePlanner::new(&item.bucket()).observe(&nothing_left, LONGEST, now);
        let Observation::Lower(by, write) = seen else { panic!("{seen:?}") };
        assert_eq!(by, refill);
        assert!(item.apply(&write));
        level = level.minus(refill).minus(Amount::from_tokens(1));
        assert_eq!(item.bucket().level(now), level);
    }
    let penalty = RatePlanner::new(&item.bucket()).penalize("0.3".parse().unwrap(), Some(LONGEST), now);
    assert!(item.apply(&penalty.unwrap()));
    assert_eq!(item.bucket().level(now), level.minus(refill), "0.3 of it would be gone for most of the day");
}
