//! Measures what metrics and spans cost a grant. `sluice-table` measures what they cost its request.

use std::hint::black_box;
use std::sync::Arc;

use sluice_core::{Amount, Bucket, Cost, Dimension, Limit, LimitType, Rate, RateReceipt, Timestamp};
use sluice_ops::Released;
use tokio::time::Instant;

use crate::api::request::Request;
use crate::call::counted::{granted_from_stock, granted_in};
use crate::lane::cache::Cache;
use crate::lane::part::Part;
use crate::lane::release::name_of;
use crate::telemetry;
use crate::telemetry::{Source, span};

/// The most that a grant, or its release, may pay for being counted without a recorder and a subscriber, in
/// nanoseconds. Three times as much in the build of the other tests, which is hardly optimised.
const MOST_NANOS: u128 = if cfg!(debug_assertions) { 900 } else { 300 };
const GRANTS: u32 = 50_000;

fn part(now: Timestamp) -> Part {
    let capacity = Amount::from_tokens(1_000);
    let rate = Rate::per(capacity, std::time::Duration::from_secs(60)).unwrap();
    let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    let dimension = Dimension::new("openai#rpm").unwrap();
    let entry = Cache::default().entry(&dimension, None, || now);
    let bucket = Arc::new(Bucket::full(dimension, limit, now));
    entry.apply_read(Arc::clone(&bucket), now);
    Part::tokens(&entry, Cost::ONE, RateReceipt::new(Bucket::clone(&bucket), Cost::ONE), now, None)
}

/// The shortest of two hundred runs, in nanoseconds a turn: other processes rarely disturb all of them.
fn shortest(turn: impl Fn(Timestamp)) -> u128 {
    let start = Timestamp::from_secs(1_709_550_000);
    let run = |_| {
        let begun = std::time::Instant::now();
        // One turn each microsecond: handles are recreated as often as in real use.
        (0..GRANTS).for_each(|n| turn(Timestamp::from_micros(start.micros() + i64::from(n))));
        begun.elapsed().as_nanos() / u128::from(GRANTS)
    };
    (0..200).map(run).min().unwrap()
}

fn assert_little(what: &str, nanos: u128) {
    println!("{what}, no recorder, no subscriber: {nanos} ns");
    assert!(nanos < MOST_NANOS, "{what}: {nanos} ns");
}

/// All that `Client::acquire` does for a grant from stock, except granting it: a counter and a histogram with
/// kept handles, and a span without a subscriber. `docs/metrics.md` says how to run it.
#[test]
#[ignore = "a measurement, which nothing else may disturb: task test:cost"]
fn a_grant_from_stock_pays_little_where_nobody_listens() {
    let part = part(Timestamp::from_secs(1_709_550_000));
    let request = Request::from("openai#rpm");
    let nanos = shortest(|now| {
        let span = span::acquire(black_box(&request).dimensions());
        granted_from_stock(black_box(&part), now);
        drop(black_box(span));
    });
    assert_little("metrics and span of a grant from stock", nanos);
}

/// All that one acquire by the table counts, except its request.
#[test]
#[ignore = "a measurement, which nothing else may disturb: task test:cost"]
fn a_grant_by_the_table_pays_little_where_nobody_listens() {
    let part = part(Timestamp::from_secs(1_709_550_000));
    let request = Request::from("openai#rpm");
    let nanos = shortest(|now| {
        let began = Instant::now();
        let span = span::acquire(black_box(&request).dimensions());
        granted_in(black_box(&part), Source::Table, Some(began.elapsed()), now);
        drop(black_box(span));
    });
    assert_little("metrics and span of a grant by the table", nanos);
}

/// All that its release counts, except its request.
#[test]
#[ignore = "a measurement, which nothing else may disturb: task test:cost"]
fn a_release_pays_little_where_nobody_listens() {
    let part = part(Timestamp::from_secs(1_709_550_000));
    let request = Request::from("openai#rpm");
    let given_back: Result<Released, ()> = Ok(Released::GivenBack);
    let nanos = shortest(|_| {
        // The release's own span needs a grant. Without a subscriber, this span costs the same.
        let span = span::acquire(black_box(&request).dimensions());
        telemetry::released(black_box(&part).entry.label(), name_of(&given_back));
        drop(black_box(span));
    });
    assert_little("metrics and span of a release", nanos);
}
