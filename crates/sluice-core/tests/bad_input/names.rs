//! Names of buckets, and the keys of leases that carry them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_core::schema::{BUCKETS, COST, KEY, LEASE_PREFIX, TTL};
use sluice_core::{Dimension, Directory, Lease, LeaseId, Operand};

use crate::row::{Item, Value};

/// Names, what almost is one, and anything.
fn name() -> impl Strategy<Value = String> {
    let part = || prop_oneof![4 => "[a-z0-9.-]{1,8}", 1 => "\\PC{0,4}", 1 => Just("lease".to_owned()), 1 => Just("load".to_owned()), 1 => Just("ticket".to_owned())];
    prop_oneof![
        6 => prop::collection::vec(part(), 1..5).prop_map(|parts| parts.join("#")),
        1 => ".{0,20}",
        1 => (1_015_usize..1_030).prop_map(|length| format!("a#{}", "b".repeat(length - 2))),
    ]
}

fn is_name(text: &str) -> bool {
    let parts: Vec<&str> = text.split('#').collect();
    let is_part =
        |part: &&str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    (2..=3).contains(&parts.len())
        && parts.iter().all(is_part)
        && !["lease", "load", "ticket"].contains(&parts[0])
        && text.len() <= 1_024
}

fn row_with_key(key: &str) -> Item {
    let number = |text: &str| Value::Number(text.to_owned());
    Item(BTreeMap::from([
        (KEY, Value::Text(key.to_owned())),
        (COST, number("1")),
        (TTL, number("1709550161")),
    ]))
}

proptest! {
    #[test]
    fn a_name_is_what_was_written_or_refused_with_it(text in name()) {
        match Dimension::new(&text) {
            Ok(name) => {
                prop_assert!(is_name(&text), "{text:?}");
                prop_assert_eq!(name.as_str(), &text);
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
            Err(error) => {
                prop_assert!(!is_name(&text), "{error}");
                prop_assert_eq!(error.name, text);
            }
        }
    }

    #[test]
    fn the_key_of_a_lease_gives_its_dimension_back_and_is_never_a_buckets(text in name(), id in "[^#]{1,36}") {
        prop_assume!(is_name(&text));
        let dimension = Dimension::new(&text).unwrap();
        let key = LeaseId::new(id).unwrap().key(&dimension);
        let lease = Lease::read(&row_with_key(&key)).unwrap();
        prop_assert_eq!(lease.dimension(), &dimension);
        prop_assert_eq!(lease.key(), &key);
        prop_assert!(Dimension::new(&key).is_err());
    }

    #[test]
    fn a_key_that_nobody_knows_gives_a_dimension_only_where_it_holds_one(rest in name(), prefixed in any::<bool>()) {
        let key = if prefixed { format!("{LEASE_PREFIX}{rest}") } else { rest };
        match Lease::read(&row_with_key(&key)) {
            Ok(lease) => {
                let prefix = format!("{LEASE_PREFIX}{}#", lease.dimension());
                prop_assert!(key.strip_prefix(&prefix).is_some_and(|id| !id.contains('#')), "{key:?}");
            }
            Err(error) => prop_assert_eq!(error.attribute, KEY),
        }
    }

    #[test]
    fn an_id_with_a_separator_is_none(id in "[^#]{0,5}#[^#]{0,5}") {
        prop_assert_eq!(LeaseId::new(id), None);
    }

    #[test]
    fn a_directory_holds_its_names_and_leaves_out_the_rest(names in prop::collection::vec(name(), 0..8)) {
        let row = |text: String| Item(BTreeMap::from([(BUCKETS, Value::Text(text))]));
        let text = names.join(" ");
        let directory = Directory::read(&row(text.clone()));
        let read: BTreeSet<Dimension> = directory.names().cloned().collect();
        let expected: BTreeSet<&str> = text.split_whitespace().filter(|name| is_name(name)).collect();
        prop_assert!(read.iter().map(Dimension::as_str).eq(expected));
        if let Some(update) = directory.update(&read) {
            let written = update.values.into_iter().find(|(name, _)| *name == ":buckets").map(|(_, value)| value);
            let Some(Operand::Text(written)) = written else { panic!("{written:?}") };
            prop_assert!(Directory::read(&row(written)).names().eq(&read));
        }
    }
}
