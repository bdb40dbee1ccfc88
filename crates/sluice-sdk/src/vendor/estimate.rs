//! What a call will most likely use, from what calls of its kind used.

use std::collections::HashMap;

mod histogram;
#[cfg(test)]
mod tests;

use crate::vendor::estimate::histogram::Histogram;
use parking_lot::{Mutex, MutexGuard};

/// Settings of a [`TokenEstimator`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EstimatorConfig {
    /// The share of calls that an estimate covers; 0.95 by default, from 0.5 to 0.999. A larger one reserves more of the limit than
    /// is used; with a smaller one more calls use more than they reserved, which settling takes from those that follow.
    pub quantile: f64,
    /// After so many calls of its kind a call weighs half; 200 by default, from 10 to 100,000. A larger one is steadier, a
    /// smaller one follows a change sooner: for the p95, a rise shows within 0.08 half-lives (15 calls by default), a fall within
    /// 4.4 (880 calls), once the calls before it weigh less than a twentieth.
    ///
    /// In calls and not in time: a kind that was not called for a night is not forgotten in the morning, when it is needed, and
    /// a busy one follows a change as fast as there is evidence for it.
    pub half_life_calls: u32,
    /// The most kinds of call that are known at once; 256 by default, one at least. Each takes up to 10 kB. The one
    /// that was not used for longest makes room for a new one, and starts over when it comes back.
    pub max_keys: usize,
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self { quantile: 0.95, half_life_calls: 200, max_keys: 256 }
    }
}

/// Estimates what a call will use from what recent calls of its kind used, so that callers reserve close to the truth rather
/// than `max_tokens`. A kind is whatever the caller names: most often model and prompt kind.
///
/// It answers with a quantile of recent calls, the p95 by default, in which a call weighs less the more calls have followed. The
/// answer is never below that quantile and above it by less than 1.6 %, up to 16.7 million tokens a call.
///
/// Local to the process, and to be shared by its callers. While it knows nothing, callers reserve `max_tokens`, and many that
/// start at once book far ahead: a process that starts under load does well to let it learn from a log first. What it is worth on
/// recorded calls, and in which settings it is worth little, stands in `docs/estimates.md`.
///
/// ```
/// use sluice_sdk::{EstimatorConfig, TokenEstimator};
///
/// let estimator = TokenEstimator::new(&EstimatorConfig::default());
/// assert_eq!(estimator.estimate_or("gpt-4o/summary", 4_096), 4_096, "nothing is known yet");
/// for reply in 0..100 {
///     estimator.observe("gpt-4o/summary", 300 + reply);
/// }
/// let reserve = estimator.estimate_or("gpt-4o/summary", 4_096);
/// assert!((395..=403).contains(&reserve));
/// ```
#[derive(Debug)]
pub struct TokenEstimator {
    quantile: f64,
    half_life_calls: u32,
    max_keys: usize,
    kinds: Mutex<Kinds>,
}

#[derive(Debug, Default)]
struct Kinds {
    by_key: HashMap<Box<str>, Kind>,
    /// Counts uses, so that it is known which kind was not used for longest.
    uses: u64,
}

#[derive(Debug)]
struct Kind {
    histogram: Histogram,
    last_use: u64,
}

impl TokenEstimator {
    /// One that knows of no call yet. A setting out of its range is held to the range.
    #[must_use]
    pub fn new(config: &EstimatorConfig) -> Self {
        let quantile = if config.quantile.is_nan() { EstimatorConfig::default().quantile } else { config.quantile };
        Self {
            quantile: quantile.clamp(0.5, 0.999),
            half_life_calls: config.half_life_calls.clamp(10, 100_000),
            max_keys: config.max_keys.max(1),
            kinds: Mutex::default(),
        }
    }

    /// Learns that a call of this kind used so many tokens.
    pub fn observe(&self, key: impl AsRef<str>, used: u64) {
        let key = key.as_ref();
        let mut kinds = self.kinds();
        if !kinds.by_key.contains_key(key) {
            kinds.make_room(self.max_keys);
            let kind = Kind { histogram: Histogram::new(self.half_life_calls), last_use: 0 };
            kinds.by_key.insert(key.into(), kind);
        }
        if let Some(kind) = kinds.touch(key) {
            kind.histogram.add(used);
        }
    }

    /// What a call of this kind will most likely use at most, one token at least; `None` while too few calls are known for one of
    /// them to be beyond the quantile (fewer than 20 for the p95).
    #[must_use]
    pub fn estimate(&self, key: impl AsRef<str>) -> Option<u64> {
        let mut kinds = self.kinds();
        let quantile = kinds.touch(key.as_ref())?.histogram.quantile(self.quantile)?;
        // What costs nothing cannot be asked for.
        Some(quantile.max(1))
    }

    /// The same, never above `max_tokens`, and `max_tokens` while too little is known.
    #[must_use]
    pub fn estimate_or(&self, key: impl AsRef<str>, max_tokens: u64) -> u64 {
        self.estimate(key).map_or(max_tokens, |estimate| estimate.min(max_tokens))
    }

    /// Kinds of call that are known.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.kinds().by_key.len()
    }

    /// Nothing under the lock can panic half way.
    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock()
    }
}

impl Default for TokenEstimator {
    fn default() -> Self {
        Self::new(&EstimatorConfig::default())
    }
}

impl Kinds {
    fn touch(&mut self, key: &str) -> Option<&mut Kind> {
        let kind = self.by_key.get_mut(key)?;
        self.uses += 1;
        kind.last_use = self.uses;
        Some(kind)
    }

    /// For one more. Goes through all keys, which happens once for each new one where there are too many.
    fn make_room(&mut self, most: usize) {
        if self.by_key.len() < most {
            return;
        }
        let oldest = self.by_key.iter().min_by_key(|(_, kind)| kind.last_use).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.by_key.remove(&oldest);
        }
    }
}
