//! What processes granted without the table is charged to all lines of a bucket with shares.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Amount, Bucket, Debt, Plan, RatePlanner, Take, Timestamp};

use super::item::Item;
use super::shares::{limits, name, row, split, taken, used};
use super::{cost, start};

/// How far the lowest line is above minus its capacity.
fn above_the_cap(bucket: &Bucket, now: Timestamp) -> i64 {
    let above = |line: &Bucket| line.level(now).micros() + line.limit().capacity().micros();
    bucket.every_line().iter().map(above).min().unwrap()
}

/// Takes from each line, also below zero, and lets time pass.
fn levels(item: &mut Item, parts: &[u32], now: Timestamp) {
    for (of, part) in parts.iter().enumerate() {
        let bucket = item.bucket().seen_from(name(of).as_ref());
        let micros = bucket.limit().capacity().micros() * i64::from(*part) / 100;
        if micros > 0 {
            let take = Take {
                cost: cost(micros.min(bucket.level(now).micros()).max(1)),
                now,
                patience: Duration::ZERO,
            };
            if let Plan::Write(planned) = RatePlanner::new(&bucket).plan(take) {
                item.apply(&planned.update);
            }
            let bucket = item.bucket().seen_from(name(of).as_ref());
            let owed = Amount::from_micros(micros - bucket.limit().capacity().micros());
            if owed > Amount::ZERO {
                assert!(item.apply(&RatePlanner::new(&bucket).lower(owed, now)));
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(300))]

    /// Several processes plan from one reading, as they do in the first second after an outage.
    #[test]
    fn charges_lower_no_line_below_minus_its_capacity(
        limit in limits(),
        parts in prop::array::uniform3(0_u32..=200),
        charges in prop::collection::vec(1_i64..100_000_000, 1..6),
        age in 0_i64..1_000_000,
    ) {
        let (begin, _) = start();
        let mut item = row(&split(limit), begin);
        levels(&mut item, &parts, begin);
        let (now, reading) = (begin.after(Duration::from_micros(age.unsigned_abs())), item.bucket());
        for charge in charges {
            let mut seen = reading.clone();
            for attempt in 0..2 {
                let charged = RatePlanner::new(&seen).charge_whole(Amount::from_micros(charge), Debt::Capped, now);
                let before = item.bucket().whole_level(now);
                let room = item.bucket().whole_limit().capacity().plus(before);
                let Some((amount, update)) = charged else {
                    prop_assert!(attempt == 0 || room.micros() < 17, "{before} could owe more");
                    break;
                };
                let cap = above_the_cap(&item.bucket(), now).min(0);
                if item.apply(&update) {
                    let after = item.bucket();
                    let taken = before.minus(after.whole_level(now)).micros();
                    prop_assert!((taken - amount.micros()).abs() <= 4, "{taken} for {amount}");
                    prop_assert!(above_the_cap(&after, now) >= cap - 1, "{after:?}");
                    break;
                }
                prop_assert!(attempt == 0, "planned from the row as it is");
                seen = item.bucket();
            }
        }
    }
}

/// The callers of one share were served before the charge came. The others do not pay for all of it.
#[test]
fn a_line_without_a_level_is_charged_too() {
    let (mut item, now, _) = used();
    taken(&mut item, name(0), 49, now);
    let bucket = item.bucket();
    let (amount, update) =
        RatePlanner::new(&bucket).charge_whole(Amount::from_tokens(60), Debt::Capped, now).unwrap();
    assert!(item.apply(&update) && amount == Amount::from_tokens(60));
    let after = item.bucket();
    let levels =
        after.every_line().iter().map(|line| line.level(now).micros() / 1_000_000).collect::<Vec<_>>();
    // Common, batch, search: rooms of 59, 39 and 50.
    assert_eq!(levels, [5, 3, -20]);
}

/// Condition: the tokens of each line that keep to the cap.
#[test]
fn charges_on_their_way_together_stay_within_the_cap() {
    let (mut item, now, _) = used();
    let bucket = item.bucket();
    let charge =
        || RatePlanner::new(&bucket).charge_whole(Amount::from_tokens(150), Debt::Capped, now).unwrap().1;
    assert!(item.apply(&charge()));
    assert!(!item.apply(&charge()), "by now no line may owe so much more");
    let bucket = item.bucket();
    let (rest, update) =
        RatePlanner::new(&bucket).charge_whole(Amount::from_tokens(150), Debt::Capped, now).unwrap();
    assert!(item.apply(&update) && rest == Amount::from_tokens(47));
    assert_eq!(item.bucket().whole_level(now), Amount::from_tokens(-100));
}

#[test]
fn where_nothing_may_be_charged_there_is_no_write() {
    let (mut item, now, _) = used();
    let charge = |item: &Item, debt| {
        RatePlanner::new(&item.bucket()).charge_whole(Amount::from_tokens(500), debt, now)
    };
    assert!(item.apply(&charge(&item, Debt::Capped).unwrap().1));
    assert_eq!(charge(&item, Debt::Capped), None);
    let (all, update) = charge(&item, Debt::Uncapped).unwrap();
    assert!(item.apply(&update) && all == Amount::from_tokens(500));
    assert_eq!(RatePlanner::new(&item.bucket()).charge_whole(Amount::ZERO, Debt::Capped, now), None);
}
