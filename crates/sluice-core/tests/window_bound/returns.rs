//! Returns of tokens beside starts that are still to come, one interleaving each.

use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Debt, RatePlanner, RateReceipt, Settle, Take, Timestamp};

use super::item::Item;
use super::settles::limit;
use super::{Caller, start};

/// A row of 100 tokens a minute, of which a call takes `per_call`, and calls at the same moment; those that
/// fit would not wait.
fn taken(per_call: i32, costs: &[i32]) -> (Item, Timestamp, Vec<RateReceipt>) {
    let tokens = |count| Cost::new(Amount::from_tokens(count)).unwrap();
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, limit(per_call), now);
    let (mut item, mut caller) = (Item::of(&bucket), Caller { reading: bucket });
    let mut receipts = Vec::new();
    for cost in costs {
        let fits = item.bucket().level(now) >= Amount::from_tokens(*cost);
        let patience = if fits { Duration::ZERO } else { Duration::from_secs(60) };
        let take = Take { cost: tokens(*cost), now, patience };
        receipts.push(caller.acquire(&mut item, take, 0).unwrap().receipt);
    }
    (item, now, receipts)
}

fn settle_unused(item: &mut Item, receipt: &RateReceipt, now: Timestamp) {
    let cost = receipt.cost().amount();
    let call = Settle { receipt: receipt.clone(), counted: cost, surplus: cost };
    let settling = RatePlanner::new(&item.bucket()).settle(&[call], Debt::Capped, now);
    assert!(item.apply(&settling.write.unwrap()));
}

#[test]
fn a_start_to_come_is_not_given_back_from_under_another_though_the_tokens_look_as_it_left_them() {
    // The third is booked, the fourth behind it; then the first gives back as much as the fourth took.
    let (mut item, now, receipts) = taken(1, &[10, 90, 20, 10]);
    settle_unused(&mut item, &receipts[0], now);
    assert_eq!(item.bucket().tokens(), Amount::from_tokens(-20));
    let back = receipts[2].give_back(now).unwrap();
    assert!(!item.apply(&back), "the fourth keeps its start, and the next caller would be given it too");
}

#[test]
fn a_large_call_is_not_given_back_while_a_start_is_to_come_though_the_line_is_above_zero() {
    let (mut item, now, receipts) = taken(40, &[30, 70, 40]);
    settle_unused(&mut item, &receipts[0], now);
    let later = now.after(Duration::from_secs(7));
    assert!(item.bucket().level(later) > Amount::ZERO, "the third starts after 24 s all the same");
    let back = receipts[1].give_back(later).unwrap();
    assert!(!item.apply(&back));
}

/// It is on its way while the bucket fills up, and others take as much as they did before.
#[test]
fn a_return_that_arrives_after_a_new_anchor_gives_nothing_back_though_the_tokens_look_as_it_left_them() {
    // Of a start that is past, of one that is still to come, and of a call too large to stand beside
    // another's start.
    for (per_call, costs) in [(1, &[10][..]), (1, &[100, 10]), (40, &[70])] {
        let (mut item, now, receipts) = taken(per_call, costs);
        let late = receipts.last().unwrap().give_back(now).unwrap();
        let (later, left) = (now.after(Duration::from_secs(180)), item.bucket().tokens());
        for cost in costs {
            let cost = Cost::new(Amount::from_tokens(*cost)).unwrap();
            let take = Take { cost, now: later, patience: Duration::from_secs(60) };
            Caller { reading: item.bucket() }.acquire(&mut item, take, 0).unwrap();
        }
        assert_eq!((item.bucket().tokens(), item.bucket().anchor()), (left, later));
        assert!(!item.apply(&late), "{costs:?}: what others took would be there once more");
    }
}
