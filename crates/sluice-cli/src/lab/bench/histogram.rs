//! How long answers took.

use std::time::Duration;

/// Significant decimal digits: values that differ by more than 1 % are distinguished.
const DIGITS: u8 = 2;

/// Nanoseconds, one histogram for each caller, merged at the end: no caller waits for a lock to count.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        let new = hdrhistogram::Histogram::new(DIGITS);
        Self(new.unwrap_or_else(|_| unreachable!("{DIGITS} digits are as many as a histogram may have")))
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, span: Duration) {
        // The histogram grows with its values: only 600 years would not fit.
        let _ = self.0.record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// The least value that `per_mille` of all values do not exceed, in microseconds, rounded up to the end
    /// of its bucket; `None` if nothing was recorded.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn percentile_us(&self, per_mille: u32) -> Option<f64> {
        let value = || self.0.value_at_quantile(f64::from(per_mille) / 1_000.0) as f64 / 1_000.0;
        (!self.0.is_empty()).then(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_callers_together() {
        let (mut all, mut slow) = (Histogram::default(), Histogram::default());
        (0..990).for_each(|_| all.record(Duration::from_micros(10)));
        (0..10).for_each(|_| slow.record(Duration::from_millis(5)));
        all.merge(&slow);
        let percentile = |per_mille| all.percentile_us(per_mille).unwrap();
        assert!((10.0..10.2).contains(&percentile(500)), "{}", percentile(500));
        assert!((10.0..10.2).contains(&percentile(990)));
        assert!((5_000.0..5_080.0).contains(&percentile(999)));
        assert_eq!(Histogram::default().percentile_us(500), None);
    }
}
