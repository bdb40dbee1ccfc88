//! Clients in other languages, which read the row and write it back: tokens as refilled by their clock, the
//! anchor at it. Theirs may lag behind the anchor, so that they move it back.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Amount, Bucket, Limit, Take, Timestamp};

use super::item::Item;
use super::{Caller, Step, cost, refill, start, steps, tight_limits};

/// What such a client makes of a time before the anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elapsed {
    /// It is negative: the refill of it is taken off.
    Signed,
    /// It counts as none.
    Clamped,
}

/// A read and a write on condition of the version, with nobody in between. True where it was granted; how far
/// the anchor went back.
fn foreign(item: &mut Item, limit: &Limit, micros: i64, now: i64, elapsed: Elapsed) -> (bool, i64) {
    let bucket = item.bucket();
    let (back, whole) = (bucket.anchor().micros() - now, limit.capacity().micros());
    let level = if back <= 0 {
        bucket.level(Timestamp::from_micros(now)).micros()
    } else if elapsed == Elapsed::Clamped {
        bucket.tokens().micros().min(whole)
    } else {
        (bucket.tokens().micros() - refill(limit, back)).min(whole)
    };
    if level < micros {
        return (false, 0);
    }
    item.put("tokens", Amount::from_micros(level - micros).to_string());
    item.put("last_refill_at", Timestamp::from_micros(now).to_string());
    item.put("version", (bucket.version() + 1).to_string());
    (true, back.max(0))
}

/// Tokens that were granted, when they were asked for, and from when on they are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    start: i64,
    cost: i64,
    asked: i64,
}

/// Grants, and by how much anchors went back, by when they did.
type Seen = (Vec<Grant>, Vec<(i64, i64)>);

/// Two of our callers beside two of theirs.
fn run(limit: Limit, steps: &[Step], elapsed: Elapsed) -> Seen {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, limit, begin);
    let mut item = Item::of(&bucket);
    let mut callers: Vec<Caller> = (0..2).map(|_| Caller { reading: bucket.clone() }).collect();
    let (mut now, mut grants, mut moved) = (begin.micros(), Vec::new(), Vec::new());
    for step in steps {
        now += step.gap.min(1_000_000);
        if let Some(caller) = callers.get_mut(step.caller) {
            let patience = Duration::from_millis(step.patience_ms);
            let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience };
            let granted = caller.acquire(&mut item, take, step.error);
            grants.extend(granted.map(|granted| Grant {
                start: granted.start,
                cost: granted.cost,
                asked: now,
            }));
        } else {
            let (granted, back) = foreign(&mut item, &limit, step.cost, now + step.error, elapsed);
            grants.extend(granted.then_some(Grant { start: now, cost: step.cost, asked: now }));
            moved.push((now, back));
        }
    }
    (grants, moved)
}

/// An anchor that moves back after a start was booked, and before it, lets others start beside it: such a
/// move counts from the booking on.
fn check(limit: &Limit, grants: &mut [Grant], moved: &[(i64, i64)], error: i64) -> Result<(), TestCaseError> {
    grants.sort_unstable();
    for first in 0..grants.len() {
        let (mut sum, mut asked) = (0, i64::MAX);
        for last in first..grants.len() {
            sum += grants[last].cost;
            asked = asked.min(grants[last].asked);
            let (from, to) = (grants[first].start, grants[last].start);
            let inside = moved.iter().filter(|(at, _)| (asked..=to).contains(at));
            let back: i64 = inside.map(|(_, back)| back).sum();
            let bound = limit.capacity().micros() + refill(limit, to - from + 2 * error + back);
            prop_assert!(
                sum <= bound,
                "{sum} granted in {} us, at most {bound} with {back} us back",
                to - from
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases::cases(500))]

    /// One that takes a negative time for what it is stays on the line: the bound is that of everyone.
    #[test]
    fn foreign_clients_that_move_anchors_back_along_the_line_hold_the_bound(
        limit in tight_limits(), steps in steps(2_000_000, 4_000),
    ) {
        let (mut grants, _) = run(limit, &steps, Elapsed::Signed);
        check(&limit, &mut grants, &[], 2_000_000)?;
    }

    /// One that takes it for none gains the refill of the way back, with each such write.
    #[test]
    fn foreign_clients_that_keep_tokens_while_they_move_anchors_back_gain_the_refill_of_the_way_back(
        limit in tight_limits(), steps in steps(2_000_000, 4_000),
    ) {
        let (mut grants, moved) = run(limit, &steps, Elapsed::Clamped);
        check(&limit, &mut grants, &moved, 2_000_000)?;
    }
}

/// The bound above would hold of a client that never does.
#[test]
fn such_a_client_does_gain_it() {
    let limit = super::settles::limit(1);
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, limit, begin);
    let mut item = Item::of(&bucket);
    // 100 a minute; the clocks of two such clients are 6 s apart, in which 10 tokens flow in.
    let at = |secs: i64| begin.micros() + secs * 1_000_000;
    let mut take =
        |tokens: i64, secs| foreign(&mut item, &limit, tokens * 1_000_000, at(secs), Elapsed::Clamped).0;
    assert!(take(99, 6));
    for round in 0..20 {
        assert!(take(1, 0), "round {round}, by the clock that lags");
        assert!(take(8, 6), "round {round}, at the same moment by the other");
    }
}
