//! Compares the starts of arrived calls with their bucket's promise, and measures how long the calls took to
//! arrive.

use std::time::Duration;

use crate::lab::demo::vendor::anthropic::Arrival;

/// Starts are whole microseconds, so a span is off by less than two: a thousandth of a call at 500 a second.
const ROUNDING: f64 = 0.001;

#[derive(Debug)]
pub(super) struct Starts {
    /// The smallest burst that allows all starts at this rate: over all spans of time, the most calls that
    /// start in a span, minus its length times the rate.
    pub(super) burst: f64,
    /// Calls that arrived before their start.
    pub(super) early: usize,
    /// The time from a start to its arrival: the median, and the longest.
    pub(super) median: Duration,
    pub(super) slowest: Duration,
}

impl Starts {
    /// `rate`: starts a second.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(arrivals: &[Arrival], rate: f64) -> Self {
        let mut starts: Vec<u64> = arrivals.iter().map(|arrival| arrival.start_at).collect();
        starts.sort_unstable();
        let first = starts.first().copied().unwrap_or(0);
        let (mut burst, mut least) = (0.0_f64, f64::INFINITY);
        for (before, start) in starts.iter().enumerate() {
            // Calls that started before this one, minus what was refilled. For the span from any start to
            // this one, the excess is the difference of the two values, plus one.
            let beyond = before as f64 - rate * (start - first) as f64 / 1e6;
            least = least.min(beyond);
            burst = burst.max(beyond - least + 1.0);
        }
        let mut took: Vec<u64> = arrivals.iter().map(|arrival| arrival.at.saturating_sub(arrival.start_at)).collect();
        took.sort_unstable();
        let at = |place: usize| Duration::from_micros(took.get(place).copied().unwrap_or(0));
        let early = arrivals.iter().filter(|arrival| arrival.at < arrival.start_at).count();
        Self { burst, early, median: at(took.len() / 2), slowest: at(took.len().saturating_sub(1)) }
    }

    pub(super) fn fit(&self, burst: f64) -> bool {
        self.burst <= burst + ROUNDING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(micros: &[u64]) -> Starts {
        Starts::of(&micros.iter().map(|start| Arrival::taken(*start, *start)).collect::<Vec<_>>(), 2.0)
    }

    #[test]
    fn the_burst_is_what_starts_beyond_the_rate_in_any_span() {
        assert!(starts(&[]).fit(0.0));
        assert_eq!(starts(&[5]).burst, 1.0);
        assert_eq!(starts(&[0, 500_000, 1_000_000, 1_500_000]).burst, 1.0, "at the rate");
        assert_eq!(starts(&[7, 7, 7]).burst, 3.0);
        assert_eq!(starts(&[250_000, 0]).burst, 1.5, "in any order");
        assert_eq!(
            starts(&[0, 9_000_000, 9_000_000, 9_500_000, 9_500_000]).burst,
            3.0,
            "what lay idle before is no credit"
        );
    }

    #[test]
    fn one_start_too_many_does_not_fit() {
        assert!(starts(&[0, 0, 500_000, 1_000_000, 1_500_000]).fit(2.0));
        assert!(!starts(&[0, 0, 500_000, 1_000_000, 1_490_000]).fit(2.0));
        assert!(starts(&[0, 0, 499_999, 999_999, 1_499_999]).fit(2.0), "rounded to microseconds");
    }

    #[test]
    fn a_rate_that_is_a_little_too_high_shows_in_a_run() {
        let bucket = |rate: u64| (0..rate * 20 / 10).map(|call| call * 10_000_000 / rate).collect::<Vec<_>>();
        let burst =
            |rate| Starts::of(&bucket(rate).iter().map(|at| Arrival::taken(*at, *at)).collect::<Vec<_>>(), 58.8).burst;
        assert!((burst(588) - 1.0).abs() < ROUNDING, "{}", burst(588));
        assert!(burst(590) > 4.9, "{}: 0.2 calls a second for 20 s", burst(590));
    }

    #[test]
    fn an_arrival_is_late_or_before_its_start() {
        let on_the_way = [Arrival::taken(10, 10), Arrival::taken(5_000, 7_000), Arrival::taken(9_000, 9_500)];
        let starts = Starts::of(&on_the_way, 1_000.0);
        assert_eq!(
            (starts.median, starts.slowest, starts.early),
            (Duration::from_micros(500), Duration::from_millis(2), 0)
        );
        let early = Starts::of(&[Arrival::taken(10, 9)], 1_000.0);
        assert_eq!((early.median, early.slowest, early.early), (Duration::ZERO, Duration::ZERO, 1));
    }
}
