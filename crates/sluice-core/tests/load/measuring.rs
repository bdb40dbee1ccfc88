//! Drain rates: by conservation, and only of times in which work was pending.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{CROWD, CROWD_PERIOD, OUTLIVED, REFUSED, SEQUENCE};
use sluice_core::{AdmissionDecision, Amount, Cost, Operand, Pressure, Rate, Sample, admit};

use crate::row::Item;
use crate::vendor::Vendor;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn estimate(vendor: &Vendor, row: &Item) -> Duration {
    let pressure = Pressure {
        pending: vendor.pending(),
        request: Cost::ONE,
        rate: row.load().drain_rate_of(vendor.live()),
        slo: None,
        last_completion: None,
        queue_nonempty_since: None,
        staleness: Duration::from_secs(60),
        now: vendor.now,
    };
    match admit(&pressure) {
        AdmissionDecision::Admit { wait: Some(wait) } => wait,
        other => panic!("{other:?}"),
    }
}

fn assert_within_a_quarter(estimated: Duration, real: Duration) {
    let (estimated, real) = (estimated.as_secs_f64(), real.as_secs_f64());
    assert!((estimated / real - 1.0).abs() <= 0.25, "{estimated} s was estimated, it took {real} s");
}

#[test]
fn the_wait_is_within_a_quarter_from_the_third_sweep_after_a_vendor_slowed_to_a_tenth() {
    // Every slot is used, and then only every tenth, by callers with a queue of their own. The vendor slows
    // down at each part of the time between two sweeps.
    for (workers, slowed_at) in [(20, 1), (20, 150), (20, 299), (2, 10), (2, 200)] {
        let mut vendor = Vendor::new(20, Duration::from_secs(2)).with_workers(workers);
        let mut row = Item::default();
        for _ in 0..4 {
            vendor.run(FIVE_MINUTES, 60);
            row.sweep(&vendor.sample());
        }
        assert_within_a_quarter(estimate(&vendor, &row), vendor.real_wait());
        vendor.run(Duration::from_secs(slowed_at), 60);
        vendor.takes *= 10;
        vendor.run(FIVE_MINUTES - Duration::from_secs(slowed_at), 60);
        row.sweep(&vendor.sample());
        for sweeps in 2..6 {
            vendor.run(FIVE_MINUTES, 60);
            row.sweep(&vendor.sample());
            if sweeps >= 3 {
                assert_within_a_quarter(estimate(&vendor, &row), vendor.real_wait());
            }
        }
    }
}

#[test]
fn the_third_sweep_of_a_new_bucket_estimates() {
    let mut vendor = Vendor::new(10, Duration::from_secs(20));
    let mut row = Item::default();
    for _ in 0..2 {
        vendor.run(FIVE_MINUTES, 30);
        row.sweep(&vendor.sample());
    }
    vendor.run(FIVE_MINUTES, 30);
    row.sweep(&vendor.sample());
    assert_within_a_quarter(estimate(&vendor, &row), vendor.real_wait());
}

/// A known system averaged the idle time in: its rate fell to nothing, and it shed for ever.
#[test]
fn an_idle_bucket_keeps_its_rate() {
    let mut vendor = Vendor::new(10, Duration::from_secs(1));
    let mut row = Item::default();
    for _ in 0..3 {
        vendor.run(FIVE_MINUTES, 20);
        row.sweep(&vendor.sample());
    }
    let busy = row.load().drain_rate().unwrap();
    vendor.waiting_leave();
    for _ in 0..288 {
        vendor.run(FIVE_MINUTES, 0);
        row.sweep(&vendor.sample());
    }
    assert_eq!((row.load().pending(), row.load().pending_since()), (Amount::ZERO, None));
    assert_eq!(row.load().drain_rate(), Some(busy), "a day later");
    // One call now and then, seen by a sweep at its end: what came in five minutes is not what could have
    // gone.
    vendor.arrive();
    vendor.run(Duration::from_millis(200), 0);
    row.sweep(&vendor.sample());
    vendor.run(FIVE_MINUTES, 0);
    row.sweep(&vendor.sample());
    assert_eq!(row.load().drain_rate(), Some(busy));
}

#[test]
fn more_holders_than_were_measured_drain_faster() {
    let mut vendor = Vendor::new(20, Duration::from_secs(5)).with_workers(2);
    let mut row = Item::default();
    for _ in 0..3 {
        vendor.run(FIVE_MINUTES, 4);
        row.sweep(&vendor.sample());
    }
    vendor.workers = 20;
    vendor.run(Duration::from_secs(1), 40);
    assert_within_a_quarter(estimate(&vendor, &row), vendor.real_wait());
}

