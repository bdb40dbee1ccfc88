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
    assert_eq!(
        (item.bucket().anchor(), item.bucket().tokens()),
        (now.after(HOUR), Amount::from_tokens(tokens))
    );
    (item, now)
}

fn take(tokens: i32, now: Timestamp) -> Take {
    Take { cost: Cost::new(Amount::from_tokens(tokens)).unwrap(), now, patience: Duration::ZERO }
}

fn repairing(bucket: &Bucket) -> RatePlanner<'_> {
    RatePlanner::new(bucket).on_future_anchor(FutureAnchor::Repair)
}

fn patient(tokens: i32, now: Timestamp) -> Take {
    Take { patience: Duration::from_secs(30), ..take(tokens, now) }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn what_a_wrong_clock_left_is_taken_by_plain_writes_and_others_who_take_fail_none() {
    let (mut item, now) = left_ahead(8);
    let bucket = item.bucket();
    let Plan::Write(slow) = repairing(&bucket).plan(take(3, now)) else { panic!() };
    let Plan::Write(slow_and_patient) = repairing(&bucket).plan(patient(3, now)) else { panic!() };
    let Plan::Write(other) = RatePlanner::new(&bucket).plan(take(1, now)) else { panic!() };
    for planned in [other, slow, slow_and_patient] {
        assert_eq!(planned.form, Form::Spend);
        assert!(item.apply(&planned.update));
    }
    assert_eq!((item.bucket().anchor(), item.bucket().tokens()), (now.after(HOUR), Amount::from_tokens(1)));
    let Plan::Write(late) = repairing(&bucket).plan(patient(3, now)) else { panic!() };
    assert!(!item.apply(&late.update), "one is left, and no more flows in before a repair");
}

#[test]
fn who_finds_too_little_moves_the_anchor_back_and_nothing_is_given_away() {
    let (mut item, now) = left_ahead(4);
    let bucket = item.bucket();
    let Plan::Write(planned) = repairing(&bucket).plan(patient(5, now)) else { panic!() };
    assert!(item.apply(&planned.update));
    let after = item.bucket();
    assert_eq!(
        (after.anchor(), after.level(now)),
        (now, Amount::from_tokens(-1)),
        "four were there, five are taken"
    );
    assert_eq!(after.level(now.after(secs(2))), Amount::from_tokens(1), "and it rises again");
    assert_eq!((planned.form, &planned.after), (Form::Reanchor, &after));
    let alone = repairing(&bucket).repair(now).unwrap();
    let mut item = Item::of(&bucket);
    assert!(item.apply(&alone.update));
    assert_eq!(item.bucket(), alone.after);
}

/// A wrong clock finds the bucket full after each repair.
#[test]
fn a_second_repair_comes_when_the_bucket_could_have_filled_since_the_first_and_a_refusal_says_when() {
    let (mut item, now) = left_ahead(0);
    let first = repairing(&item.bucket()).repair(now).unwrap();
    assert!(item.apply(&first.update));
    let mut wrong = Caller { reading: item.bucket() };
    wrong.acquire(&mut item, take(10, now.after(secs(1))), 3_600_000_000).unwrap();
    let (soon, then) = (now.after(secs(4)), now.after(secs(10)));
    let bucket = item.bucket();
    assert_eq!(repairing(&bucket).repair(soon), None);
    for asked in [take(1, soon), patient(1, soon)] {
        let Plan::Refuse(refusal) = repairing(&bucket).plan(asked) else { panic!("{asked:?}") };
        assert_eq!(refusal.wait, secs(6));
    }
    let Plan::Write(planned) = repairing(&bucket).plan(patient(1, then)) else { panic!() };
    assert!(item.apply(&planned.update));
    assert_eq!(item.bucket().anchor(), then);
}

/// Another repaired, and a wrong clock has written what stood there before.
#[test]
fn a_repair_that_comes_soon_after_another_fails_and_an_instant_that_no_clock_has_shown_keeps_none() {
    let (item, now) = left_ahead(2);
    let bucket = item.bucket();
    let alone = repairing(&bucket).repair(now).unwrap().update;
    let Plan::Write(booking) = repairing(&bucket).plan(patient(5, now)) else { panic!() };
    for (repaired_at, is_made) in [
        (now.before(secs(9)), false),
        (now.before(secs(10)), true),
        (now.after(secs(4)), false),
        (now.after(secs(5)), true),
    ] {
        for update in [&alone, &booking.update] {
            let mut item = item.clone();
            item.put("repaired_at", repaired_at.to_string());
            assert_eq!(repairing(&item.bucket()).repair(now).is_some(), is_made);
            assert_eq!(item.apply(update), is_made, "{repaired_at}");
        }
    }
}

/// It took all of the capacity twice a second, for as long as healthy callers ask.
#[test]
fn a_client_that_keeps_writing_anchors_of_the_future_gains_the_refill_once_more_and_the_capacity_twice() {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, ten(), begin);
    let (mut item, mut granted) = (Item::of(&bucket), 0);
    let (mut wrong, mut healthy) = (Caller { reading: bucket.clone() }, Caller { reading: bucket });
    for half_seconds in 0..1_200 {
        let now = begin.after(Duration::from_millis(500 * half_seconds));
        granted += u32::from(wrong.acquire(&mut item, take(1, now), 3_600_000_000).is_some());
        while repaired(&mut healthy, &mut item, take(1, now), 0).is_some() {
            granted += 1;
        }
    }
    let bound = 10 + 600 + 600 + 2 * 10;
    assert!((600..=bound).contains(&granted), "{granted}, at most {bound}");
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

/// Nobody can take from a bucket that was left empty; without a write of its own it would stay so for an
/// hour.
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
    assert_eq!(
        repairing(&repaired).plan_batch(&[claim], now, Starts::InReply, Amount::ZERO).write,
        None,
        "once"
    );
}

