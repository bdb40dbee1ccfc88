//! Bucket rows that another client wrote, or that something happened to.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{
    AttributeFault, CAPACITY, COST_PER_CALL, COUNTED, Field, LAST_REFILL_AT, LIMIT_TYPE, OF_BUCKET, PROTOCOL,
    REFILL_RATE, Row as _, RowError, SHARES, TOKENS, VERSION,
};
use sluice_core::{
    Amount, Bucket, Census, Change, Claim, Cost, Dimension, Drift, InlineAnswer, InlinePlanner,
    InlineRelease, InlineTake, LeaseId, Limit, Operand, Plan, Rate, RatePlanner, Returned, Serves,
    SlotPlanner, Starts, Take, Timestamp,
};

use crate::row::{Item, Value, any_row, change, number_text, shares};

fn read(row: &Item) -> Result<Bucket, RowError> {
    Bucket::read(&Dimension::new("openai#rpm").unwrap(), row)
}

/// A row that makes sense, with more decimals than Sluice keeps.
fn sound() -> impl Strategy<Value = Item> {
    let noisy = |whole: &'static str| (whole, "(\\.[0-9]{1,14})?").prop_map(|(whole, noise)| whole + &noise);
    let numbers =
        (noisy("[1-9][0-9]{1,8}"), noisy("-?[0-9]{1,9}"), noisy("[1-9][0-9]{0,5}"), noisy("1[0-9]{9}"));
    let kinds = prop::sample::select(vec!["requests", "tokens", "concurrent"]);
    (numbers, noisy("[1-9]"), kinds, 0_i64..1_000_000).prop_map(
        |((capacity, tokens, rate, anchor), cost, kind, version)| {
            Item(BTreeMap::from([
                (CAPACITY, Value::Number(capacity)),
                (TOKENS, Value::Number(tokens)),
                (REFILL_RATE, Value::Number(if kind == "concurrent" { "0".to_owned() } else { rate })),
                (LAST_REFILL_AT, Value::Number(anchor)),
                (COST_PER_CALL, Value::Number(cost)),
                (LIMIT_TYPE, Value::Text(kind.to_owned())),
                (VERSION, Value::Number(version.to_string())),
            ]))
        },
    )
}

/// Whether a fault of `changed` may show at `named`: the cost is judged by the capacity, and the rate by the
/// type.
fn may_show_at(changed: &str, named: &str) -> bool {
    named == changed
        || (changed == CAPACITY && named == COST_PER_CALL)
        || (changed == LIMIT_TYPE && named == REFILL_RATE)
}

/// A change of limits, which compares what was read for equality.
fn sent_back(bucket: &Bucket) -> Vec<(&'static str, Operand)> {
    let one = Amount::from_tokens(1);
    let limit = if bucket.limit().is_concurrent() {
        Limit::concurrent(one, Cost::ONE)
    } else {
        Limit::rate(
            bucket.limit().limit_type(),
            one,
            Rate::per(one, Duration::from_secs(1)).unwrap(),
            Cost::ONE,
        )
    };
    Change::plan(bucket, &limit.unwrap(), bucket.anchor()).unwrap().values
}

fn plan_everything(bucket: &Bucket, now: Timestamp) {
    let cost = bucket.limit().cost_per_call();
    assert!(bucket.level(now) <= bucket.limit().capacity());
    for patience in [Duration::ZERO, Duration::MAX] {
        let take = Take { cost, now, patience };
        if bucket.limit().is_concurrent() {
            let written = matches!(SlotPlanner::new(bucket).plan(take), Plan::Write(_));
            assert!(!written || bucket.tokens() >= cost.amount());
            plan_inline(bucket, cost, now);
        } else {
            let planner = RatePlanner::new(bucket);
            let written = matches!(planner.plan(take), Plan::Write(_));
            assert!(!written || patience > Duration::ZERO || bucket.level(now) >= cost.amount());
            assert!(planner.probe(take).after.level(now) <= bucket.limit().capacity());
            let claims = [Claim { cost, patience }; 3];
            let _ = planner.plan_batch(&claims, now, Starts::Pinned, cost.amount());
            let _ = (
                planner.plan_batch(&claims, now, Starts::InReply, Amount::ZERO),
                planner.penalize("0.5".parse().unwrap(), None, now),
            );
        }
    }
    assert!(bucket.after_taking(cost).tokens() <= bucket.tokens());
    let _ = Drift::between(bucket, &bucket.after_taking(cost), &Census::default(), Returned::default());
}

