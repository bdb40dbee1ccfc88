//! What metrics and spans cost a grant, measured.

use std::hint::black_box;
use std::sync::Arc;

use sluice_core::{Amount, Bucket, Cost, Dimension, Limit, LimitType, Rate, Timestamp};
use tokio::time::Instant;

use crate::cache::{Cache, Entry};
use crate::request::Request;
use crate::{metrics, span};

/// The most that a grant may pay for being counted where nobody listens, in nanoseconds.
const MOST_NANOS: u128 = 300;
const GRANTS: u32 = 2_000_000;

fn entry(now: Timestamp) -> Arc<Entry> {
    let capacity = Amount::from_tokens(1_000);
    let rate = Rate::per(capacity, std::time::Duration::from_secs(60)).unwrap();
    let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    let dimension = Dimension::new("openai#rpm").unwrap();
    let entry = Cache::default().entry(&dimension);
    entry.saw(Arc::new(Bucket::full(dimension, limit, now)), now);
    entry
}

/// All that `Client::acquire` does for a grant out of stock besides granting it: two readings of the clock, a counter and a
/// histogram by handles that are kept, and a span that nobody wants. `docs/metrics.md` tells how it is run.
#[test]
#[ignore = "a measurement: in a release build, with --nocapture"]
fn a_grant_from_stock_pays_little_where_nobody_listens() {
    let start = Timestamp::from_secs(1_709_550_000);
    let entry = entry(start);
    let request = Request::from("openai#rpm");
    let mut best = u128::MAX;
    for _ in 0..5 {
        let begun = std::time::Instant::now();
        for n in 0..GRANTS {
            // A grant each microsecond: handles are made again as often as they would be.
            let now = Timestamp::from_micros(start.micros() + i64::from(n));
            let began = Instant::now();
            let span = span::acquire(black_box(&request));
            metrics::granted_from_stock(black_box(&entry), began, now);
            drop(black_box(span));
        }
        best = best.min(begun.elapsed().as_nanos() / u128::from(GRANTS));
    }
    println!("metrics and span of a grant from stock, no recorder, no subscriber: {best} ns");
    // Without optimisation it says nothing.
    assert!(cfg!(debug_assertions) || best < MOST_NANOS, "{best} ns");
}
