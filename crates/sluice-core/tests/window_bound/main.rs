//! The promises of a rate bucket, as properties: the planner's own statements are applied to one row by a
//! small evaluator of their expressions, so that a bound taken out of an expression is found here.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

mod batch;
#[path = "../cases/mod.rs"]
mod cases;
mod charges;
mod clocks;
mod debts;
mod foreign;
mod future_anchor;
mod item;
mod lowers;
mod refill;
mod returns;
mod settles;
mod shares;
mod tickets;

use item::Item;
use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, Claim, Cost, Dimension, Form, Limit, LimitType, Plan, Planned, Rate, RatePlanner,
    RateReceipt, Starts, Take, Timestamp,
};

/// What one reply may lower a bucket by, as refill: more than these buckets hold, except where a test says
/// so.
const LONGEST: Duration = Duration::from_secs(900);

/// A caller with its own, possibly stale, reading and its own clock.
struct Caller {
    reading: Bucket,
}

struct Granted {
    start: i64,
    cost: i64,
    receipt: RateReceipt,
}

impl Caller {
    /// Plan, write, on a failed condition plan again from the row it returned: as the client does.
    fn acquire(&mut self, item: &mut Item, take: Take, error: i64) -> Option<Granted> {
        let local = Timestamp::from_micros(take.now.micros() + error);
        let take = Take { now: local, ..take };
        for attempt in 0..4 {
            let guesses = attempt == 0 && take.cost.amount().micros() % 2 == 0;
            let exact = RatePlanner::new(&self.reading).expecting_spent(guesses);
            let planner = if attempt > 1 { exact.with_headroom(Duration::from_millis(100)) } else { exact };
            let planned = match planner.plan(take) {
                Plan::Write(planned) => planned,
                // The first refusal is judged by a stale reading: probe instead, as the client does.
                Plan::Refuse(_) if attempt == 0 => planner.probe(take),
                Plan::Refuse(_) | Plan::NeverSatisfiable { .. } => return None,
            };
            let granted = item.apply(&planned.update);
            self.reading = item.bucket();
            if granted {
                let receipt = RateReceipt::new(self.reading.clone(), take.cost);
                let start = receipt.start_at(local).micros() - error;
                return Some(Granted { start, cost: take.cost.amount().micros(), receipt });
            }
        }
        None
    }
}

#[derive(Clone, Debug)]
struct Step {
    gap: i64,
    caller: usize,
    cost: i64,
    error: i64,
    patience_ms: u64,
}

fn steps(max_error: i64, patience_ms: u64) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        5 => Just(0_i64),
        10 => 0..2_000_i64,
        10 => 0..2_000_000_i64,
        2 => 0..90_000_000_i64,
        1 => 0..4_000_000_000_i64,
    ];
    let step = (gap, 0_usize..4, 1..3_000_000_i64, -max_error..=max_error, 0..=patience_ms);
    prop::collection::vec(step, 1..120).prop_map(|steps| {
        let make = |(gap, caller, cost, error, patience_ms)| Step { gap, caller, cost, error, patience_ms };
        steps.into_iter().map(make).collect()
    })
}

fn limits() -> impl Strategy<Value = Limit> {
    // From two calls an hour to thousands a second.
    (2_000_000_i64..5_000_000_000, prop_oneof![10_u64..1_000, 1_000_u64..100_000, 100_000_u64..3_600_000])
        .prop_map(|(capacity, window_ms)| {
            let capacity = Amount::from_micros(capacity);
            let rate = Rate::per(capacity, Duration::from_millis(window_ms)).unwrap();
            Limit::rate(LimitType::Tokens, capacity, rate, Cost::new(Amount::from_micros(1)).unwrap())
                .unwrap()
        })
}

/// Where queues form: a few calls, and some seconds for each.
fn tight_limits() -> impl Strategy<Value = Limit> {
    (3_000_000_i64..5_000_000, 2_000_u64..10_000).prop_map(|(capacity, window_ms)| {
        let capacity = Amount::from_micros(capacity);
        let rate = Rate::per(capacity, Duration::from_millis(window_ms)).unwrap();
        Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap()
    })
}

fn start() -> (Timestamp, Dimension) {
    (Timestamp::from_secs(1_709_550_002), Dimension::new("openai#tpm").unwrap())
}

