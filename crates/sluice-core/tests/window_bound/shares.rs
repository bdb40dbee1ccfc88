//! A bucket with shares: the vendor sees one bucket, and each share has what it was promised.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{
    Amount, Bucket, Change, Claim, Cost, DeclaredShare, Dimension, Limit, LimitType, Observation, Plan, Rate,
    RatePlanner, RateReceipt, Remaining, ShareName, Split, Starts, Take, Timestamp,
};

use super::item::Item;
use super::{Step, check_windows, cost, refill, start, steps};

const PARTS: [(&str, &str); 2] = [("search", "0.5"), ("batch", "0.2")];

pub(super) fn name(of: usize) -> Option<ShareName> {
    PARTS.get(of).map(|(name, _)| ShareName::new(name).unwrap())
}

pub(super) fn limits() -> impl Strategy<Value = Limit> {
    (5_000_000_i64..100_000_000, 1_000_u64..100_000).prop_map(|(capacity, window_ms)| {
        let capacity = Amount::from_micros(capacity);
        let rate = Rate::per(capacity, Duration::from_millis(window_ms)).unwrap();
        Limit::rate(LimitType::Tokens, capacity, rate, Cost::new(Amount::from_micros(1_000)).unwrap())
            .unwrap()
    })
}

fn declared(parts: &[(&str, &str)]) -> Vec<DeclaredShare> {
    let share = |(name, part): &(&str, &str)| {
        let (name, part) = (ShareName::new(name).unwrap(), part.parse().unwrap());
        DeclaredShare { name, part, floor: None, background: false }
    };
    parts.iter().map(share).collect()
}

pub(super) fn split(limit: Limit) -> Split {
    Split::new(limit, &declared(&PARTS)).unwrap()
}

pub(super) fn row(split: &Split, now: Timestamp) -> Item {
    let dimension = Dimension::new("openai#tpm").unwrap();
    Item::put_of(Bucket::full(dimension, *split.whole(), now).create_split(split))
}

/// A caller of one line, with a reading that may be stale and a clock that may be off.
struct Caller {
    of: Option<ShareName>,
    reading: Bucket,
}

impl Caller {
    fn write(
        &mut self,
        item: &mut Item,
        planned: Plan<sluice_core::Planned>,
        lender: Option<&ShareName>,
    ) -> Option<RateReceipt> {
        let Plan::Write(planned) = planned else { return None };
        let is_applied = item.apply(&planned.update);
        self.reading = item.bucket();
        is_applied.then(|| RateReceipt::new(self.reading.clone().seen_from(lender), cost(1)))
    }

    /// Its own line if that has the tokens now; else another; else its own line, booked.
    fn acquire(&mut self, item: &mut Item, take: Take) -> Option<(RateReceipt, Option<ShareName>)> {
        for patience in [Duration::ZERO, take.patience] {
            let own = self.reading.clone().seen_from(self.of.as_ref());
            let of = own.share().cloned();
            let guesses = patience.is_zero() && take.now.micros() % 2 == 0;
            let planned = RatePlanner::new(&own).expecting_spent(guesses).plan(Take { patience, ..take });
            if let Some(receipt) = self.write(item, planned, of.as_ref()) {
                return Some((receipt, of));
            }
            let own = self.reading.clone().seen_from(self.of.as_ref());
            let Some(lender) = own.lenders(take.cost, take.now).into_iter().next() else { continue };
            let planner = RatePlanner::borrowing(&lender).expecting_spent(guesses);
            let planned = planner.plan(Take { patience: Duration::ZERO, ..take });
            let lender = lender.line().share().cloned();
            if let Some(receipt) = self.write(item, planned, lender.as_ref()) {
                return Some((receipt, lender));
            }
        }
        None
    }
}

fn fleet(reading: &Bucket) -> Vec<Caller> {
    (0..4).map(|of| Caller { of: name(of % 3), reading: reading.clone() }).collect()
}

fn at(micros: i64, error: i64) -> Timestamp {
    Timestamp::from_micros(micros + error)
}

/// Runs the steps, and returns each start with its cost.
fn run(limit: Limit, steps: &[Step], penalties: &[bool]) -> Vec<(i64, i64)> {
    let (begin, _) = start();
    let mut item = row(&split(limit), begin);
    let mut callers = fleet(&item.bucket());
    let (mut now, mut grants) = (begin.micros(), Vec::new());
    for (step, is_penalty) in steps.iter().zip(penalties) {
        now += step.gap;
        let local = at(now, step.error);
        if *is_penalty {
            let bucket = item.bucket();
            if let Some(update) = RatePlanner::new(&bucket).penalize("0.8".parse().unwrap(), None, local) {
                assert!(item.apply(&update), "planned from the row as it is");
            }
        }
        let cost = cost(step.cost.min(limit.capacity().micros() / 10).max(1));
        let take = Take { cost, now: local, patience: Duration::from_millis(step.patience_ms) };
        let taken = callers[step.caller].acquire(&mut item, take);
        grants.extend(
            taken.map(|(receipt, _)| (receipt.start_at(local).micros() - step.error, cost.amount().micros())),
        );
    }
    grants
}

