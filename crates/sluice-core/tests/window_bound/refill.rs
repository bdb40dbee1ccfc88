//! Refills that meet other writers of the row, one interleaving each.

use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Debt, RatePlanner, Settle, Take, Timestamp};

use super::item::Item;
use super::{Caller, start};

/// A hundred tokens a minute, full, and a caller of it.
fn world() -> (Item, Caller, Timestamp) {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, super::settles::limit(1), now);
    (Item::of(&bucket), Caller { reading: bucket }, now)
}

fn tokens(tokens: i32) -> Amount {
    Amount::from_tokens(tokens)
}

fn take(amount: i32, now: Timestamp, patience: Duration) -> Take {
    Take { cost: Cost::new(tokens(amount)).unwrap(), now, patience }
}

/// Refills a copy of the row, and returns its level.
fn refilled(item: &Item, level: i32, now: Timestamp) -> Amount {
    let mut item = item.clone();
    if let Some(update) = RatePlanner::new(&item.bucket()).refill(tokens(level), now) {
        assert!(item.apply(&update));
    }
    item.bucket().level(now)
}

#[test]
fn a_level_is_set_from_wherever_it_is() {
    let (mut item, mut caller, now) = world();
    let (before, later) = (now.before(Duration::from_secs(30)), now.after(Duration::from_secs(3_600)));
    let all = |item: &Item, at: &[Timestamp]| {
        for now in at {
            for level in [0, 1, 50, 99, 100] {
                assert_eq!(refilled(item, level, *now), tokens(level), "{now}");
            }
        }
    };
    // Full, for a long time, and for a clock that shows a time before the anchor.
    all(&item, &[now, later, before]);
    caller.acquire(&mut item, take(60, now, Duration::ZERO), 0).unwrap();
    all(&item, &[now, now.after(Duration::from_secs(7)), before]);
    // Booked ahead: below zero.
    caller.acquire(&mut item, take(80, now, Duration::from_secs(60)), 0).unwrap();
    assert!(item.bucket().level(now) < Amount::ZERO);
    all(&item, &[now, now.after(Duration::from_secs(7)), before]);
}

#[test]
fn a_bucket_at_its_level_needs_no_write() {
    let (item, _, now) = world();
    for at in [now, now.after(Duration::from_secs(5))] {
        assert_eq!(RatePlanner::new(&item.bucket()).refill(tokens(100), at), None);
    }
}

#[test]
fn what_calls_take_meanwhile_is_gone_from_the_new_level() {
    let (mut item, mut caller, now) = world();
    caller.acquire(&mut item, take(60, now, Duration::ZERO), 0).unwrap();
    let update = RatePlanner::new(&item.bucket()).refill(tokens(100), now).unwrap();
    caller.acquire(&mut item, take(30, now, Duration::ZERO), 0).unwrap();
    assert!(item.apply(&update));
    assert_eq!(item.bucket().level(now), tokens(70));
}

#[test]
fn two_refills_of_one_reading_are_one() {
    let (mut item, mut caller, now) = world();
    caller.acquire(&mut item, take(90, now, Duration::ZERO), 0).unwrap();
    let update = RatePlanner::new(&item.bucket()).refill(tokens(50), now).unwrap();
    assert!(item.apply(&update));
    assert!(!item.apply(&update), "it would be 90");
    caller.reading = item.bucket();
    caller.acquire(&mut item, take(45, now, Duration::ZERO), 0).unwrap();
    assert!(item.apply(&update), "as far as it was used");
    assert!(item.bucket().level(now) <= tokens(50));
}

#[test]
fn a_refill_fails_if_the_bucket_was_full_meanwhile() {
    let (mut item, mut caller, now) = world();
    caller.acquire(&mut item, take(60, now, Duration::ZERO), 0).unwrap();
    let update = RatePlanner::new(&item.bucket()).refill(tokens(50), now).unwrap();
    let later = now.after(Duration::from_secs(60));
    caller.acquire(&mut item, take(1, later, Duration::ZERO), 0).unwrap();
    assert!(!item.apply(&update), "another line");
}

#[test]
fn no_tokens_come_back_after_a_refill_that_were_taken_before_it() {
    let (mut item, mut caller, now) = world();
    let receipt = caller.acquire(&mut item, take(50, now, Duration::ZERO), 0).unwrap().receipt;
    let unused = Settle { receipt: receipt.clone(), counted: tokens(50), surplus: tokens(50) };
    let planned = RatePlanner::new(&item.bucket()).settle(&[unused], Debt::Capped, now).write.unwrap();
    let given_back = receipt.give_back(now).unwrap();
    let refill = RatePlanner::new(&item.bucket()).refill(tokens(100), now).unwrap();
    assert!(item.apply(&refill));
    assert!(!item.apply(&planned) && !item.apply(&given_back), "its line would stand at 150");
}
