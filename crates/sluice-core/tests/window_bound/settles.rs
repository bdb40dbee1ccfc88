//! What calls really used, settled at any time: the bound holds for it, and nothing is given back twice.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, Cost, Debt, Limit, LimitType, Observation, Rate, RatePlanner, RateReceipt, Remaining,
    Settle, Take, Timestamp,
};

use super::item::Item;
use super::{Caller, LONGEST, check_windows, cost, start};

#[derive(Clone, Debug)]
struct Step {
    gap: i64,
    caller: usize,
    /// In thousandths of the capacity.
    cost: i64,
    patience_ms: u64,
    /// Of the cost, in thousandths, used; a call that was never made is given back.
    used: Option<i64>,
    /// How long the call takes, and then its report.
    runs: i64,
    /// Settled together with those that are due by then.
    late: i64,
    /// The writer of the settles knows the row as it was at the settle before.
    is_stale: bool,
}

fn steps(patience_ms: u64, largest: i64) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        5 => Just(0_i64),
        10 => 0..2_000_i64,
        10 => 0..500_000_i64,
        5 => 0..5_000_000_i64,
        1 => 0..400_000_000_i64,
    ];
    let used =
        prop_oneof![2 => Just(None), 3 => (0..300_i64).prop_map(Some), 2 => (0..=1_000_i64).prop_map(Some)];
    let late = prop_oneof![3 => Just(0_i64), 1 => 0..3_000_000_i64];
    let step = (gap, 0_usize..4, 1..=largest, 0..=patience_ms, used, 0..8_000_000_i64, late, any::<bool>());
    prop::collection::vec(step, 1..150).prop_map(|steps| {
        let make = |(gap, caller, cost, patience_ms, used, runs, late, is_stale)| Step {
            gap,
            caller,
            cost,
            patience_ms,
            used,
            runs,
            late,
            is_stale,
        };
        steps.into_iter().map(make).collect()
    })
}

/// Tight enough for queues: a window of some seconds.
fn limits() -> impl Strategy<Value = Limit> {
    (1_000_000_i64..2_000_000_000, 1_000_u64..20_000, prop_oneof![1_i64..400, 1_i64..1_000]).prop_map(
        |(capacity, window_ms, per_call)| {
            let whole = Amount::from_micros(capacity);
            let rate = Rate::per(whole, Duration::from_millis(window_ms)).unwrap();
            Limit::rate(LimitType::Tokens, whole, rate, cost((capacity / 1_000 * per_call).max(1))).unwrap()
        },
    )
}

/// A call under way, or over and not settled yet.
struct Call {
    start: i64,
    due: i64,
    cost: i64,
    /// `None`: it was never made.
    used: Option<i64>,
    receipt: RateReceipt,
}

struct World {
    item: Item,
    callers: Vec<Caller>,
    /// The row as those who settle know it.
    before: Bucket,
    out: Vec<Call>,
    /// Start, and what was used as far as the bucket was told.
    made: Vec<(i64, i64)>,
}

impl World {
    fn new(limit: Limit) -> Self {
        let (now, dimension) = start();
        let bucket = Bucket::full(dimension, limit, now);
        let callers = (0..4).map(|_| Caller { reading: bucket.clone() }).collect();
        Self { item: Item::of(&bucket), callers, before: bucket, out: Vec::new(), made: Vec::new() }
    }

    fn take(&mut self, step: &Step, now: i64, limit: &Limit) {
        let micros = (limit.capacity().micros() / 1_000 * step.cost).max(1);
        let patience = Duration::from_millis(step.patience_ms);
        let take = Take { cost: cost(micros), now: Timestamp::from_micros(now), patience };
        let Some(granted) = self.callers[step.caller].acquire(&mut self.item, take, 0) else { return };
        // A caller may leave before its start, too.
        let from = if step.used.is_none() { now } else { granted.start };
        let due = from + step.runs + step.late;
        let used = step.used.map(|thousandths| granted.cost / 1_000 * thousandths);
        self.out.push(Call { start: granted.start, due, cost: granted.cost, used, receipt: granted.receipt });
    }