proptest! {
    #![proptest_config(crate::cases::cases(300))]

    #[test]
    fn callers_of_all_lines_keep_the_bound_of_the_whole(
        limit in limits(), steps in steps(1_000_000, 20_000), penalties in prop::collection::vec(prop::bool::weighted(0.05), 120),
    ) {
        check_windows(&limit, &mut run(limit, &steps, &penalties), 1_000_000)?;
    }

    /// Each line stays above one that begins at what is never lent, refills up to that, and pays for its own
    /// callers alone.
    #[test]
    fn a_share_has_what_it_was_promised_whatever_the_others_take(limit in limits(), steps in steps(0, 20_000)) {
        let (begin, _) = start();
        let split = split(limit);
        let mut item = row(&split, begin);
        let mut callers = fleet(&item.bucket());
        let lines: Vec<Option<ShareName>> = (0..3).map(name).collect();
        let seen = |item: &Item, of: &Option<ShareName>| item.bucket().seen_from(of.as_ref());
        let mut promised: Vec<i64> = lines.iter().map(|of| seen(&item, of).lends_above().micros()).collect();
        let mut now = begin.micros();
        for step in &steps {
            now += step.gap;
            for (promised, of) in promised.iter_mut().zip(&lines) {
                let (line, floor) = (seen(&item, of), seen(&item, of).lends_above().micros());
                let rise = i128::from(step.gap) * i128::from(line.limit().refill_rate().per_minute().micros()) / 60_000_000;
                // Rounding: a few millionths a step, against the promise.
                *promised = (*promised + i64::try_from(rise).unwrap() - 3).min(floor);
            }
            let caller = step.caller;
            let cost = cost(step.cost.min(limit.capacity().micros() / 10).max(1));
            let take = Take { cost, now: at(now, 0), patience: Duration::from_millis(step.patience_ms) };
            if let Some((_, of)) = callers[caller].acquire(&mut item, take) && of == callers[caller].of {
                let line = lines.iter().position(|line| *line == of).unwrap();
                promised[line] -= cost.amount().micros();
            }
            for (promised, of) in promised.iter().zip(&lines) {
                let level = seen(&item, of).level(at(now, 0)).micros();
                prop_assert!(level >= *promised, "{of:?} has {level}, and was promised {promised}");
            }
        }
    }

    /// Shares are declared, changed and removed while callers take, with readings of before.
    #[test]
    fn a_change_of_shares_gives_nothing_away(
        limit in limits(), steps in steps(0, 0), changes in prop::collection::vec((0_usize..12, any::<bool>()), 120),
    ) {
        let (begin, _) = start();
        let mut item = Item::of(&Bucket::full(Dimension::new("openai#tpm").unwrap(), limit, begin));
        let mut callers = fleet(&item.bucket());
        let splits = [Split::from(limit), split(limit), Split::new(limit, &declared(&PARTS[..1])).unwrap(),
            Split::new(limit, &declared(&[("search", "0.3"), ("checkout", "0.4")])).unwrap()];
        let (mut now, mut grants, mut late) = (begin.micros(), Vec::new(), None);
        for (step, (which, is_late)) in steps.iter().zip(&changes) {
            now += step.gap;
            if let Some(to) = splits.get(*which) {
                let bucket = item.bucket();
                let update = Change::split(&bucket, to, at(now, 0)).unwrap();
                if *is_late {
                    // It arrives after the next caller.
                    late = (bucket.has_shares() || !to.shares().is_empty()).then_some((update, bucket));
                } else {
                    let before = bucket.whole_level(at(now, 0));
                    prop_assert!(item.apply(&update));
                    prop_assert!(item.bucket().is_split_as(to), "{:?} is not {to:?}", item.bucket().split());
                    let after = item.bucket().whole_level(at(now, 0));
                    // It takes effect a microsecond after the anchor, if that is now.
                    let most = before.plus(Amount::from_micros(refill(&limit, 2)));
                    prop_assert!(after <= most, "{before} became {after}");
                }
            }
            let cost = cost(step.cost.min(limit.capacity().micros() / 10).max(1));
            let take = Take { cost, now: at(now, 0), patience: Duration::ZERO };
            if callers[step.caller].acquire(&mut item, take).is_some() {
                grants.push((now, cost.amount().micros()));
            }
            if let Some((update, seen)) = late.take() {
                let is_same = item.bucket().version() == seen.version();
                prop_assert_eq!(item.apply(&update), is_same);
            }
        }
        check_windows(&limit, &mut grants, 0)?;
    }

    #[test]
    fn what_lowers_a_bucket_lowers_its_lines_by_as_much_together(limit in limits(), steps in steps(0, 0), gap in 0..100_000_000_i64) {
        let (begin, _) = start();
        let mut item = row(&split(limit), begin);
        let mut callers = fleet(&item.bucket());
        let mut now = begin.micros();
        for step in &steps {
            now += step.gap.min(1_000_000);
            let take = Take { cost: cost(step.cost.min(limit.capacity().micros() / 10).max(1)), now: at(now, 0), patience: Duration::ZERO };
            callers[step.caller].acquire(&mut item, take);
        }
        let then = at(now + gap, 0);
        let (bucket, before) = (item.bucket(), item.bucket().whole_level(then));
        let Some(update) = RatePlanner::new(&bucket).penalize("0.5".parse().unwrap(), None, then) else { return Ok(()) };
        prop_assert!(item.apply(&update));
        let (after, half) = (item.bucket().whole_level(then).micros(), before.micros() / 2);
        prop_assert!((after - half).abs() <= 4, "{before} became {after} and not {half}");
        prop_assert_eq!(item.bucket().version(), bucket.version() + 1);
        // An operator fills it again.
        let bucket = item.bucket();
        prop_assert!(item.apply(&Change::refill_lines(&bucket, limit.capacity(), then)));
        let full = item.bucket();
        prop_assert_eq!(full.whole_level(full.anchor()), limit.capacity());
        prop_assert!(full.is_split_as(&split(limit)));
    }
}

