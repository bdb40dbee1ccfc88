//! Lease rows that another client wrote, or that something happened to.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_core::schema::{CALLER, COST, CREATED_AT, DIMENSION, Field, KEY, PURGE_AT, Row as _, TTL};
use sluice_core::{Lease, Operand, Timestamp};

use crate::row::{Item, Value, any_row, change};

const NAMES: &[&str] = &[KEY, DIMENSION, COST, CREATED_AT, TTL, PURGE_AT, CALLER];

/// A row that makes sense, with more decimals than Sluice keeps. Its dimension may stand in the key alone.
fn sound() -> impl Strategy<Value = Item> {
    let name = prop_oneof![Just("openai#rpm"), Just("openai#gpt-4o#tpm")];
    (name, "[0-9a-f]{8}", "[1-9][0-9]{0,5}(\\.[0-9]{1,14})?", "1[0-9]{9}(\\.[0-9]{1,14})?", any::<bool>())
        .prop_map(|(name, id, cost, ends, named)| {
            let row = Item(BTreeMap::from([
                (KEY, Value::Text(format!("lease#{name}#{id}"))),
                (COST, Value::Number(cost)),
                (TTL, Value::Number(ends)),
            ]));
            if named { row.with(DIMENSION, Some(Value::Text(name.to_owned()))) } else { row }
        })
}

proptest! {
    #[test]
    fn a_lease_never_gives_back_more_than_its_row_says(row in sound()) {
        let lease = Lease::read(&row).unwrap();
        let written = row.number(COST);
        let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
        let micros: i64 = format!("{whole}{:0<6}", &fraction[..fraction.len().min(6)]).parse().unwrap();
        prop_assert_eq!(lease.cost().amount().micros(), micros);
    }

    #[test]
    fn a_lease_that_is_read_and_written_again_reads_the_same(
        row in sound(), name in prop::sample::select(&[CREATED_AT, CALLER, PURGE_AT][..]), to in change(),
    ) {
        // What is of no use for giving it back may be anything.
        let lease = Lease::read(&row.with(name, to)).unwrap();
        let rewritten = Item::made_by(lease.put());
        prop_assert_eq!(Lease::read(&rewritten).unwrap(), lease.clone());
        prop_assert!(rewritten.number(PURGE_AT).parse::<Timestamp>().unwrap() > lease.ends());
    }

    #[test]
    fn the_end_of_a_lease_is_compared_as_it_was_read(row in sound()) {
        let delete = Lease::read(&row).unwrap().delete_expired();
        let [(":read_ends", Operand::Number(seen))] = &delete.values[..] else { panic!("{delete:?}") };
        let read = row.number(TTL);
        let trimmed = if read.contains('.') { read.trim_end_matches('0').trim_end_matches('.') } else { read };
        prop_assert!(seen == read || seen == trimmed, "{seen} for {read}");
    }

    #[test]
    fn one_faulty_attribute_is_named_and_its_bucket_is_still_known(
        row in sound(), name in prop::sample::select(NAMES), to in change(),
    ) {
        let whole = Lease::read(&row).unwrap();
        let row = row.with(name, to);
        if let Err(error) = Lease::read(&row) {
            prop_assert_eq!(error.attribute, name);
            let mut named = Lease::dimensions_of_unreadable(&row);
            let lost = name == KEY && row.field(DIMENSION).is_none();
            prop_assert!(lost || named.any(|dimension| dimension == *whole.dimension()), "{error}");
        }
    }

    #[test]
    fn the_bucket_of_an_unreadable_lease_is_named_by_its_row(row in any_row(NAMES)) {
        let text = |name| match row.field(name) {
            Some(Field::Text(text)) => text,
            _ => "",
        };
        for dimension in Lease::dimensions_of_unreadable(&row) {
            let in_key = text(KEY).starts_with(&format!("lease#{dimension}#"));
            prop_assert!(in_key || text(DIMENSION) == dimension.as_str());
        }
    }
}