/// The write of a transaction for one caller.
fn pinned(reading: &Bucket, take: Take) -> Option<Planned> {
    let claim = Claim { cost: take.cost, patience: take.patience };
    RatePlanner::new(reading).plan_batch(&[claim], take.now, Starts::Pinned, Amount::ZERO).write
}

fn cost(micros: i64) -> Cost {
    Cost::new(Amount::from_micros(micros)).unwrap()
}

/// Tokens that flow in during `micros`, rounded up.
fn refill(limit: &Limit, micros: i64) -> i64 {
    let wait = |amount: i64| {
        let empty = Bucket::full(start().1, *limit, Timestamp::from_micros(0));
        empty.reaches(Amount::from_micros(limit.capacity().micros() + amount)).unwrap().micros()
    };
    // The rate is private to core: measure it over a long span, through the public line.
    let probe = 1_000_000_000_000_i64;
    let numerator = i128::from(micros) * i128::from(probe);
    let span = i128::from(wait(probe)).max(1);
    i64::try_from(numerator / span + 2).unwrap()
}

fn check_windows(limit: &Limit, grants: &mut [(i64, i64)], error: i64) -> Result<(), TestCaseError> {
    grants.sort_unstable();
    for first in 0..grants.len() {
        let mut sum = 0;
        for last in first..grants.len() {
            sum += grants[last].1;
            let window = grants[last].0 - grants[first].0;
            let bound = limit.capacity().micros() + refill(limit, window + 2 * error);
            prop_assert!(sum <= bound, "{sum} granted in {window} us, at most {bound}");
        }
    }
    Ok(())
}

fn run(limit: Limit, steps: &[Step]) -> Vec<(i64, i64)> {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, limit, now);
    let mut item = Item::of(&bucket);
    let mut callers: Vec<Caller> = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
    let mut now = now.micros();
    let mut grants = Vec::new();
    for step in steps {
        now += step.gap;
        let patience = Duration::from_millis(step.patience_ms);
        let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience };
        let granted = callers[step.caller].acquire(&mut item, take, step.error);
        grants.extend(granted.map(|g| (g.start, g.cost)));
    }
    grants
}

