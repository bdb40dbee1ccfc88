//! The key of a lease, where nothing else says what it holds: the dimension comes out of it as it went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_core::schema::{KEY, LEASE_PREFIX};
use sluice_core::{Dimension, Lease, LeaseId, RowError};
use sluice_fuzz::Item;

fn read(key: &str) -> Result<Lease, RowError> {
    Lease::read(&Item::parse("cost N 1\nttl N 1709550161").with_text(KEY, key))
}

fuzz_target!(|text: &str| {
    match read(text) {
        Ok(lease) => {
            assert_eq!(lease.key(), text);
            let id = text.strip_prefix(&format!("{LEASE_PREFIX}{}#", lease.dimension())).unwrap();
            assert!(!id.contains('#'), "{id:?} has a part of the dimension");
        }
        Err(error) => assert_eq!(error.attribute, KEY, "{error}"),
    }
    let named: Vec<_> = Lease::dimensions_of_unreadable(&Item::parse("").with_text(KEY, text)).collect();
    assert_eq!(named.first(), read(text).ok().as_ref().map(Lease::dimension));
    // A key that Sluice makes.
    let Some((name, id)) = text.rsplit_once('#') else { return };
    let (Ok(dimension), Some(id)) = (Dimension::new(name), LeaseId::new(id.to_owned())) else { return };
    let key = id.key(&dimension);
    assert_eq!(read(&key).unwrap().dimension(), &dimension, "{key:?}");
    assert!(Dimension::new(&key).is_err(), "{key:?} would be a bucket");
});