#[test]
fn nothing_is_said_of_a_time_in_which_a_client_wrote_that_does_not_count() {
    let (mut row, mut vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
    for _ in 0..3 {
        vendor.run(FIVE_MINUTES, 20);
        row.sweep(&vendor.sample());
    }
    let known = row.load().drain_rate();
    vendor.run(FIVE_MINUTES, 20);
    // It released what others had acquired, and acquired more than it counted.
    let foreign = Sample { uncounted: 7, admitted: row.load().admitted().unwrap(), ..vendor.sample() };
    row.sweep(&foreign);
    assert_eq!((row.load().drain_rate(), row.load().sequence()), (known, 4));
}

#[test]
fn a_bucket_in_which_nothing_departs_is_held_at_the_floor_and_counts_as_leaked_after_a_quarter_of_an_hour() {
    let (mut row, mut vendor) = (Item::default(), Vendor::new(9, Duration::from_secs(100_000)));
    for minutes in [0_u64, 5, 10, 15, 20] {
        vendor.run(FIVE_MINUTES, 3);
        row.sweep(&vendor.sample());
        let leaked = if minutes >= 15 { 9 } else { 0 };
        assert_eq!(row.load().leaked(), Amount::from_tokens(leaked), "{minutes} minutes after it was seen");
    }
    assert_eq!(row.load().drain_rate(), Some(rate("0.01")), "each slot once in fifteen minutes");
    // Somebody is active: it is none.
    vendor.admitted += 1;
    vendor.run(FIVE_MINUTES, 0);
    row.sweep(&vendor.sample());
    assert_eq!((row.load().leaked(), row.load().still_since()), (Amount::ZERO, None));
}

/// Both read the row before either wrote.
#[test]
fn of_two_sweeps_that_measure_at_once_one_writes() {
    let (mut row, mut vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
    for _ in 0..2 {
        vendor.run(FIVE_MINUTES, 20);
        let before = row.before();
        let one = before.measure(&vendor.sample()).unwrap();
        vendor.run(Duration::from_secs(2), 20);
        let other = before.measure(&vendor.sample()).unwrap();
        assert!(row.apply(&one.update));
        assert!(!row.apply(&other.update), "its sample holds the other's time");
        assert_eq!(row.load(), one.load);
    }
    assert_eq!(row.load().sequence(), 2);
    // Nor does a sweep that is a moment behind, or whose clock is, count the time again.
    let early = Sample { at: row.load().measured_at().unwrap(), ..vendor.sample() };
    assert_eq!(row.before().measure(&early), None);
}

/// Someone swept from a machine whose clock is an hour ahead.
#[test]
fn a_measurement_of_a_clock_that_is_far_ahead_does_not_keep_others_from_measuring() {
    let (mut row, mut vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
    for _ in 0..3 {
        vendor.run(FIVE_MINUTES, 20);
        row.sweep(&vendor.sample());
    }
    let known = row.load().drain_rate();
    vendor.run(FIVE_MINUTES, 20);
    row.sweep(&Sample { at: vendor.now.after(Duration::from_secs(3_600)), ..vendor.sample() }).unwrap();
    let ahead = row.load().drain_rate();
    assert_ne!(known, ahead);
    vendor.run(FIVE_MINUTES, 20);
    row.sweep(&vendor.sample()).unwrap();
    assert_eq!((row.load().measured_at(), row.load().sequence()), (Some(vendor.now), 5));
    for _ in 0..3 {
        vendor.run(FIVE_MINUTES, 20);
        row.sweep(&vendor.sample()).unwrap();
    }
    assert_within_a_quarter(estimate(&vendor, &row), vendor.real_wait());
}

#[test]
fn a_row_that_cannot_be_read_is_measured_anew() {
    for broken in [Operand::Text("x".into()), Operand::Number("-1e400".into())] {
        let (mut row, vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
        row.sweep(&vendor.sample());
        row.0.insert(SEQUENCE.into(), broken);
        row.sweep(&vendor.sample()).unwrap();
        assert_eq!(row.load().sequence(), 1);
    }
}

/// No sweep replaces what callers write: were a measurement to rest on it, each would be the first.
#[test]
fn what_callers_wrote_and_nobody_can_read_leaves_the_measurement_alone() {
    for name in [CROWD, CROWD_PERIOD, REFUSED, OUTLIVED] {
        let (mut row, mut vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
        for sequence in 1..=3 {
            vendor.run(FIVE_MINUTES, 20);
            row.0.insert(name.into(), Operand::Text("x".into()));
            row.sweep(&vendor.sample()).unwrap();
            assert_eq!(row.load().sequence(), sequence);
        }
        assert!(row.load().drain_rate().is_some());
        assert_eq!(row.load().crowd(vendor.now), 0);
        assert_eq!((row.load().refused(), row.load().expired_holders()), (0, 0));
    }
}

#[test]
fn holders_that_outlived_their_leases_are_told_once() {
    let (mut row, mut vendor) = (Item::default(), Vendor::new(10, Duration::from_secs(1)));
    row.sweep(&vendor.sample());
    row.0.insert(OUTLIVED.into(), Operand::Number("3".into()));
    vendor.run(FIVE_MINUTES, 0);
    assert_eq!(row.sweep(&vendor.sample()).unwrap().expired_holders, 3);
    vendor.run(FIVE_MINUTES, 0);
    assert_eq!(row.sweep(&vendor.sample()), None, "an idle bucket is as it was");
}

proptest! {
    /// What departed over any number of sweeps is what was admitted less what is pending, where no sample had
    /// to be clamped; and each rate lies between the floor and the largest sample.
    #[test]
    fn the_rate_lies_between_the_samples(
        steps in prop::collection::vec((1_u64..600, 1_i32..50, 0_i32..50), 2..20),
    ) {
        let (mut row, mut vendor) = (Item::default(), Vendor::new(50, Duration::from_secs(1)));
        let mut largest = Rate::ZERO;
        for (secs, pending, departed) in steps {
            let before = if row.0.is_empty() { Amount::ZERO } else { row.load().pending() };
            vendor.now = vendor.now.after(Duration::from_secs(secs));
            let pending = Amount::from_tokens(pending);
            let grown = pending.minus(before).micros() / 1_000_000;
            let admitted = (i32::try_from(grown).unwrap() + departed).max(0);
            vendor.admitted += admitted;
            let departed = Amount::from_tokens(admitted).minus(pending.minus(before)).max(Amount::ZERO);
            let sample = Sample { pending, taken: pending, ..vendor.sample() };
            if !row.0.is_empty() {
                largest = largest.max(Rate::per(departed, Duration::from_secs(secs)).unwrap());
            }
            row.sweep(&sample);
            if let Some(rate) = row.load().drain_rate() {
                prop_assert!(rate >= sample.floor && rate <= largest.max(sample.floor), "{rate}, {largest}");
            }
        }
    }
}