proptest! {
    #![proptest_config(cases::cases(400))]

    #[test]
    fn exact_clocks_grant_at_most_rate_times_window_plus_capacity(limit in limits(), steps in steps(0, 0)) {
        check_windows(&limit, &mut run(limit, &steps), 0)?;
    }

    #[test]
    fn clocks_off_by_e_add_twice_e_once(limit in limits(), steps in steps(2_000_000, 0)) {
        check_windows(&limit, &mut run(limit, &steps), 2_000_000)?;
    }

    #[test]
    fn booked_starts_hold_the_same_bound(limit in limits(), steps in steps(0, 20_000)) {
        check_windows(&limit, &mut run(limit, &steps), 0)?;
    }

    #[test]
    fn booked_starts_of_clocks_off_by_e_hold_the_same_bound(limit in limits(), steps in steps(500_000, 20_000)) {
        check_windows(&limit, &mut run(limit, &steps), 500_000)?;
    }

    #[test]
    fn starts_that_are_given_back_before_their_time_hold_the_same_bound(
        limit in tight_limits(), steps in steps(0, 20_000), drops in prop::collection::vec((0_usize..200, any::<bool>()), 120),
    ) {
        let (begin, dimension) = start();
        let bucket = Bucket::full(dimension, limit, begin);
        let mut item = Item::of(&bucket);
        let mut callers: Vec<Caller> = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
        let (mut now, mut booked, mut made) = (begin.micros(), Vec::<Granted>::new(), Vec::new());
        for (step, (which, drop)) in steps.iter().zip(&drops) {
            now += step.gap.min(300_000);
            let (past, future) = booked.into_iter().partition(|grant| grant.start <= now);
            made.extend::<Vec<Granted>>(past);
            booked = future;
            if *drop && !booked.is_empty() {
                let left = booked.swap_remove(which % booked.len());
                if let Some(update) = left.receipt.give_back(Timestamp::from_micros(now)) {
                    item.apply(&update);
                }
            }
            let patience = Duration::from_millis(step.patience_ms);
            let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(now), patience };
            booked.extend(callers[step.caller].acquire(&mut item, take, 0));
        }
        made.extend(booked);
        let mut grants: Vec<_> = made.iter().map(|grant| (grant.start, grant.cost)).collect();
        check_windows(&limit, &mut grants, 0)?;
    }

    #[test]
    fn a_refused_caller_that_returns_at_its_time_alone_is_granted(limit in limits(), steps in steps(0, 0), micros in 1..3_000_000_i64) {
        let (now, dimension) = start();
        let mut bucket = Bucket::full(dimension, limit, now);
        let mut item = Item::of(&bucket);
        let mut now = now.micros();
        for step in &steps {
            let take = Take { cost: cost(step.cost.min(limit.capacity().micros())), now: Timestamp::from_micros(now), patience: Duration::ZERO };
            if let Plan::Write(planned) = RatePlanner::new(&bucket).plan(take) {
                prop_assert!(item.apply(&planned.update), "a fresh reading was refused");
                bucket = item.bucket();
                prop_assert_eq!(&bucket.tokens(), &planned.after.tokens(), "the prediction is the row");
                prop_assert_eq!(bucket.version(), planned.after.version());
            }
            now += step.gap.min(1_000);
        }
        let take = Take { cost: cost(micros.min(limit.capacity().micros())), now: Timestamp::from_micros(now), patience: Duration::ZERO };
        if let Plan::Refuse(refusal) = RatePlanner::new(&bucket).plan(take) {
            let back = take.now.after(refusal.wait);
            let granted = |now| matches!(RatePlanner::new(&bucket).plan(Take { now, ..take }), Plan::Write(Planned { update, .. }) if item.holds(&update));
            prop_assert!(granted(back));
            prop_assert!(!granted(Timestamp::from_micros(back.micros() - 1)), "and not a moment earlier");
        }
    }

    #[test]
    fn overload_uses_99_percent_of_what_is_allowed(
        limit in limits(), callers in 1_usize..5, call in 1_000_i64..3_000_000, patience_ms in prop_oneof![Just(0_u64), 0..5_000_u64],
    ) {
        let (begin, dimension) = start();
        let bucket = Bucket::full(dimension, limit, begin);
        let mut item = Item::of(&bucket);
        // A call worth a millisecond of refill at least (what is less is lost in the microseconds of the
        // clock), and not so small that the first burst alone would be thousands.
        let capacity = limit.capacity().micros();
        let call = call.max(refill(&limit, 1_000)).max(capacity / 200).min(capacity);
        // As long as some five hundred calls take, so that the one under way at the end is no matter.
        let end = bucket.reaches(Amount::from_micros(capacity + call.saturating_mul(500))).unwrap();
        let mut waiting: Vec<(Timestamp, Caller)> = (0..callers).map(|_| (begin, Caller { reading: bucket.clone() })).collect();
        let (mut granted, mut asked) = (0, 0);
        // Each caller comes back when it was told to, or when its call has started.
        while let Some((now, caller)) = waiting.iter_mut().min_by_key(|(at, _)| *at).filter(|(at, _)| *at < end) {
            let take = Take { cost: cost(call), now: *now, patience: Duration::from_millis(patience_ms) };
            let told = match caller.acquire(&mut item, take, 0) {
                Some(grant) => {
                    granted += if grant.start < end.micros() { grant.cost } else { 0 };
                    Timestamp::from_micros(grant.start)
                }
                None => caller.reading.reaches(Amount::from_micros(call)).unwrap(),
            };
            asked += 1;
            prop_assert!(asked < 20_000, "callers that keep to what they are told ask {asked} times");
            *now = told.max(*now);
        }
        let ideal = capacity + refill(&limit, end.micros_since(begin));
        prop_assert!(granted <= ideal && (granted + call) * 100 >= ideal * 99, "{granted} of {ideal}");
    }

    #[test]
    fn a_pinned_start_is_in_the_condition(limit in limits(), spent in 1..2_000_000_i64, other in 1..2_000_000_i64) {
        let (now, dimension) = start();
        let mut item = Item::of(&Bucket::full(dimension, limit, now));
        let all = Take { cost: cost(limit.capacity().micros() - 1), now, patience: Duration::ZERO };
        let Plan::Write(drain) = RatePlanner::new(&item.bucket()).plan(all) else { panic!() };
        prop_assert!(item.apply(&drain.update));
        let reading = item.bucket();
        let patient = |micros| Take { cost: cost(micros), now, patience: Duration::from_secs(1 << 40) };
        let Some(mine) = pinned(&reading, patient(spent)) else { panic!() };
        let Plan::Write(theirs) = RatePlanner::new(&reading).plan(patient(other)) else { panic!() };
        let promised = RateReceipt::new(mine.after.clone(), cost(spent)).start_at(now);
        prop_assert!(item.holds(&mine.update));
        prop_assert!(item.apply(&theirs.update));
        // A microsecond of refill can be worth more than both calls: then there is room for both at the
        // promised start.
        if item.apply(&mine.update) {
            let start = RateReceipt::new(item.bucket(), cost(spent)).start_at(now);
            prop_assert!(start <= promised, "{start} was promised as {promised}");
        }
    }

    #[test]
    fn what_is_given_back_is_never_more_than_was_taken_nor_above_capacity(
        limit in limits(), steps in steps(0, 5_000), idle in 0..100_000_000_i64,
    ) {
        let (now, dimension) = start();
        let bucket = Bucket::full(dimension, limit, now);
        let mut item = Item::of(&bucket);
        let mut caller = Caller { reading: bucket };
        let mut at = now.micros();
        for step in &steps {
            at += step.gap.min(3_000_000);
            let take = Take { cost: cost(step.cost), now: Timestamp::from_micros(at), patience: Duration::from_millis(step.patience_ms) };
            let before = item.bucket();
            let Some(granted) = caller.acquire(&mut item, take, 0) else { continue };
            let later = Timestamp::from_micros(at + idle % (step.gap + 1));
            if let Some(update) = granted.receipt.give_back(later) && item.apply(&update) {
                // A large call that may be booked moves the anchor by a microsecond at least, and takes
                // effect there.
                let effect = item.bucket().anchor().max(take.now);
                let (before, after) = (before.level(effect), item.bucket().level(take.now));
                prop_assert!(after <= before, "a call that was never made left {after} of {before}");
            }
        }
    }
}