/// A hundred tokens a minute: fifty for search, twenty for batch, thirty for all others. Each line has lost a
/// token, so that none is full.
pub(super) fn used() -> (Item, Timestamp, Vec<RateReceipt>) {
    let capacity = Amount::from_tokens(100);
    let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
    let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    let (now, _) = start();
    let mut item = row(&split(limit), now);
    let receipts = (0..3).map(|of| taken(&mut item, name(of), 1, now)).collect();
    (item, now, receipts)
}

/// Takes so many tokens from a line, which has them.
pub(super) fn taken(item: &mut Item, of: Option<ShareName>, tokens: i32, now: Timestamp) -> RateReceipt {
    let cost = Cost::new(Amount::from_tokens(tokens)).unwrap();
    let bucket = item.bucket().seen_from(of.as_ref());
    let Plan::Write(planned) = RatePlanner::new(&bucket).plan(Take { cost, now, patience: Duration::ZERO })
    else {
        panic!("{bucket:?}")
    };
    assert!(item.apply(&planned.update));
    RateReceipt::new(item.bucket().seen_from(of.as_ref()), cost)
}

/// Condition of a borrowing: the floor. Another caller took the rest above it since the reading.
#[test]
fn a_borrowing_on_its_way_leaves_the_floor_whatever_others_took() {
    let (mut item, now, _) = used();
    let take = Take { cost: Cost::ONE, now, patience: Duration::ZERO };
    let seen = item.bucket().seen_from(name(0).as_ref());
    let lender =
        seen.lenders(take.cost, now).into_iter().find(|lender| lender.line().share().is_none()).unwrap();
    let claim = Claim { cost: take.cost, patience: Duration::ZERO };
    let late = RatePlanner::borrowing(&lender)
        .plan_batch(&[claim], now, Starts::InReply, Amount::ZERO)
        .write
        .unwrap();
    let ahead =
        RatePlanner::borrowing(&lender).plan_batch(&[claim], now, Starts::InReply, Amount::from_tokens(9));
    assert_eq!((ahead.prefetched, ahead.write), (Amount::ZERO, Some(late.clone())), "and takes no lot");
    assert!(item.holds(&late.update));
    taken(&mut item, None, 22, now);
    assert!(!item.apply(&late.update), "seven are left of the thirty, less than what is never lent");
}

/// Condition: the anchor of each line. One was full in between, and its refill would swallow what is taken.
#[test]
fn a_penalty_on_its_way_changes_no_line_that_was_full_since() {
    let (mut item, now, _) = used();
    let bucket = item.bucket();
    let late = RatePlanner::new(&bucket).penalize("0.5".parse().unwrap(), None, now).unwrap();
    assert!(item.holds(&late));
    taken(&mut item, name(1), 1, now.after(Duration::from_secs(60)));
    assert!(!item.apply(&late));
}

/// Condition: the brim of each line. What another gave back, by a clock that lags, lifted the line above it.
#[test]
fn a_penalty_on_its_way_is_not_swallowed_by_what_came_back() {
    let (mut item, now, _) = used();
    let receipt = taken(&mut item, name(0), 10, now);
    let later = now.after(Duration::from_secs(10));
    let bucket = item.bucket();
    let late = RatePlanner::new(&bucket).penalize("0.5".parse().unwrap(), None, later).unwrap();
    assert!(item.apply(&receipt.give_back(now).unwrap()));
    assert!(!item.apply(&late), "the line is above its brim by now");
}