    /// Settles what is due, in one write; a failed condition is planned again from the row, as the client
    /// does.
    fn settle(&mut self, now: i64, is_stale: bool) {
        let (due, out): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().partition(|call| call.due <= now);
        self.out = out;
        let (due, unmade): (Vec<_>, Vec<_>) = due.into_iter().partition(|call| call.used.is_some());
        for call in unmade {
            // As far as it came back it was never there; else its tokens count as used at its start.
            let before = self.item.bucket().tokens();
            let back = call.receipt.give_back(Timestamp::from_micros(now));
            let came_back = back.is_some_and(|update| self.item.apply(&update));
            let back = if came_back { self.item.bucket().tokens().minus(before).micros() } else { 0 };
            self.made.push((call.start, call.cost - back));
        }
        let surplus = |call: &Call| Settle {
            receipt: call.receipt.clone(),
            counted: Amount::from_micros(call.cost),
            surplus: Amount::from_micros(call.cost - call.used.unwrap_or(0)),
        };
        let calls: Vec<Settle> = due.iter().map(surplus).collect();
        if !is_stale {
            self.before = self.item.bucket();
        }
        let mut reading = self.before.clone();
        let mut changes = vec![Amount::ZERO; calls.len()];
        for _ in 0..4 {
            let settling =
                RatePlanner::new(&reading).settle(&calls, Debt::Capped, Timestamp::from_micros(now));
            let Some(write) = settling.write else { break };
            let level = self.item.bucket().tokens();
            if self.item.apply(&write) {
                changes = settling.changes;
                let sum = changes.iter().fold(Amount::ZERO, |sum, change| sum.plus(*change));
                assert_eq!(
                    self.item.bucket().tokens(),
                    level.plus(sum),
                    "the row moves by what the calls are told"
                );
                break;
            }
            reading = self.item.bucket();
        }
        for (call, change) in due.iter().zip(changes) {
            assert!(
                change.micros() <= call.cost - call.used.unwrap_or(0),
                "more was given back than was left over"
            );
            self.made.push((call.start, call.cost - change.micros()));
        }
    }
}

fn run(limit: Limit, steps: &[Step]) -> Vec<(i64, i64)> {
    let mut world = World::new(limit);
    let mut now = start().0.micros();
    for step in steps {
        now += step.gap;
        world.settle(now, step.is_stale);
        world.take(step, now, &limit);
    }
    let rest = std::mem::take(&mut world.out);
    world.made.extend(rest.iter().map(|call| (call.start, call.cost)));
    world.made
}

