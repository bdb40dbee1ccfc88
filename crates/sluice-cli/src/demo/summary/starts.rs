//! The starts that Sluice gave to calls that arrived, held against the promise of their bucket; and how long they took to arrive.

use std::time::Duration;

use crate::demo::vendor::anthropic::Arrival;

/// Starts come in whole microseconds, so that a few of them may round to less than a thousandth of a call.
const ROUNDING: f64 = 0.001;

#[derive(Debug, PartialEq)]
pub(super) struct Starts {
    /// The least burst with which a bucket of the rate lets them all start: over all spans of time, the most calls that start in
    /// one beyond its length times the rate.
    pub(super) burst: f64,
    /// Calls that arrived before their start.
    pub(super) early: usize,
    /// The longest time from a start to its arrival.
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
            // Calls that started, less what flowed in: the span from any start to this one gives the difference of the two, and one.
            let beyond = before as f64 - rate * (start - first) as f64 / 1e6;
            least = least.min(beyond);
            burst = burst.max(beyond - least + 1.0);
        }
        let slowest = arrivals.iter().map(|arrival| arrival.at.saturating_sub(arrival.start_at)).max().unwrap_or(0);
        let early = arrivals.iter().filter(|arrival| arrival.at < arrival.start_at).count();
        Self { burst, early, slowest: Duration::from_micros(slowest) }
    }

    pub(super) fn fit(&self, burst: f64) -> bool {
        self.burst <= burst + ROUNDING && self.early == 0
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
    fn an_arrival_before_its_start_does_not_fit_either() {
        let on_the_way = [Arrival::taken(10, 10), Arrival::taken(5_000, 7_000), Arrival::taken(9_000, 9_500)];
        let starts = Starts::of(&on_the_way, 1_000.0);
        assert_eq!((starts.slowest, starts.early, starts.fit(1.0)), (Duration::from_millis(2), 0, true));
        let early = Starts::of(&[Arrival::taken(10, 9)], 1_000.0);
        assert_eq!((early.slowest, early.early, early.fit(1.0)), (Duration::ZERO, 1, false));
    }
}
