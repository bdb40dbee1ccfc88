//! Counts calls by the tokens that they used. Old calls weigh less.

use std::f64::consts::LN_2;

/// Buckets for each doubling: `2^6`. A bucket is at most 1/64 as wide as its smallest value, and is reported
/// as its largest value: an estimate is never below the truth, and above it by less than 1.6 %.
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;

/// Calls that use more count as this many: 16.7 million tokens, several times the largest context there is.
const LARGEST: u64 = (1 << 24) - 1;

/// If a weight exceeds this, all are scaled down: no sum may reach the largest double.
const HEAVIEST: f64 = 1e100;

/// A histogram with buckets of growing width, as in `HdrHistogram`: exact up to 127, then 64 for each
/// doubling, 1,216 at most, as many as the largest value needs. Old calls do not lose weight at each new
/// call: each new call weighs more than the one before.
#[derive(Debug)]
pub(super) struct Histogram {
    weights: Vec<f64>,
    total: f64,
    newest: f64,
    growth: f64,
    calls: f64,
}

impl Histogram {
    /// Creates a histogram in which a call weighs half as much as one that is `half_life` calls younger.
    pub(super) fn new(half_life: u32) -> Self {
        let growth = (LN_2 / f64::from(half_life)).exp();
        Self { weights: Vec::new(), total: 0.0, newest: 1.0, growth, calls: 0.0 }
    }

    pub(super) fn add(&mut self, tokens: u64) {
        let at = bucket_of(tokens);
        if self.weights.len() <= at {
            self.weights.resize(at + 1, 0.0);
        }
        self.weights[at] += self.newest;
        self.total += self.newest;
        self.newest *= self.growth;
        self.calls += 1.0;
        if self.newest > HEAVIEST {
            self.weights.iter_mut().for_each(|weight| *weight /= self.newest);
            self.total = self.weights.iter().sum();
            self.newest = 1.0;
        }
    }

    /// The most that this share of calls used, rounded up to the end of its bucket; `None` until there are
    /// enough calls for one of them to be beyond the quantile (20 for 0.95).
    pub(super) fn quantile(&self, share: f64) -> Option<u64> {
        // A small tolerance, since 1 - 0.95 is not exactly a twentieth.
        if self.calls * (1.0 - share) < 1.0 - 1e-9 {
            return None;
        }
        let rank = self.total * share;
        let mut below = 0.0;
        let reaches = |weight: &f64| {
            below += weight;
            below >= rank
        };
        let at = self.weights.iter().position(reaches).unwrap_or(self.weights.len().saturating_sub(1));
        Some(largest_in(at))
    }
}

fn bucket_of(tokens: u64) -> usize {
    let tokens = tokens.min(LARGEST);
    // How often to halve the value until it is below 128: its leading seven bits are then left.
    let halvings = (tokens | 1).ilog2().saturating_sub(SUB_BITS);
    let leading = usize::try_from(tokens >> halvings).unwrap_or(usize::MAX);
    usize::try_from(halvings).map_or(0, |halvings| halvings * SUB + leading)
}

fn largest_in(bucket: usize) -> u64 {
    let halvings = (bucket / SUB).saturating_sub(1);
    let leading = bucket - halvings * SUB;
    u64::try_from(leading).map_or(LARGEST, |leading| ((leading + 1) << halvings) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantile of the same calls with the same weights, by sorting.
    fn exact(calls: &[u64], half_life: u32, share: f64) -> u64 {
        let mut age = 0.0;
        let mut weighed: Vec<(u64, f64)> = Vec::new();
        for tokens in calls.iter().rev() {
            weighed.push((*tokens, (-age / f64::from(half_life)).exp2()));
            age += 1.0;
        }
        weighed.sort_by_key(|(tokens, _)| *tokens);
        let rank = share * weighed.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut below = 0.0;
        let reached = weighed.iter().find(|(_, weight)| {
            below += weight;
            below >= rank
        });
        reached.or(weighed.last()).unwrap().0
    }

    #[test]
    fn buckets_are_in_order_without_gaps_and_no_wider_than_a_64th() {
        let mut before = 0;
        for tokens in (0..70_000).chain((70_000..LARGEST).step_by(611)).chain([LARGEST]) {
            let (bucket, largest) = (bucket_of(tokens), largest_in(bucket_of(tokens)));
            assert!(bucket >= before && (tokens > 70_000 || bucket - before <= 1), "{tokens}");
            assert!(
                largest >= tokens && largest - tokens <= tokens / 64,
                "{tokens} is reported as {largest}"
            );
            assert_eq!(bucket_of(largest), bucket);
            before = bucket;
        }
        assert_eq!((before, bucket_of(u64::MAX)), (1_215, 1_215));
    }

    #[test]
    fn a_quantile_is_the_exact_one_or_above_it_by_less_than_two_percent() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let half_life = random.u32(10..2_000);
            let share = [0.5, 0.9, 0.95, 0.99][random.usize(..4)];
            let mut histogram = Histogram::new(half_life);
            let length = random.usize(100..2_000);
            // From one token to a million, each order of magnitude equally often, drifting.
            let draw = |at: usize| 2_u64.pow(random.u32(0..20)) + random.u64(..=u64::try_from(at).unwrap());
            let calls: Vec<u64> = (0..length).map(draw).collect();
            calls.iter().for_each(|tokens| histogram.add(*tokens));
            let found = histogram.quantile(share).unwrap();
            // Sums in another order may differ if the share falls between two calls.
            let (low, high) =
                (exact(&calls, half_life, share - 1e-9), exact(&calls, half_life, share + 1e-9));
            assert!(low <= found && found <= high + high / 64, "seed {seed}: {low} to {high}, found {found}");
        }
    }

    #[test]
    fn weights_that_are_scaled_down_change_no_quantile() {
        let mut histogram = Histogram::new(10);
        // The weight exceeds `HEAVIEST` after 3,322 calls.
        let calls: Vec<u64> = (0..3_400).map(|at| 100 + at % 97 * 10).collect();
        for (at, tokens) in calls.iter().enumerate() {
            histogram.add(*tokens);
            if at > 3_250 {
                let expected = exact(&calls[..=at], 10, 0.9);
                let found = histogram.quantile(0.9).unwrap();
                assert!(expected <= found && found <= expected + expected / 64, "call {at}");
            }
        }
        assert!(histogram.newest < 1e30);
    }

    #[test]
    fn a_quantile_takes_as_many_calls_as_leave_one_beyond_it() {
        let mut histogram = Histogram::new(200);
        for calls in 1..=20 {
            histogram.add(calls);
            assert_eq!(histogram.quantile(0.95).is_some(), calls == 20);
            assert_eq!(histogram.quantile(0.5).is_some(), calls >= 2);
        }
    }
}