/// A caller that waits books from the repaired line, in the same write.
#[test]
fn a_booking_repairs_the_anchor_and_starts_when_the_repaired_line_has_its_tokens() {
    let (mut item, now) = left_ahead(0);
    let bucket = item.bucket();
    let patient = patient(2, now);
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
    let Plan::Write(late) = repairing(&bucket).plan(patient(9, now)) else { panic!() };
    let alone = repairing(&bucket).repair(now).unwrap();
    let Plan::Write(other) = RatePlanner::new(&bucket).plan(take(1, now.after(Duration::from_secs(5))))
    else {
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

/// What was granted, by its start, and what wrong writes gained, by when they did.
type Seen = (Vec<(i64, i64)>, Vec<(i64, i64)>);

/// Clocks here err by half of it either way.
const CLOCKS_DIFFER_BY: i64 = 1_000_000;

/// Three with clocks that err by `error`, who repair, and one whose clock is an hour ahead and runs on from
/// there.
fn run(limit: Limit, steps: &[Step]) -> Seen {
    let (begin, dimension) = start();
    let bucket = Bucket::full(dimension, limit, begin);
    let mut item = Item::of(&bucket);
    let mut callers: Vec<Caller> = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
    let (mut now, mut grants, mut gains) = (begin.micros(), Vec::new(), Vec::new());
    for step in steps {
        now += step.gap.min(2_000_000);
        let patience = Duration::from_millis(step.patience_ms);
        let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience };
        let granted = if step.caller == 3 {
            let before = item.bucket();
            let granted =
                callers[3].acquire(&mut item, Take { patience: Duration::ZERO, ..take }, 3_600_000_000);
            gains.extend(granted.is_some().then(|| (now, gain(&limit, &before, &item.bucket(), take.now))));
            granted
        } else {
            repaired(&mut callers[step.caller], &mut item, take, step.error)
        };
        grants.extend(granted.map(|granted| (granted.start, granted.cost)));
    }
    (grants, gains)
}

/// What a write of the wrong clock gained at `now`, in micro-tokens.
fn gain(limit: &Limit, before: &Bucket, after: &Bucket, now: Timestamp) -> i64 {
    if after.anchor() == before.anchor() {
        // It took on a line that rises by its clock, and is flat for the others: what they had not left there
        // it gains.
        let short = |bucket: &Bucket| Amount::ZERO.minus(bucket.level(now)).max(Amount::ZERO);
        return short(after).minus(short(before)).micros();
    }
    // It found the bucket full: what was missing, and what was booked, is there a second time. What a clock
    // that is ahead took early is forgotten with the anchor that it left, and a clock that lags may repair:
    // the line then rises from its time.
    limit.capacity().minus(before.level(now)).micros() + refill(limit, CLOCKS_DIFFER_BY)
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
    #![proptest_config(crate::cases::cases(400))]

    /// Beside one that writes anchors an hour ahead, again and again: each such write gains what is missing
    /// in the bucket, the capacity at most, what is booked, and the errors of clocks once more. Between two
    /// of them the bound is what it is.
    #[test]
    fn each_wrong_write_gains_the_capacity_and_what_is_booked_at_most_and_the_bound_holds_again_from_then_on(
        limit in tight_limits(), steps in steps(CLOCKS_DIFFER_BY / 2, 4_000),
    ) {
        let (mut grants, gains) = run(limit, &steps);
        grants.sort_unstable();
        for first in 0..grants.len() {
            let mut sum = 0;
            for last in first..grants.len() {
                sum += grants[last].1;
                let (from, to) = (grants[first].0, grants[last].0);
                // What is booked before a wrong write starts after it: by the patience of its caller and the
                // errors of two clocks.
                let gained: i64 = gains.iter().filter(|(at, _)| *at <= to).map(|(_, gain)| gain).sum();
                let gained_before: i64 = gains.iter().filter(|(at, _)| *at + 5_000_000 < from).map(|(_, gain)| gain).sum();
                let bound = limit.capacity().micros() + gained - gained_before + refill(&limit, to - from + CLOCKS_DIFFER_BY);
                prop_assert!(sum <= bound, "{sum} granted in {} us, at most {bound}", to - from);
            }
        }
    }

    /// However often healthy callers ask.
    #[test]
    fn what_wrong_writes_gain_is_what_two_find_and_one_more_in_each_time_to_fill(
        limit in tight_limits(), steps in steps(CLOCKS_DIFFER_BY / 2, 4_000),
    ) {
        let (mut grants, gains) = run(limit, &steps);
        grants.sort_unstable();
        let (Some(first), Some(last)) = (grants.first(), grants.last()) else { return Ok(()) };
        let whole = limit.capacity().micros();
        let most = gains.iter().map(|(_, gain)| *gain).max().unwrap_or_default();
        let window = last.0 - first.0 + CLOCKS_DIFFER_BY;
        let times = 2 + refill(&limit, window) / whole;
        let bound = whole + refill(&limit, window) + times * most;
        let sum: i64 = grants.iter().map(|(_, cost)| cost).sum();
        prop_assert!(sum <= bound, "{sum} granted in {window} us, at most {bound}");
    }
}