/// Condition: the tokens of each line. Others took since the reading, and the vendor may have counted their
/// calls or not.
#[test]
fn a_vendors_reply_lowers_no_line_that_others_took_from_since() {
    let (mut item, now, receipts) = used();
    let bucket = item.bucket();
    let remaining = Remaining { receipt: receipts[0].clone(), start: now, left: Amount::from_tokens(40) };
    let longest = Duration::from_secs(900);
    let Observation::Lower(by, late) = RatePlanner::new(&bucket).observe(&remaining, longest, now) else {
        panic!()
    };
    assert_eq!(by, Amount::from_tokens(57));
    assert!(item.holds(&late));
    taken(&mut item, name(1), 1, now);
    assert!(!item.apply(&late));
}

/// Condition: what was observed. A reply that lowered the lines in the meantime counts once.
#[test]
fn two_replies_lower_the_lines_once() {
    let (mut item, now, receipts) = used();
    let bucket = item.bucket();
    let lower = |receipt: &RateReceipt| {
        let remaining = Remaining { receipt: receipt.clone(), start: now, left: Amount::from_tokens(40) };
        match RatePlanner::new(&bucket).observe(&remaining, Duration::from_secs(900), now) {
            Observation::Lower(_, update) => update,
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (lower(&receipts[0]), lower(&receipts[2]));
    assert!(item.apply(&first));
    assert!(!item.apply(&second));
    assert_eq!(item.bucket().whole_level(now), Amount::from_tokens(40));
}

/// A share that is gone: no path of a write through it is valid, and the condition says so first.
#[test]
fn a_write_for_a_share_that_was_removed_fails_by_its_condition() {
    let (mut item, now, receipts) = used();
    let take = Take { cost: Cost::ONE, now, patience: Duration::ZERO };
    let bucket = item.bucket().seen_from(name(0).as_ref());
    let Plan::Write(late) = RatePlanner::new(&bucket).plan(take) else { panic!() };
    let whole = *item.bucket().split().whole();
    assert!(item.apply(&Change::split(&item.bucket(), &Split::from(whole), now).unwrap()));
    assert!(!item.bucket().has_shares());
    assert!(!item.apply(&late.update));
    assert!(
        !item.apply(&receipts[0].give_back(now).unwrap()),
        "nor does anything come back to the common line"
    );
    // Declared again, the share is another line.
    assert!(item.apply(&Change::split(&item.bucket(), &split(whole), now).unwrap()));
    assert!(!item.apply(&late.update) && !item.apply(&receipts[0].give_back(now).unwrap()));
}

/// DynamoDB takes 4 KB.
#[test]
fn a_change_of_all_shares_fits_into_an_expression() {
    let (now, dimension) = start();
    let capacity = Amount::from_tokens(10_000);
    let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
    let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    let shares = |prefix: &str, part: &str, floor: i32| -> Vec<DeclaredShare> {
        let share = |n| DeclaredShare {
            name: ShareName::new(&format!("{prefix}{n:02}")).unwrap(),
            part: part.parse().unwrap(),
            floor: Some(Amount::from_tokens(floor)),
            background: true,
        };
        (0..sluice_core::MOST_SHARES).map(share).collect()
    };
    let split = |prefix, part, floor| Split::new(limit, &shares(prefix, part, floor)).unwrap();
    let of_all = split("a", "0.05", 10);
    let mut item = Item::put_of(Bucket::full(dimension, limit, now).create_split(&of_all));
    for to in [split("a", "0.06", 11), split("b", "0.05", 10), of_all] {
        let bucket = item.bucket();
        let updates = [
            Change::split(&bucket, &to, now).unwrap(),
            Change::refill_lines(&bucket, Amount::from_tokens(100), now),
            RatePlanner::new(&bucket).penalize("0.5".parse().unwrap(), None, now).unwrap(),
        ];
        for update in &updates {
            let longest = update.statement.update.len().max(update.statement.condition.len());
            assert!(longest <= 4_096, "{longest} bytes");
        }
        assert!(item.apply(&updates[0]));
    }
}

/// No plan rests on the counts of what was lent and borrowed.
#[test]
fn a_count_that_cannot_be_read_leaves_the_bucket_usable() {
    let (mut item, now, _) = used();
    for count in ["lent", "borrowed"] {
        item.put(count, "9".repeat(30));
    }
    assert_eq!((item.bucket().lent(), item.bucket().borrowed()), (Amount::ZERO, Amount::ZERO));
    taken(&mut item, None, 1, now);
}
