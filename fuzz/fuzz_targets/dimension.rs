//! Names of buckets: one text, one name, and never the key of another kind of row.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use sluice_core::schema::{BUCKETS, DIRECTORY_KEY};
use sluice_core::{Dimension, Directory, Operand};
use sluice_fuzz::Item;

/// Longest partition key that DynamoDB takes, in bytes, and what a lease adds to a name: `lease#`, `#`, and a
/// UUID.
const LONGEST_KEY: usize = 2_048;
const LEASE_ADDS: usize = 6 + 1 + 36;

fn is_name(text: &str) -> bool {
    let parts: Vec<&str> = text.split('#').collect();
    let (vendor, named) = (parts[0], parts.len() == 2 || parts.len() == 3);
    let printable = parts
        .iter()
        .all(|part| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control()));
    named && printable && !["lease", "load", "ticket"].contains(&vendor) && text.len() <= 1_024
}

fuzz_target!(|text: &str| {
    match Dimension::new(text) {
        Ok(name) => {
            assert!(is_name(text), "{text:?}");
            assert_eq!((name.as_str(), name.to_string().as_str()), (text, text));
            assert_eq!(name.to_string().parse::<Dimension>().as_ref(), Ok(&name));
            assert!(text.len() + LEASE_ADDS <= LONGEST_KEY && text != DIRECTORY_KEY);
        }
        Err(error) => {
            assert!(!is_name(text), "{text:?}: {error}");
            assert_eq!(error.name, text);
            assert!(error.to_string().contains(error.reason));
        }
    }
    // The directory is a text of such names.
    let directory = Directory::read(&Item::parse("").with_text(BUCKETS, text));
    let names: BTreeSet<Dimension> = directory.names().cloned().collect();
    let expected: BTreeSet<&str> = text.split_whitespace().filter(|name| is_name(name)).collect();
    assert!(names.iter().map(Dimension::as_str).eq(expected));
    let Some(update) = directory.update(&names) else { return };
    let Some((_, Operand::Text(list))) = update.values.iter().find(|(name, _)| *name == ":buckets") else {
        panic!("{update:?}")
    };
    let rewritten = Directory::read(&Item::parse("").with_text(BUCKETS, list));
    if rewritten.left_out(&names).is_none() {
        assert!(rewritten.names().eq(&names), "{list:?}");
        assert_eq!(rewritten.update(&names), None, "a directory is written once");
    }
});
