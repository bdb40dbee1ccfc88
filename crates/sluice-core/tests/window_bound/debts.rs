//! What settlements take in addition: all of an honest overrun, and of a wrong use no more than the cap,
//! whoever writes at the same time.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Amount, Bucket, Cost, Debt, RatePlanner, RateReceipt, Settle, Take, Timestamp};

use super::item::Item;
use super::settles::limit;
use super::{Caller, start};

const CAPACITY: Amount = Amount::from_tokens(100);

fn tokens(count: i32) -> Amount {
    Amount::from_tokens(count)
}

fn world() -> (Item, Caller, Timestamp) {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, limit(1), now);
    (Item::of(&bucket), Caller { reading: bucket }, now)
}

fn take(caller: &mut Caller, item: &mut Item, cost: i32, now: Timestamp) -> RateReceipt {
    let take = Take { cost: Cost::new(tokens(cost)).unwrap(), now, patience: Duration::from_secs(3_600) };
    caller.acquire(item, take, 0).unwrap().receipt
}

fn overrun(receipt: &RateReceipt, used: Amount) -> Settle {
    let counted = receipt.cost().amount();
    Settle { receipt: receipt.clone(), counted, surplus: counted.minus(used) }
}

#[test]
fn a_wrong_unit_costs_one_refill_time() {
    let (mut item, mut caller, now) = world();
    let receipt = take(&mut caller, &mut item, 10, now);
    let wrong = overrun(&receipt, tokens(10_000_000));
    let settling = RatePlanner::new(&item.bucket()).settle(std::slice::from_ref(&wrong), Debt::Capped, now);
    assert_eq!(settling.changes, [tokens(-190)]);
    assert!(item.apply(&settling.write.unwrap()));
    assert_eq!(item.bucket().level(now), tokens(-100));
    let again = Settle { counted: tokens(200), surplus: tokens(200 - 10_000_000), ..wrong };
    let settling = RatePlanner::new(&item.bucket()).settle(&[again], Debt::Capped, now);
    assert_eq!(
        (settling.write, settling.changes),
        (None, vec![Amount::ZERO]),
        "said again, it takes no more"
    );
}

#[test]
fn fifty_wrong_units_at_once_cost_little_more_than_one() {
    let (mut item, mut caller, now) = world();
    let wrong: Vec<Settle> =
        (0..50).map(|_| overrun(&take(&mut caller, &mut item, 1, now), tokens(10_000_000))).collect();
    let settling = RatePlanner::new(&item.bucket()).settle(&wrong, Debt::Capped, now);
    assert!(item.apply(&settling.write.unwrap()));
    assert_eq!(
        item.bucket().level(now),
        tokens(-100 - 49),
        "the first to the cap, and each other as it reserved"
    );
}

#[test]
fn an_honest_overrun_is_charged_in_full_behind_starts_that_are_booked_far_ahead() {
    let (mut item, mut caller, now) = world();
    let receipts: Vec<RateReceipt> = (0..6).map(|_| take(&mut caller, &mut item, 50, now)).collect();
    assert!(item.bucket().level(now) < tokens(-199), "booked twice as far ahead as the cap");
    let calls = [overrun(&receipts[0], tokens(80)), overrun(&receipts[1], tokens(10_000))];
    let settling = RatePlanner::new(&item.bucket()).settle(&calls, Debt::Capped, now);
    assert_eq!(settling.changes, [tokens(-30), tokens(-50)], "at most as much again as was reserved");
    // Others may take at the same time.
    take(&mut caller, &mut item, 1, now);
    assert!(item.apply(&settling.write.unwrap()));
}

