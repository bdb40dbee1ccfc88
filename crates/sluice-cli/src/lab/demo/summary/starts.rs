//! Compares the starts of the calls that arrived with the limit of their bucket, and measures how long the
//! calls took to arrive. The checker of histories judges the starts: it shares no code with what it judges.

use std::time::Duration;

use sluice_history::{Checker, Event, Granted, Header, Kind, Limit, Violation, pico_per_sec};

use crate::lab::demo::vendor::anthropic::Arrival;

/// Starts are in whole microseconds, so each may be this much too early.
const ROUNDING_MICROS: i64 = 1;

/// The checker counts in millionths of a call.
const MILLIONTHS: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Starts {
    /// The smallest burst that allows all starts at this rate: over all spans of time, the most calls that
    /// start in a span, minus its length times the rate.
    pub(super) burst: f64,
    /// Whether the bucket allows them.
    pub(super) fit: bool,
    /// Calls that arrived before their start.
    pub(super) early: usize,
    /// The time from a start to its arrival: the median, and the longest.
    pub(super) median: Duration,
    pub(super) slowest: Duration,
}

impl Starts {
    /// `rate`: starts a second. `allowed`: the capacity of the bucket.
    pub(super) fn of(arrivals: &[Arrival], rate: f64, allowed: u32) -> Self {
        let mut took: Vec<u64> =
            arrivals.iter().map(|arrival| arrival.at.saturating_sub(arrival.start_at)).collect();
        took.sort_unstable();
        let at = |place: usize| Duration::from_micros(took.get(place).copied().unwrap_or(0));
        let early = arrivals.iter().filter(|arrival| arrival.at < arrival.start_at).count();
        let (burst, fit) = judge(arrivals, rate, allowed);
        Self { burst, fit, early, median: at(took.len() / 2), slowest: at(took.len().saturating_sub(1)) }
    }
}

/// Returns the burst of the starts, and whether the bucket allows it.
#[allow(clippy::cast_precision_loss)]
fn judge(arrivals: &[Arrival], rate: f64, allowed: u32) -> (f64, bool) {
    let (bucket, capacity) = ("anthropic#requests", i64::from(allowed) * MILLIONTHS);
    let per_sec = pico_per_sec(&rate.to_string()).unwrap_or_default();
    let mut checker = Checker::new();
    checker.feed(Event::History(Header::new(ROUNDING_MICROS)));
    checker.feed(Event::Limit(Limit::new(bucket, Kind::Requests, capacity, per_sec, 0)));
    for (n, arrival) in arrivals.iter().enumerate() {
        let start_at = i64::try_from(arrival.start_at).unwrap_or(i64::MAX);
        checker.feed(Event::Granted(Granted::at(n.to_string(), "demo", bucket, MILLIONTHS, start_at)));
    }
    let verdict = checker.finish();
    let busiest = verdict.buckets.first().and_then(|figures| figures.busiest.as_ref());
    let burst = busiest.map_or(0, |window| window.granted - window.allowed + i128::from(capacity));
    let exceeded = |violation: &Violation| matches!(violation, Violation::RateExceeded { .. });
    (burst as f64 / MILLIONTHS as f64, !verdict.violations.iter().any(exceeded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(micros: &[u64]) -> Starts {
        Starts::of(&micros.iter().map(|start| Arrival::taken(*start, *start)).collect::<Vec<_>>(), 2.0, 2)
    }

    fn assert_burst(starts: &Starts, burst: f64) {
        assert!((starts.burst - burst).abs() < 0.001, "{}, not {burst}", starts.burst);
    }

    #[test]
    fn the_burst_is_what_starts_beyond_the_rate_in_any_span() {
        assert!(starts(&[]).fit);
        assert_burst(&starts(&[5]), 1.0);
        // At the rate.
        assert_burst(&starts(&[0, 500_000, 1_000_000, 1_500_000]), 1.0);
        assert_burst(&starts(&[7, 7, 7]), 3.0);
        // In any order.
        assert_burst(&starts(&[250_000, 0]), 1.5);
        // What lay idle before is no credit.
        assert_burst(&starts(&[0, 9_000_000, 9_000_000, 9_500_000, 9_500_000]), 3.0);
    }

    #[test]
    fn one_start_too_many_does_not_fit() {
        assert!(starts(&[0, 0, 500_000, 1_000_000, 1_500_000]).fit);
        assert!(!starts(&[0, 0, 500_000, 1_000_000, 1_490_000]).fit);
        assert!(starts(&[0, 0, 499_999, 999_999, 1_499_999]).fit, "rounded to microseconds");
    }

    #[test]
    fn a_rate_that_is_a_little_too_high_shows_in_a_run() {
        let bucket = |rate: u64| (0..rate * 20 / 10).map(|call| call * 10_000_000 / rate).collect::<Vec<_>>();
        let starts = |rate| {
            Starts::of(&bucket(rate).iter().map(|at| Arrival::taken(*at, *at)).collect::<Vec<_>>(), 58.8, 2)
        };
        assert_burst(&starts(588), 1.0);
        assert!(starts(590).burst > 4.9, "{}: 0.2 calls a second for 20 s", starts(590).burst);
    }

    #[test]
    fn an_arrival_is_late_or_before_its_start() {
        let on_the_way = [Arrival::taken(10, 10), Arrival::taken(5_000, 7_000), Arrival::taken(9_000, 9_500)];
        let starts = Starts::of(&on_the_way, 1_000.0, 2);
        assert_eq!(
            (starts.median, starts.slowest, starts.early),
            (Duration::from_micros(500), Duration::from_millis(2), 0)
        );
        let early = Starts::of(&[Arrival::taken(10, 9)], 1_000.0, 2);
        assert_eq!((early.median, early.slowest, early.early), (Duration::ZERO, Duration::ZERO, 1));
    }
}