fn plan_inline(bucket: &Bucket, cost: Cost, now: Timestamp) {
    let take = |id: &str| InlineTake {
        id: LeaseId::new(id.into()).unwrap(),
        cost,
        ends: now,
        serves: Serves::default(),
        borrows: None,
    };
    let release = |(id, _): (&LeaseId, _)| InlineRelease { id: id.clone(), cost };
    let releases: Vec<InlineRelease> =
        bucket.inline().into_iter().flat_map(|all| all.iter().map(release)).take(2).collect();
    let plan = InlinePlanner::new(bucket).plan(&[take("one"), take("other")], &releases, now);
    let granted = plan.takes.iter().filter(|answer| **answer == InlineAnswer::Granted).count();
    assert_eq!(plan.update.is_some(), granted + releases.len() > 0);
    assert!(granted == 0 || plan.after(bucket).tokens() >= Amount::ZERO);
    assert!(plan.after(bucket).tokens() <= bucket.tokens().max(bucket.limit().capacity()));
    let _ = InlinePlanner::new(bucket).reclaim(now);
}

proptest! {
    #[test]
    fn a_row_that_is_read_and_written_again_reads_the_same(row in sound()) {
        let bucket = read(&row).unwrap();
        let rewritten = Item::made_by(bucket.create());
        let again = read(&rewritten).unwrap();
        prop_assert_eq!(&again, &bucket);
        for name in [CAPACITY, REFILL_RATE, LAST_REFILL_AT] {
            prop_assert_eq!(trimmed(rewritten.number(name)), trimmed(row.number(name)), "{} is sent as it was read", name);
        }
        for (placeholder, sent) in sent_back(&bucket) {
            let name = match placeholder {
                ":read_capacity" => CAPACITY,
                ":read_anchor" => LAST_REFILL_AT,
                ":read_refill_rate" => REFILL_RATE,
                _ => continue,
            };
            let Operand::Number(sent) = sent else { panic!("{sent:?}") };
            prop_assert_eq!(trimmed(&sent), trimmed(row.number(name)), "{} is compared as it was read", name);
        }
    }

    #[test]
    fn one_faulty_attribute_is_named(row in sound(), name in prop::sample::select(&OF_BUCKET[..]), to in change()) {
        let row = row.with(name, to);
        if let Err(error) = read(&row) {
            prop_assert!(may_show_at(name, error.attribute), "{name} was changed: {error}");
            match (&error.fault, row.field(error.attribute)) {
                (AttributeFault::Missing, None) | (AttributeFault::WrongType { .. }, Some(_)) => {}
                (AttributeFault::BadValue { .. }, Some(Field::Number(_) | Field::Text(_))) => {}
                // A share in the map.
                (AttributeFault::BadValue { .. }, Some(Field::Other)) if error.attribute == SHARES => {}
                (AttributeFault::TooNew { .. }, Some(Field::Number(_))) if error.attribute == PROTOCOL => {}
                (fault, field) => panic!("{fault:?} of {field:?}"),
            }
        }
    }

    #[test]
    fn whatever_can_be_read_can_be_planned_from(
        row in sound(), name in prop::sample::select(&OF_BUCKET[..]), number in number_text(), now in any::<i64>(),
    ) {
        if let Ok(bucket) = read(&row.with(name, Some(Value::Number(number)))) {
            plan_everything(&bucket, bucket.anchor());
            plan_everything(&bucket, Timestamp::from_micros(now));
        }
    }

    #[test]
    fn whatever_shares_can_be_read_can_be_planned_from(row in sound(), shares in shares(), now in any::<i64>()) {
        if let Ok(bucket) = read(&row.with(SHARES, Some(Value::Map(shares)))) {
            for line in bucket.every_line() {
                plan_everything(&line, line.anchor());
                plan_everything(&line, Timestamp::from_micros(now));
            }
        }
    }

    #[test]
    fn no_row_panics(row in any_row(&OF_BUCKET)) {
        if let Err(error) = read(&row) {
            prop_assert!(OF_BUCKET.contains(&error.attribute));
        }
    }
}

/// A number without the zeros that say nothing.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

fn with_counts(version: i64, counted: i64) -> Bucket {
    let number = |text: String| Value::Number(text);
    let row = Item(BTreeMap::from([
        (CAPACITY, number("5".to_owned())),
        (TOKENS, number("5".to_owned())),
        (REFILL_RATE, number("0".to_owned())),
        (LAST_REFILL_AT, number("1709550002".to_owned())),
        (COST_PER_CALL, number("1".to_owned())),
        (LIMIT_TYPE, Value::Text("concurrent".to_owned())),
        (VERSION, number(version.to_string())),
        (COUNTED, number(counted.to_string())),
    ]));
    read(&row).unwrap()
}

#[test]
fn a_version_at_the_end_of_its_range_breaks_no_plan() {
    let bucket = with_counts(i64::MAX, 0);
    assert_eq!(bucket.after_taking(Cost::ONE).version(), i64::MAX);
    assert_eq!(bucket.after_giving_back(Cost::ONE).version(), i64::MAX);
}

#[test]
fn counts_that_are_too_far_apart_say_nothing_of_drift() {
    let between =
        |first: &Bucket, last: &Bucket| Drift::between(first, last, &Census::default(), Returned::default());
    assert_eq!(between(&with_counts(i64::MIN, 0), &with_counts(i64::MAX, 0)), Drift::Unknown);
    assert_eq!(between(&with_counts(7, i64::MIN), &with_counts(8, i64::MAX)), Drift::Unknown);
}
