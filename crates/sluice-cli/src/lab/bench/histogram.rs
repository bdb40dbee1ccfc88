//! Counts latencies in buckets of a logarithmic scale.

/// The number of buckets for one power of two: values that differ by more than 1.6 % are distinguished.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 64 * 59;

/// Counts of nanoseconds. Each caller has one, and they are merged at the end, so no caller waits for a lock
/// to count.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, span: std::time::Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.count += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    /// The least value that `per_mille` of all values do not exceed, in microseconds, rounded up to the end
    /// of its bucket; `None` if nothing was recorded.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn percentile_us(&self, per_mille: u64) -> Option<f64> {
        let wanted = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1_000).max(1);
        let mut seen = 0_u128;
        let at = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= wanted
        })?;
        Some(end_of(at) as f64 / 1_000.0)
    }
}

/// The bucket of a value. Values below [`STEPS`] have a bucket each; above, every power of two has as many
/// buckets.
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return usize::try_from(nanos).unwrap_or(0);
    }
    let shift = nanos.ilog2() - STEP_BITS;
    let step = (nanos >> shift) - STEPS;
    usize::try_from(u64::from(shift + 1) * STEPS + step).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).unwrap_or(0);
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_value_lies_in_a_bucket_that_ends_close_above_it() {
        for nanos in [0, 1, 63, 64, 65, 1_000, 123_456_789, 3_600_000_000_000] {
            let end = end_of(bucket(nanos));
            assert!(end >= nanos && end - nanos <= nanos / STEPS, "{nanos} {end}");
        }
    }

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
