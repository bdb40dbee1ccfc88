use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, Cost, Dimension, Limit, Timestamp};

use super::*;
use crate::lane::cache::Cache;

/// The benchmark `memory` measures the total: 20 MB for 10,000 buckets.
#[test]
fn a_bucket_that_is_only_met_takes_little() {
    let entry = Cache::default().entry(&Dimension::new("openai#rpm").unwrap(), None, Timestamp::default);
    let lanes = [
        entry.tokens.get().is_some(),
        entry.inline.get().is_some(),
        entry.releases.get().is_some(),
        entry.settles.get().is_some(),
    ];
    assert!(!lanes.contains(&true), "{lanes:?}");
    assert_eq!(entry.extensions.len(), 0);
    let bytes = size_of::<Entry>();
    assert!(
        bytes <= 512,
        "{bytes} bytes each: is what was added needed by every bucket, `Lazy`, or an extension?"
    );
}

const NOW: Timestamp = Timestamp::from_micros(1_709_550_000_000_000);

fn named(name: impl std::fmt::Display) -> Dimension {
    Dimension::new(&format!("vendor{name}#rpm")).unwrap()
}

fn of_at_most(most: usize) -> Cache {
    Cache::new(std::collections::HashSet::new(), most, sluice_vendors::Vendors::default(), WarnAt::default())
}

#[test]
fn a_million_names_keep_memory_bounded() {
    let cache = of_at_most(10_000);
    for n in 0..1_000_000 {
        cache.entry(&named(n), None, || NOW);
    }
    assert_eq!(cache.entries().len(), 10_000);
}

#[test]
fn what_is_used_outlives_what_is_not() {
    let cache = of_at_most(100);
    (0..100).for_each(|n| drop(cache.entry(&named(n), None, || NOW)));
    for n in 100..10_000 {
        cache.entry(&named(n), None, || NOW);
        assert!(cache.get("vendor7#rpm", None).is_some(), "it is used all the time");
    }
    assert!(cache.get("vendor8#rpm", None).is_none());
}

#[test]
fn an_entry_in_use_is_never_forgotten_and_never_made_twice() {
    let cache = of_at_most(10);
    let held = cache.entry(&named("held"), None, || NOW);
    (0..1_000).for_each(|n| drop(cache.entry(&named(n), None, || NOW)));
    assert!(Arc::ptr_eq(&held, &cache.entry(&named("held"), None, || NOW)));
    let all: Vec<_> = (0..1_000).map(|n| cache.entry(&named(n), None, || NOW)).collect();
    assert_eq!(cache.entries().len(), 1_001, "each of them is in use");
    drop((all, held));
    (0..100).for_each(|n| drop(cache.entry(&named(format!("next{n}")), None, || NOW)));
    assert_eq!(cache.entries().len(), 10, "and goes when it is not any more");
}

#[test]
fn a_start_that_was_left_keeps_its_entry_until_it_is_past() {
    let cache = of_at_most(1);
    let entry = cache.entry(&named("booked"), None, || NOW);
    let limit = Limit::rate(
        sluice_core::LimitType::Requests,
        sluice_core::Amount::from_tokens(2),
        sluice_core::Rate::per(sluice_core::Amount::from_tokens(2), Duration::from_secs(60)).unwrap(),
        Cost::ONE,
    );
    let receipt =
        sluice_core::RateReceipt::new(Bucket::full(entry.dimension.clone(), limit.unwrap(), NOW), Cost::ONE);
    let start_at = NOW.after(Duration::from_secs(10));
    entry.abandon(Part { start_at, ..Part::from_stock(Arc::clone(&entry), receipt, NOW) });
    drop(entry);
    let then = |secs| NOW.after(Duration::from_secs(secs));
    // The first look clears the mark of the last use.
    (0..5).for_each(|n| drop(cache.entry(&named(n), None, || then(9))));
    assert!(cache.get("vendorbooked#rpm", None).is_some());
    (5..9).for_each(|n| drop(cache.entry(&named(n), None, || then(11))));
    assert!(cache.get("vendorbooked#rpm", None).is_none());
}

#[test]
fn ten_thousand_sets_keep_memory_bounded_and_the_lane_of_who_is_in_line() {
    let cache = of_at_most(100_000);
    let shared = cache.entry(&named("shared"), None, || NOW);
    let set = |n: u32| [Arc::clone(&shared), cache.entry(&named(n), None, || NOW)];
    let in_use = cache.row_lane(&set(0));
    for n in 1..10_000 {
        cache.row_lane(&set(n));
    }
    assert!(cache.lanes() <= 1_000, "{}", cache.lanes());
    assert!(shared.rows.lock().len() <= 4_096, "{}", shared.rows.lock().len());
    assert!(Arc::ptr_eq(&in_use, &cache.row_lane(&set(0))));
}

/// Otherwise a bucket that is met again would not wake the callers that wait in the lane.
#[test]
fn the_lane_of_a_set_goes_with_its_entries() {
    let cache = of_at_most(2);
    let lane =
        Arc::downgrade(&cache.row_lane(&["a", "b"].map(|name| cache.entry(&named(name), None, || NOW))));
    (0..9).for_each(|n| drop(cache.entry(&named(n), None, || NOW)));
    assert!(lane.upgrade().is_none());
}