#[test]
fn two_that_settle_wrong_units_at_once_do_not_add_up() {
    for used_less in [false, true] {
        let (mut item, mut caller, now) = world();
        let receipts: Vec<RateReceipt> = (0..4).map(|_| take(&mut caller, &mut item, 10, now)).collect();
        let plan = |item: &Item, at: usize| {
            let mut calls = vec![overrun(&receipts[at], tokens(10_000_000))];
            calls.extend(used_less.then(|| overrun(&receipts[at + 2], tokens(4))));
            RatePlanner::new(&item.bucket()).settle(&calls, Debt::Capped, now).write.unwrap()
        };
        let (one, other) = (plan(&item, 0), plan(&item, 1));
        assert!(item.apply(&one));
        assert_eq!(item.bucket().level(now), tokens(-100));
        assert!(!item.apply(&other), "planned by the level that the first found");
        assert!(item.apply(&plan(&item, 1)));
        let rest = if used_less { -104 } else { -110 };
        assert_eq!(item.bucket().level(now), tokens(rest), "as much again as it had reserved");
    }
}

/// A take or a settlement of the oldest call.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take { cost: i32, patience_secs: u64 },
    Settle { calls: usize, used: i32, is_stale: bool },
}

fn steps() -> impl Strategy<Value = Vec<(i64, Step)>> {
    let take = (1..=60_i32, 0..200_u64).prop_map(|(cost, patience_secs)| Step::Take { cost, patience_secs });
    let used = prop_oneof![2 => 0..130_i32, 1 => 130..10_000_000_i32];
    let settle = (1..4_usize, used, any::<bool>());
    let settle = settle.prop_map(|(calls, used, is_stale)| Step::Settle { calls, used, is_stale });
    let gap = prop_oneof![3 => Just(0_i64), 3 => 0..2_000_000_i64, 1 => 0..120_000_000_i64];
    prop::collection::vec((gap, prop_oneof![take, settle]), 1..80)
}

proptest! {
    #![proptest_config(crate::cases::cases(1_500))]

    #[test]
    fn no_settlement_lowers_the_bucket_further_than_the_cap(steps in steps()) {
        let (mut item, mut caller, mut now) = world();
        let (mut out, mut before) = (Vec::new(), item.bucket());
        for (gap, step) in steps {
            now = Timestamp::from_micros(now.micros() + gap);
            let (calls, used, is_stale) = match step {
                Step::Take { cost, patience_secs } => {
                    let cost = Cost::new(tokens(cost)).unwrap();
                    let take = Take { cost, now, patience: Duration::from_secs(patience_secs) };
                    out.extend(caller.acquire(&mut item, take, 0).map(|granted| granted.receipt));
                    continue;
                }
                Step::Settle { calls, used, is_stale } => (calls, used, is_stale),
            };
            let due = out.drain(..calls.min(out.len()));
            let due: Vec<Settle> = due.map(|receipt| overrun(&receipt, tokens(used))).collect();
            let mut reading = if is_stale { before } else { item.bucket() };
            for _ in 0..4 {
                let settling = RatePlanner::new(&reading).settle(&due, Debt::Capped, now);
                let row = item.bucket();
                let Some(write) = settling.write else { break };
                if !item.apply(&write) {
                    reading = item.bucket();
                    continue;
                }
                let returned = settling.changes.iter().filter(|change| **change > Amount::ZERO);
                let mut level = returned.fold(row.level(now), |level, change| level.plus(*change));
                for (call, change) in due.iter().zip(&settling.changes).filter(|(_, change)| **change < Amount::ZERO) {
                    let (owed, reserved) = (call.surplus.abs(), call.receipt.cost().amount());
                    let most = level.plus(CAPACITY).max(reserved);
                    prop_assert!(change.abs() <= owed.min(most), "{change} of {owed} at a level of {level}");
                    prop_assert!(owed > reserved || change.abs() == owed, "an honest overrun is charged in full");
                    if reading == row {
                        prop_assert_eq!(change.abs(), owed.min(most), "no less than the cap allows");
                    }
                    level = level.plus(*change);
                }
                prop_assert_eq!(item.bucket().level(now), level);
                break;
            }
            before = item.bucket();
        }
    }
}
