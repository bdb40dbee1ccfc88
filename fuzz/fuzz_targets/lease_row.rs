//! Lease rows, of Sluice and of other clients: what they hold is never more than they say, and a condition
//! sends back what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::schema::{
    AttributeFault, CALLER, COST, CREATED_AT, DIMENSION, Field, KEY, PURGE_AT, Row as _, RowError, TTL,
};
use sluice_core::{Census, Lease, Operand, ReadAt, Timestamp};
use sluice_fuzz::{Item, floor, is_exactly};

fn check(row: &Item, lease: &Lease) {
    assert_eq!(row.text(KEY), Some(lease.key()));
    assert_eq!(row.text(CALLER), lease.caller());
    assert_eq!(floor(row.number(COST).unwrap(), 6), Some(lease.cost().amount().micros().into()));
    assert_eq!(floor(row.number(TTL).unwrap(), 6), Some(lease.ends().micros().into()));
    if let Some(at) = lease.created_at() {
        assert_eq!(floor(row.number(CREATED_AT).unwrap(), 6), Some(at.micros().into()));
    }
    match row.field(DIMENSION) {
        Some(Field::Text(name)) => assert_eq!(lease.dimension().as_str(), name),
        None => assert!(lease.key().starts_with(&format!("lease#{}#", lease.dimension()))),
        other => panic!("read from {other:?}"),
    }
    let delete = lease.delete_expired();
    assert_eq!(delete.key, lease.key());
    let [(":read_ends", Operand::Number(seen))] = &delete.values[..] else { panic!("{delete:?}") };
    assert!(is_exactly(seen, row.number(TTL).unwrap()), "{seen} was sent back");
    let rewritten = Item::made_by(lease.put());
    assert_eq!(Lease::read(&rewritten).as_ref(), Ok(lease), "{rewritten:?}");
    let purged: Timestamp = rewritten.number(PURGE_AT).unwrap().parse().unwrap();
    assert!(purged >= lease.ends());
    let at = ReadAt { begun: lease.ends(), done: lease.ends() };
    let mut census = Census::default();
    census.count(lease, at);
    assert_ne!(census, Census::default());
}

fn check_error(row: &Item, error: &RowError) {
    assert!([KEY, DIMENSION, COST, TTL].contains(&error.attribute), "{error}");
    assert!(error.to_string().contains(error.attribute));
    match &error.fault {
        AttributeFault::Missing => assert_eq!(row.field(error.attribute), None),
        AttributeFault::WrongType { .. } => assert!(row.field(error.attribute).is_some()),
        AttributeFault::BadValue { .. } => {
            assert!(row.number(error.attribute).or(row.text(error.attribute)).is_some())
        }
        other => panic!("{other:?}"),
    }
    for dimension in Lease::dimensions_of_unreadable(row) {
        let named = row.text(DIMENSION) == Some(dimension.as_str());
        let in_key = row.text(KEY).is_some_and(|key| key.starts_with(&format!("lease#{dimension}#")));
        assert!(named || in_key, "{dimension} is not in the row");
    }
}

fuzz_target!(|text: &str| {
    let row = Item::parse(text);
    match Lease::read(&row) {
        Ok(lease) => check(&row, &lease),
        Err(error) => check_error(&row, &error),
    }
});
