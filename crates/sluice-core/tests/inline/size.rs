//! What DynamoDB takes, and what a row with inline leases costs.

use sluice_core::schema::{
    ADMITTED, ADMITTED_INLINE, BLOCKED_UNTIL, CAPPED, COUNTED, DRIFT, DRIFT_SEEN_AT, LEASES, VERSION,
};
use sluice_core::{CLOCK_ERROR, InlinePlanner, MOST_CHANGES, MOST_INLINE_LEASES, Operand, Update};

use super::{NOW, amount, back, entry, holding, item, take};

/// 4 KB and 300 operators for an expression, says the Developer Guide ("Service, account, and table quotas");
/// the engines here do not enforce it. What it counts as an operator is not said in full, so dots and commas
/// are counted too.
fn assert_dynamodb_takes(update: &Update) {
    for text in [&update.statement.update, &update.statement.condition] {
        let operators =
            ["attribute_", "if_not_exists", " AND ", " OR ", " = ", " < ", " <= ", " >= ", " + ", "."];
        let used: usize = operators.iter().map(|operator| text.matches(operator).count()).sum();
        assert!(text.len() <= 4_096, "{} bytes", text.len());
        assert!(used <= 300, "{used} operators");
    }
}

#[test]
fn the_longest_write_stays_within_what_dynamodb_takes() {
    let ids: Vec<String> = (0..MOST_CHANGES).map(|n| format!("{n:022}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let full = holding(200, &names);
    let bucket = full.bucket();
    let takes: Vec<_> = (0..100).map(|n| take(format!("new{n}"), 1)).collect();
    let taken = InlinePlanner::new(&bucket).plan(&takes, &[], NOW);
    assert_eq!(
        taken.update.as_ref().unwrap().statement.condition.matches("attribute_not_exists(#leases.").count(),
        64
    );
    assert_dynamodb_takes(&taken.update.unwrap());
    let releases: Vec<_> = ids.iter().map(back).collect();
    assert_dynamodb_takes(&InlinePlanner::new(&bucket).plan(&[], &releases, NOW).update.unwrap());
    let (some, few) = (&releases[..MOST_CHANGES / 2], &takes[..MOST_CHANGES / 2]);
    assert_dynamodb_takes(&InlinePlanner::new(&bucket).plan(few, some, NOW).update.unwrap());
    let mut dead = item(200);
    for (n, id) in ids.iter().enumerate() {
        dead.put_lease(id, entry(1, -60 - i64::try_from(n).unwrap()));
    }
    dead.put_lease("one more", entry(1, -60));
    dead.add_tokens(amount(-65));
    let reclaim = InlinePlanner::new(&dead.bucket()).reclaim(NOW.before(CLOCK_ERROR)).unwrap();
    assert_eq!((reclaim.leases.len(), reclaim.more), (MOST_CHANGES, true));
    assert_dynamodb_takes(&reclaim.update);
}

/// As "DynamoDB item sizes and formats" in the Developer Guide has it.
fn size(value: &Operand) -> usize {
    match value {
        Operand::Text(text) => text.len(),
        Operand::Number(text) => {
            let digits = text.replace(['-', '.'], "");
            let significant = digits.trim_matches('0').len();
            significant.div_ceil(2) + 1 + usize::from(text.starts_with('-'))
        }
        Operand::Map(entries) => {
            3 + entries.iter().map(|(name, entry)| 1 + name.len() + size(entry)).sum::<usize>()
        }
    }
}

/// The row with `leases` of them, every attribute that it may have, and large numbers in it.
fn bytes(leases: usize) -> usize {
    let mut item = item(200);
    for n in 0..leases {
        // An end with as many digits as there are.
        item.put_lease(&format!("{n:012}"), entry(1, 9));
    }
    for counter in [ADMITTED, ADMITTED_INLINE, COUNTED, VERSION, CAPPED] {
        item.set_number(counter, 1_234_567_891);
    }
    for fraction in [BLOCKED_UNTIL, DRIFT, DRIFT_SEEN_AT] {
        item.set_number(fraction, "1700000000.123456");
    }
    item.0.entry(LEASES.to_owned()).or_insert(Operand::Map(Box::from([])));
    item.0.iter().map(|(name, value)| name.len() + size(value)).sum()
}

/// The figures of the constant's reasoning.
#[test]
fn inline_leases_cost_at_most_half_more_than_lease_rows() {
    let units = |leases: usize| 2 * bytes(leases).div_ceil(1_024);
    assert_eq!(bytes(101) - bytes(100), 28);
    assert!(bytes(0) <= 300, "{}", bytes(0));
    assert_eq!((units(25), units(135), units(MOST_INLINE_LEASES)), (2, 8, 12));
}
