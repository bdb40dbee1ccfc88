//! The estimate, sent to the vendor as `max_tokens`.

use crate::telemetry;
use crate::vendor::estimate::TokenEstimator;

/// The `max_tokens` of a call, from the estimate of its kind: [`TokenEstimator::cap`]. For a vendor that
/// counts `max_tokens` when the call arrives: a lower one costs the quota less.
///
/// Some replies are longer than the estimate (one in twenty, for the p95), and the vendor cuts them off. Such
/// a call is made again with the ceiling, so no reply is cut off by a cap that the caller did not choose, and
/// no call is made more than twice.
///
/// ```
/// # use sluice_sdk::TokenEstimator;
/// # struct Answer { tokens: u64, was_cut: bool }
/// # fn ask(max_tokens: u64) -> Answer { Answer { tokens: 300.min(max_tokens), was_cut: max_tokens < 300 } }
/// # let estimator = TokenEstimator::default();
/// # (0..100).for_each(|_| estimator.observe("gpt-4o/summary", 250));
/// let mut cap = estimator.cap("gpt-4o/summary", 4_096);
/// let answer = loop {
///     // In a slot of its own, which reserves `cap.max_tokens()`.
///     let answer = ask(cap.max_tokens());
///     if !answer.was_cut || !cap.raise() {
///         break answer;
///     }
/// };
/// # assert_eq!((answer.tokens, cap.max_tokens()), (300, 4_096));
/// cap.observe(answer.tokens);
/// ```
#[derive(Debug)]
#[must_use = "send max_tokens() with the call"]
pub struct OutputCap<'a> {
    estimator: &'a TokenEstimator,
    key: Box<str>,
    max_tokens: u64,
    ceiling: u64,
}

impl<'a> OutputCap<'a> {
    pub(super) fn new(estimator: &'a TokenEstimator, key: &str, ceiling: u64) -> Self {
        let ceiling = ceiling.max(1);
        Self { estimator, key: key.into(), max_tokens: estimator.estimate_or(key, ceiling), ceiling }
    }

    /// What to send as `max_tokens`, and to reserve: the estimate, or the ceiling while too few calls are
    /// known.
    #[must_use]
    pub const fn max_tokens(&self) -> u64 {
        self.max_tokens
    }

    /// The reply was cut off (`finish_reason` is `length`, `stop_reason` is `max_tokens`). Returns `true` if
    /// the call should be made again, with the ceiling as `max_tokens`; `false` if that was the ceiling
    /// already. Each raise is counted in `sluice.estimates.cut`: the vendor counts such a call twice.
    pub fn raise(&mut self) -> bool {
        let is_lower = self.max_tokens < self.ceiling;
        if is_lower {
            self.max_tokens = self.ceiling;
            telemetry::estimate_cut();
        }
        is_lower
    }

    /// Records what the reply used, for later estimates: of the reply that was kept, not of one that was cut
    /// off. Otherwise the caps themselves would lower the estimate.
    pub fn observe(self, used: u64) {
        self.estimator.observe(self.key, used);
    }
}