proptest! {
    #![proptest_config(crate::cases::cases(1_500))]

    #[test]
    fn what_calls_used_holds_the_bound(limit in limits(), steps in steps(0, 1_000)) {
        check_windows(&limit, &mut run(limit, &steps), 0)?;
    }

    // A booked start is rounded up to the microsecond: a window that begins with one is as much shorter.
    #[test]
    fn what_booked_calls_used_holds_the_bound(limit in limits(), steps in steps(20_000, 1_000)) {
        check_windows(&limit, &mut run(limit, &steps), 1)?;
    }

    #[test]
    fn what_small_booked_calls_used_holds_the_bound(limit in limits(), steps in steps(20_000, 250)) {
        check_windows(&limit, &mut run(limit, &steps), 1)?;
    }

    #[test]
    fn a_debt_without_a_cap_is_taken_whole_below_zero_and_from_a_full_bucket(
        limit in limits(), spent in 0..1_000_i64, debt in 1..3_000_i64, idle in 0..100_000_000_i64,
    ) {
        let (now, dimension) = start();
        let full = Bucket::full(dimension, limit, now);
        let mut item = Item::of(&full);
        let mut caller = Caller { reading: full };
        let part = |thousandths: i64| (limit.capacity().micros() / 1_000 * thousandths).max(1);
        let take = Take { cost: cost(part(spent)), now, patience: Duration::ZERO };
        let granted = caller.acquire(&mut item, take, 0).unwrap();
        let later = now.after(Duration::from_micros(idle.unsigned_abs()));
        let before = item.bucket();
        let owed = Amount::from_micros(part(debt));
        let counted = granted.receipt.cost().amount();
        let call = Settle { receipt: granted.receipt, counted, surplus: Amount::ZERO.minus(owed) };
        let settling = RatePlanner::new(&before).settle(std::slice::from_ref(&call), Debt::Uncapped, later);
        prop_assert!(item.apply(&settling.write.unwrap()));
        let after = item.bucket();
        prop_assert_eq!(after.level(later), before.level(later).minus(owed), "whatever refill it had in reserve");
        prop_assert_eq!(settling.changes, vec![call.surplus]);
    }

    /// A vendor that starts lower, or counts what others use: after the replies, the bucket is as low as the
    /// vendor says, to within a call; it is never raised; and replies that arrive again, late or out of order
    /// do no more.
    #[test]
    fn a_bucket_follows_a_lower_vendor_and_counts_each_call_once(
        limit in limits(), calls in prop::collection::vec((0..3_000_000_i64, 1..100_i64, any::<u8>()), 2..40),
        missing in 0..900_i64,
    ) {
        let (begin, dimension) = start();
        let full = Bucket::full(dimension, limit, begin);
        let mut item = Item::of(&full);
        let mut caller = Caller { reading: full };
        let part = |thousandths: i64| Amount::from_micros((limit.capacity().micros() / 1_000 * thousandths).max(1));
        // What the vendor has less than the bucket, from the first call on.
        let gap = part(missing);
        let half = Take { cost: Cost::new(part(500)).unwrap(), now: begin, patience: Duration::ZERO };
        caller.acquire(&mut item, half, 0).unwrap();
        let (mut now, mut said) = (begin.micros(), Vec::new());
        for (pause, thousandths, order) in &calls {
            // As long as the bucket is not full again, which would be another line.
            now += pause.min(&1_000);
            let at = Timestamp::from_micros(now);
            let take = Take { cost: Cost::new(part(*thousandths)).unwrap(), now: at, patience: Duration::from_secs(100) };
            let Some(granted) = caller.acquire(&mut item, take, 0) else { continue };
            let start = Timestamp::from_micros(granted.start);
            said.push((*order, Remaining { left: line(&item, start).minus(gap), receipt: granted.receipt, start }));
        }
        let own = item.bucket();
        prop_assert_eq!(own.anchor(), begin);
        said.sort_by_key(|(order, _)| *order);
        let again = said.clone();
        let mut largest = limit.cost_per_call().amount();
        for (_, said) in said.iter().chain(&again) {
            largest = largest.max(said.receipt.cost().amount());
            if let Observation::Lower(by, write) = RatePlanner::new(&item.bucket()).observe(said, LONGEST, said.start) {
                prop_assert!(by > Amount::ZERO);
                prop_assert!(item.apply(&write));
                prop_assert!(!item.apply(&write), "a second time");
            }
        }
        let lowered = own.tokens().minus(item.bucket().tokens());
        prop_assert_eq!(lowered, item.bucket().observed());
        prop_assert!(lowered <= gap, "lowered by {} for a gap of {}", lowered, gap);
        prop_assert!(lowered.plus(largest) > gap, "lowered by {} for a gap of {}", lowered, gap);
    }
}