#[test]
fn headroom_lets_callers_of_a_bucket_that_stays_full_spend_on_one_anchor() {
    let capacity = Amount::from_tokens(60_000);
    let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
    let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, limit, now);
    let mut item = Item::of(&bucket);
    let take = |now| Take { cost: Cost::ONE, now, patience: Duration::ZERO };
    let now = now.after(Duration::from_secs(1));
    let Plan::Write(first) =
        RatePlanner::new(&bucket).with_headroom(Duration::from_millis(100)).plan(take(now))
    else {
        panic!()
    };
    assert_eq!(first.form, Form::Full);
    assert!(item.apply(&first.update));
    // Ten callers plan a round trip later, when 10 tokens flowed back for the one that was taken: none
    // disturbs another.
    let reading = item.bucket();
    let later = now.after(Duration::from_millis(10));
    for _ in 0..10 {
        let Plan::Write(spend) = RatePlanner::new(&reading).plan(take(later)) else { panic!() };
        assert_eq!(spend.form, Form::Spend);
        assert!(item.apply(&spend.update));
    }
}

#[test]
fn a_spend_that_expects_others_to_have_spent_fails_only_in_a_full_bucket() {
    let limit = {
        let capacity = Amount::from_tokens(60);
        let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
        Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap()
    };
    let (now, dimension) = start();
    let mut item = Item::of(&Bucket::full(dimension, limit, now));
    let plan = |reading: &Bucket, calls: i64, now: Timestamp, expects: bool| {
        let take = Take { cost: cost(calls * 1_000_000), now, patience: Duration::ZERO };
        match RatePlanner::new(reading).expecting_spent(expects).plan(take) {
            Plan::Write(planned) => planned,
            other => panic!("{other:?}"),
        }
    };
    assert!(item.apply(&plan(&item.bucket(), 30, now, false).update));
    let reading = item.bucket();
    let later = now.after(Duration::from_secs(40));
    assert!(item.apply(&plan(&reading, 20, now.after(Duration::from_secs(20)), false).update));

    // By the old reading the bucket is full, and it is not.
    let (full, spend) = (plan(&reading, 1, later, false), plan(&reading, 1, later, true));
    assert_eq!((full.form, spend.form), (Form::Full, Form::Spend));
    assert!(!item.apply(&full.update));
    assert!(item.apply(&spend.update));
    assert_eq!(item.bucket().level(later), Amount::from_tokens(49));

    let (reading, full_again) = (item.bucket(), later.after(Duration::from_secs(20)));
    assert!(!item.apply(&plan(&reading, 1, full_again, true).update), "it would pay out more than it holds");
    assert!(item.apply(&plan(&reading, 1, full_again, false).update));
}
