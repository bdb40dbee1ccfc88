//! The estimator of tokens. It holds nothing of a process.

use pyo3::prelude::*;
use sluice_sdk::{EstimatorConfig, TokenEstimator};

/// Estimates what a call will most likely use, from what calls of its kind used.
#[pyclass(frozen, name = "TokenEstimator", module = "sluice._native")]
pub(crate) struct NativeEstimator(TokenEstimator);

#[pymethods]
impl NativeEstimator {
    #[new]
    fn new(quantile: f64, half_life_calls: u32, max_keys: usize) -> Self {
        let mut config = EstimatorConfig::default();
        config.quantile = quantile;
        config.half_life_calls = half_life_calls;
        config.max_keys = max_keys;
        Self(TokenEstimator::new(&config))
    }

    fn observe(&self, key: &str, used: u64) {
        self.0.observe(key, used);
    }

    fn estimate(&self, key: &str) -> Option<u64> {
        self.0.estimate(key)
    }

    fn estimate_or(&self, key: &str, max_tokens: u64) -> u64 {
        self.0.estimate_or(key, max_tokens)
    }

    #[getter]
    fn key_count(&self) -> usize {
        self.0.key_count()
    }
}