/// The bucket's line, which may be below zero.
fn line(item: &Item, at: Timestamp) -> Amount {
    let bucket = item.bucket();
    let zero = bucket.reaches(Amount::ZERO).unwrap();
    if zero <= at {
        return bucket.level(at);
    }
    // What it gains from then to zero, by bisection: the rate is private to core.
    let takes = |amount: i64| bucket.reaches(Amount::from_micros(amount)).unwrap().micros() - zero.micros();
    let (mut low, mut high) = (0_i64, i64::from(i32::MAX) * 1_000_000);
    while low < high {
        let middle = low + (high - low) / 2;
        if takes(middle) >= zero.micros_since(at) { high = middle } else { low = middle + 1 }
    }
    Amount::from_micros(-low)
}

/// A hundred tokens a minute, of which a call takes `per_call`.
pub(super) fn limit(per_call: i32) -> Limit {
    let capacity = Amount::from_tokens(100);
    let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
    Limit::rate(LimitType::Tokens, capacity, rate, Cost::new(Amount::from_tokens(per_call)).unwrap()).unwrap()
}

fn world() -> (Item, Caller, Timestamp) {
    let (now, dimension) = start();
    let bucket = Bucket::full(dimension, limit(1), now);
    (Item::of(&bucket), Caller { reading: bucket }, now)
}

fn one(caller: &mut Caller, item: &mut Item, now: Timestamp) -> RateReceipt {
    let take = Take { cost: Cost::ONE, now, patience: Duration::ZERO };
    caller.acquire(item, take, 0).unwrap().receipt
}

#[test]
fn a_reply_on_a_bucket_that_was_full_since_lowers_it_to_what_the_vendor_can_have_while_it_is_young() {
    let (mut item, mut caller, now) = world();
    let receipt = one(&mut caller, &mut item, now);
    let said = Remaining { receipt, start: now, left: Amount::ZERO };
    let Observation::Lower(_, late) = RatePlanner::new(&item.bucket()).observe(&said, LONGEST, now) else {
        panic!()
    };
    let later = now.after(Duration::from_secs(30));
    one(&mut caller, &mut item, later);
    assert!(!item.apply(&late), "planned before, and sent after");
    let full = item.bucket();
    let Observation::Lower(by, write) = RatePlanner::new(&full).observe(&said, LONGEST, later) else {
        panic!()
    };
    assert_eq!(
        by,
        Amount::from_tokens(49),
        "a vendor that had nothing has 50 after half a minute, and this has 99"
    );
    let even_later = later.after(Duration::from_secs(20));
    let Observation::Lower(_, of_full) = RatePlanner::new(&full).observe(&said, LONGEST, even_later) else {
        panic!()
    };
    assert!(item.apply(&write));
    assert!(!item.apply(&of_full), "planned while it was full, and sent after another reply");
    assert_eq!(RatePlanner::new(&item.bucket()).observe(&said, LONGEST, later), Observation::Agrees);
    one(&mut caller, &mut item, now.after(Duration::from_secs(600)));
    let much_later = now.after(Duration::from_secs(61));
    assert_eq!(RatePlanner::new(&item.bucket()).observe(&said, LONGEST, much_later), Observation::Stale);
}

#[test]
fn of_two_replies_out_of_order_the_older_changes_nothing() {
    let (mut item, mut caller, now) = world();
    let first = one(&mut caller, &mut item, now);
    let second = one(&mut caller, &mut item, now);
    let later = Remaining { receipt: second, start: now, left: Amount::from_tokens(50) };
    let Observation::Lower(by, write) = RatePlanner::new(&item.bucket()).observe(&later, LONGEST, now) else {
        panic!()
    };
    assert_eq!(by, Amount::from_tokens(48));
    let older = Remaining { receipt: first, start: now, left: Amount::ZERO };
    // Planned before the other landed, too.
    let Observation::Lower(_, late) = RatePlanner::new(&item.bucket()).observe(&older, LONGEST, now) else {
        panic!()
    };
    assert!(item.apply(&write));
    assert_eq!(RatePlanner::new(&item.bucket()).observe(&older, LONGEST, now), Observation::Stale);
    assert!(!item.apply(&late));
}
