//! Measures what metrics, a span and learning the table's time cost a request.

use std::hint::black_box;

use aws_sdk_dynamodb::types::ConsumedCapacity;
use sluice_core::Timestamp;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::operation::Operation;
use crate::requests::{self, Ended, Units};
use crate::span;
use crate::table_clock::TableClock;

/// The most that the metrics of a request may cost without a recorder, in nanoseconds. Three times as much in
/// the build of the other tests, which is hardly optimised.
const MOST_FOR_METRICS: u128 = if cfg!(debug_assertions) { 900 } else { 300 };

/// The most that learning the time from a reply may cost, in nanoseconds; three times as much in that build.
const MOST_FOR_TIME: u128 = if cfg!(debug_assertions) { 900 } else { 300 };

const REQUESTS: u32 = 50_000;

/// The shortest of two hundred runs, in nanoseconds a turn: other processes rarely disturb all of them.
fn shortest(turn: impl Fn(Timestamp)) -> u128 {
    let start = Timestamp::from_secs(1_709_550_000);
    let run = |_| {
        let began = std::time::Instant::now();
        (0..REQUESTS).for_each(|n| turn(Timestamp::from_micros(start.micros() + i64::from(n))));
        began.elapsed().as_nanos() / u128::from(REQUESTS)
    };
    (0..200).map(run).min().unwrap()
}

fn assert_little(what: &str, nanos: u128, most: u128) {
    println!("{what}, no recorder, no subscriber: {nanos} ns");
    assert!(nanos < most, "{what}: {nanos} ns");
}

/// The duration of the request, its units, and its span.
#[test]
#[ignore = "a measurement, which nothing else may disturb: task test:cost"]
fn a_request_pays_little_where_nobody_listens() {
    let units = Units::default();
    let consumed = ConsumedCapacity::builder().table_name("limits").capacity_units(1.0).build();
    let nanos = shortest(|_| {
        let began = Instant::now();
        let span = span::request(Operation::UpdateItem, black_box("limits"), None, 0);
        units.used(Operation::UpdateItem, std::iter::once(black_box(&consumed)));
        requests::ended(Operation::UpdateItem, Ended::Ok, began.elapsed());
        drop(black_box(span));
    });
    assert_little("metrics and span of a request", nanos, MOST_FOR_METRICS);
}

/// What a request pays for learning the time of the table from its reply, with or without a recorder: four
/// readings of this machine's clocks, the bracket, and once a second the gauge.
#[test]
#[ignore = "a measurement, which nothing else may disturb: task test:cost"]
fn a_request_pays_little_for_the_time_that_its_reply_tells() {
    let clock = TableClock::new(Clock::system());
    let nanos = shortest(|now| {
        // A `Date` has whole seconds.
        let date = Timestamp::from_micros(now.micros() - now.micros().rem_euclid(1_000_000));
        clock.replied(black_box(Some(date)), clock.sent());
    });
    assert_little("time of the table, of a request", nanos, MOST_FOR_TIME);
}
