//! Bucket rows, of Sluice and of other clients: a limit that makes sense, a level that is never above it, and
//! conditions that send back what was read. Every planner takes whatever was read.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sluice_core::schema::{
    AttributeFault, CAPACITY, COST_PER_CALL, Field, LAST_REFILL_AT, OF_BUCKET, PROTOCOL, REFILL_RATE,
    Row as _, RowError, SHARES, TOKENS, VERSION,
};
use sluice_core::{
    Amount, Bucket, CLOCK_ERROR, Census, Change, Claim, Correction, Cost, Dimension, Drift, InlineAnswer,
    InlineLeases, InlinePlanner, InlineRelease, InlineTake, LeaseId, Limit, Operand, Plan, Rate, RatePlanner,
    RateReceipt, Returned, Serves, SlotPlanner, Starts, Take, Timestamp,
};
use sluice_fuzz::{Item, ceiling, floor, is_exactly};

fn name() -> Dimension {
    Dimension::new("openai#rpm").unwrap()
}

fn check(row: &Item, bucket: &Bucket) {
    let (limit, number) = (bucket.limit(), |name| row.number(name).unwrap());
    assert!(limit.capacity() > Amount::ZERO && limit.cost_per_call().amount() <= limit.capacity());
    assert_eq!(limit.refill_rate().is_zero(), limit.is_concurrent());
    assert_eq!(floor(number(CAPACITY), 6), Some(limit.capacity().micros().into()));
    assert_eq!(floor(number(TOKENS), 6), Some(bucket.tokens().micros().into()));
    assert_eq!(floor(number(LAST_REFILL_AT), 6), Some(bucket.anchor().micros().into()));
    assert_eq!(ceiling(number(COST_PER_CALL), 6), Some(limit.cost_per_call().amount().micros().into()));
    assert_eq!(floor(number(VERSION), 0), Some(bucket.version().into()));
    let rewritten = Item::made_by(bucket.create());
    let again = Bucket::read(&name(), &rewritten).unwrap();
    assert_eq!((again.limit(), again.tokens(), again.anchor()), (limit, bucket.tokens(), bucket.anchor()));
    assert_eq!(again.version(), bucket.version());
    for attribute in [CAPACITY, REFILL_RATE, LAST_REFILL_AT] {
        assert!(
            is_exactly(rewritten.number(attribute).unwrap(), number(attribute)),
            "{attribute}: {rewritten:?}"
        );
    }
}

/// What conditions compare for equality.
fn check_sent_back(row: &Item, bucket: &Bucket, now: Timestamp) {
    let one = Amount::from_tokens(1);
    let other = if bucket.limit().is_concurrent() {
        Limit::concurrent(one, Cost::ONE)
    } else {
        Limit::rate(
            bucket.limit().limit_type(),
            one,
            Rate::per(one, Duration::from_secs(1)).unwrap(),
            Cost::ONE,
        )
    };
    let change = Change::plan(bucket, &other.unwrap(), now).unwrap();
    let read =
        [(":read_capacity", CAPACITY), (":read_anchor", LAST_REFILL_AT), (":read_refill_rate", REFILL_RATE)];
    for (placeholder, attribute) in read {
        for (_, sent) in change.values.iter().filter(|(name, _)| *name == placeholder) {
            let Operand::Number(sent) = sent else { panic!("{change:?}") };
            assert!(is_exactly(sent, row.number(attribute).unwrap()), "{attribute}: {sent} was sent back");
        }
    }
}

fn check_plans(bucket: &Bucket, now: Timestamp) {
    let cost = bucket.limit().cost_per_call();
    assert!(bucket.level(now) <= bucket.limit().capacity());
    assert_eq!(bucket.after_giving_back(cost).version(), bucket.after_taking(cost).version());
    for patience in [Duration::ZERO, Duration::from_secs(30)] {
        let take = Take { cost, now, patience };
        if bucket.limit().is_concurrent() {
            let plan = SlotPlanner::new(bucket).plan(take);
            assert!(!matches!(plan, Plan::Write(_)) || bucket.tokens() >= cost.amount());
            check_inline(bucket, cost, now);
        } else {
            check_rate_plans(bucket, take);
        }
    }
}

/// What is given back and what is granted fits into the capacity, and nothing that cannot be read is touched.
fn check_inline(bucket: &Bucket, cost: Cost, now: Timestamp) {
    let take = |id: &str| InlineTake {
        id: LeaseId::new(id.into()).unwrap(),
        cost,
        ends: now,
        serves: Serves { numbers: 3, passes_over: true },
        borrows: None,
    };
    let all = || bucket.inline().into_iter().flat_map(InlineLeases::iter);
    let release = |id: &LeaseId| InlineRelease { id: id.clone(), cost };
    let releases: Vec<_> = all().map(|(id, _)| release(id)).take(2).collect();
    let plan = InlinePlanner::new(bucket).plan(&[take("one"), take("other")], &releases, now);
    let granted = plan.takes.iter().filter(|answer| **answer == InlineAnswer::Granted).count();
    assert_eq!(plan.update.is_some(), granted + releases.len() > 0);
    let after = plan.after(bucket);
    assert!(granted == 0 || after.tokens() >= Amount::ZERO);
    assert!(after.tokens() <= bucket.tokens().max(bucket.limit().capacity()));
    assert_eq!(
        after.inline().map_or(&[][..], InlineLeases::unreadable),
        bucket.inline().map_or(&[][..], InlineLeases::unreadable)
    );
    let cutoff = now.before(CLOCK_ERROR);
    let reclaim = InlinePlanner::new(bucket).reclaim(cutoff);
    assert_eq!(reclaim.is_some(), all().any(|(_, lease)| lease.ends.get() < cutoff));
}

