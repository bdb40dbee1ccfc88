//! Estimates what a call will most likely use, from what calls of its kind used.

use std::collections::HashMap;

mod histogram;
pub(crate) mod output_cap;
#[cfg(test)]
mod tests;

use crate::vendor::estimate::histogram::Histogram;
use crate::vendor::estimate::output_cap::OutputCap;
use parking_lot::{Mutex, MutexGuard};

/// Settings of a [`TokenEstimator`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EstimatorConfig {
    /// The share of calls that an estimate covers; 0.95 by default, 0.5 to 0.999. Larger reserves more than
    /// is used; with a smaller one, settling takes more from the calls that follow.
    pub quantile: f64,
    /// The later calls of its kind after which a call weighs half; 200 by default, 10 to 100,000. Larger is
    /// steadier, smaller follows a change sooner. For the p95, a rise shows within 0.08 half-lives (15 calls
    /// by default), a fall within 4.4 (880 calls), once the calls before weigh less than a twentieth. The
    /// unit is calls, not time: a kind without calls for a night is not forgotten, and a busy kind changes as
    /// fast as there is evidence.
    pub half_life_calls: u32,
    /// The most kinds of call that are known at once; 256 by default, at least 1. Each takes up to 10 kB. A
    /// new kind replaces the least recently used one, which starts over when it comes back.
    pub max_keys: usize,
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self { quantile: 0.95, half_life_calls: 200, max_keys: 256 }
    }
}

/// Estimates what a call will use from recent calls of its kind, so that callers reserve close to the real
/// use rather than `max_tokens`. A kind is whatever the caller names: most often model and prompt kind.
///
/// The estimate is a quantile, the p95 by default. A call weighs less the more calls have followed it. The
/// estimate is never below that quantile, and above it by less than 1.6 %, up to 16.7 million tokens a call.
///
/// An estimator is local to the process; its callers should share it. While it knows nothing, callers reserve
/// `max_tokens`, and many that start at once book far ahead: a process that starts under load should teach it
/// from a log first. `docs/tokens.md` states what the estimator is worth on recorded calls, and with which
/// settings it is worth little.
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
    kinds: Mutex<CallKinds>,
}

#[derive(Debug, Default)]
struct CallKinds {
    by_key: HashMap<Box<str>, CallKind>,
    /// Counts uses, to find the least recently used kind.
    uses: u64,
}

#[derive(Debug)]
struct CallKind {
    histogram: Histogram,
    last_use: u64,
}

impl TokenEstimator {
    /// Creates an estimator that knows no call yet. A setting out of its range is clamped to the range.
    #[must_use]
    pub fn new(config: &EstimatorConfig) -> Self {
        let quantile =
            if config.quantile.is_nan() { EstimatorConfig::default().quantile } else { config.quantile };
        Self {
            quantile: quantile.clamp(0.5, 0.999),
            half_life_calls: config.half_life_calls.clamp(10, 100_000),
            max_keys: config.max_keys.max(1),
            kinds: Mutex::default(),
        }
    }

    /// Records that a call of this kind used `used` tokens.
    pub fn observe(&self, key: impl AsRef<str>, used: u64) {
        let key = key.as_ref();
        let mut kinds = self.kinds();
        if !kinds.by_key.contains_key(key) {
            kinds.make_room(self.max_keys);
            let kind = CallKind { histogram: Histogram::new(self.half_life_calls), last_use: 0 };
            kinds.by_key.insert(key.into(), kind);
        }
        if let Some(kind) = kinds.touch(key) {
            kind.histogram.add(used);
        }
    }

    /// The most that a call of this kind will probably use, at least one token; `None` while too few calls
    /// are known for one of them to be beyond the quantile (fewer than 20 for the p95).
    #[must_use]
    pub fn estimate(&self, key: impl AsRef<str>) -> Option<u64> {
        let mut kinds = self.kinds();
        let quantile = kinds.touch(key.as_ref())?.histogram.quantile(self.quantile)?;
        // A cost of zero cannot be asked for.
        Some(quantile.max(1))
    }

    /// The same as `estimate`, but never above `max_tokens`, and `max_tokens` while too little is known.
    #[must_use]
    pub fn estimate_or(&self, key: impl AsRef<str>, max_tokens: u64) -> u64 {
        self.estimate(key).map_or(max_tokens, |estimate| estimate.min(max_tokens))
    }

    /// The `max_tokens` to send with a call of this kind: the estimate, at most `ceiling`, which is what the
    /// program would send otherwise (1 at least). [`OutputCap`] says what to do with a reply that is cut off.
    pub fn cap(&self, key: impl AsRef<str>, ceiling: u64) -> OutputCap<'_> {
        OutputCap::new(self, key.as_ref(), ceiling)
    }

    /// Number of kinds of call that are known.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.kinds().by_key.len()
    }

    /// No code under the lock can panic half way.
    fn kinds(&self) -> MutexGuard<'_, CallKinds> {
        self.kinds.lock()
    }
}

impl Default for TokenEstimator {
    fn default() -> Self {
        Self::new(&EstimatorConfig::default())
    }
}

impl CallKinds {
    fn touch(&mut self, key: &str) -> Option<&mut CallKind> {
        let kind = self.by_key.get_mut(key)?;
        self.uses += 1;
        kind.last_use = self.uses;
        Some(kind)
    }

    /// Makes room for one more kind. Goes through all keys: once for each new kind while there are too many.
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