fn check_rate_plans(bucket: &Bucket, take: Take) {
    let capacity = bucket.limit().capacity();
    let planner = RatePlanner::new(bucket).with_headroom(Duration::from_millis(50));
    if let Plan::Write(planned) = planner.plan(take) {
        assert!(
            take.patience > Duration::ZERO || bucket.level(take.now) >= take.cost.amount(),
            "{planned:?}"
        );
        assert!(planned.after.level(take.now) <= capacity);
    }
    let claim = Claim { cost: take.cost, patience: take.patience };
    for planned in [planner.probe(take)]
        .into_iter()
        .chain(planner.plan_batch(&[claim], take.now, Starts::Pinned, Amount::ZERO).write)
    {
        let receipt = RateReceipt::new(planned.after, take.cost);
        assert!(receipt.start_at(take.now) >= take.now);
        let given_back = receipt.give_back(take.now).map(|update| amount(&update.values, ":unused"));
        assert!(given_back.is_none_or(|back| back > Amount::ZERO && back <= take.cost.amount()));
    }
    if let Some(update) = planner.penalize("0.3".parse().unwrap(), None, take.now)
        && update.values.iter().any(|(name, _)| *name == ":amount")
    {
        assert!(amount(&update.values, ":amount") <= bucket.level(take.now));
    }
}

fn amount(values: &[(&str, Operand)], placeholder: &str) -> Amount {
    match values.iter().find(|(name, _)| *name == placeholder) {
        Some((_, Operand::Number(number))) => number.parse().unwrap(),
        other => panic!("{placeholder} is {other:?}"),
    }
}

/// A sweep reads a bucket twice, and whatever the two readings say, it puts right no more than a capacity.
fn check_recount(first: &Bucket, last: &Bucket, now: Timestamp) {
    let drift = Drift::between(first, last, &Census::default(), Returned::default());
    assert!(drift == Drift::Unknown || first.limit().capacity() == last.limit().capacity());
    match (drift.signed(), Correction::plan(first, last, drift, now)) {
        (None, Correction::Correct { .. }) => panic!("{drift:?} was corrected"),
        (Some(found), Correction::Correct { slots, update }) => {
            assert!(slots.abs() <= found.abs());
            assert_eq!(amount(&update.values, ":slots"), slots);
        }
        _ => {}
    }
}

fn check_error(row: &Item, error: &RowError) {
    assert!(OF_BUCKET.contains(&error.attribute), "{error}");
    assert!(error.to_string().contains(error.attribute));
    let field = row.field(error.attribute);
    match &error.fault {
        AttributeFault::Missing => assert_eq!(field, None),
        AttributeFault::WrongType { expected: "number (N)" } => {
            assert!(matches!(field, Some(Field::Text(_) | Field::Other)))
        }
        AttributeFault::WrongType { expected: "map (M)" } => assert!(field.is_some()),
        AttributeFault::WrongType { .. } => assert!(matches!(field, Some(Field::Number(_) | Field::Other))),
        // What is bad may be an entry of the map of shares.
        AttributeFault::BadValue { .. } if error.attribute == SHARES => assert_eq!(field, Some(Field::Other)),
        AttributeFault::BadValue { .. } => assert!(matches!(field, Some(Field::Text(_) | Field::Number(_)))),
        AttributeFault::TooNew { .. } => {
            assert_eq!(error.attribute, PROTOCOL);
            assert!(matches!(field, Some(Field::Number(_))));
        }
        other => panic!("{other:?}"),
    }
}

fuzz_target!(|text: &str| {
    // After an empty line, the row as it is read a second time.
    let (first, last) = text.split_once("\n\n").unwrap_or((text, text));
    let row = Item::parse(first);
    match Bucket::read(&name(), &row) {
        Ok(bucket) => {
            // The caller's clock is as arbitrary as the row.
            let now = row.number("now").and_then(|now| now.parse().ok()).unwrap_or(bucket.anchor());
            check(&row, &bucket);
            check_sent_back(&row, &bucket, now);
            check_plans(&bucket, now);
            let last = Bucket::read(&name(), &Item::parse(last));
            check_recount(&bucket, last.as_ref().unwrap_or(&bucket), now);
        }
        Err(error) => check_error(&row, &error),
    }
});
