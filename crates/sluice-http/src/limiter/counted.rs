//! What a limited call took, and what it used.

use std::sync::Arc;

use sluice_sdk::Grant;
use sluice_sdk::core::Amount;

use crate::costs::{Costs, Taken};
use crate::limiter::{Limiter, Vendor};
use crate::reply::Replied;

/// What is needed to settle a call.
#[derive(Debug)]
pub(crate) struct CountedCall {
    pub(super) limiter: Limiter,
    pub(super) vendor: Vendor,
    pub(super) taken: Arc<[Taken]>,
}

impl CountedCall {
    /// What the grant took of each bucket of tokens.
    pub(super) fn reserved(&self, grant: &Grant) -> Vec<(Taken, Amount)> {
        let of = |taken: &Taken| Some((taken.clone(), grant.cost(taken.dimension.as_str())?));
        self.taken.iter().filter(|taken| taken.is_of_tokens()).filter_map(of).collect()
    }

    /// What a reply says that the call used, by bucket.
    pub(super) fn used(&self, model: &str, reserved: &[(Taken, Amount)], replied: &Replied) -> Vec<(String, Amount)> {
        if let Some(output) =
            replied.used.and_then(|used| used.output).filter(|_| replied.complete && replied.error.is_none())
        {
            self.limiter.settings().estimator.observe(kind(&self.vendor, model), output);
        }
        let costs = Costs::of(&self.vendor.profile, model);
        let of = |(taken, amount): &(Taken, Amount)| {
            Some((taken.dimension.to_string(), costs.used(taken.quota, replied, *amount)?))
        };
        reserved.iter().filter_map(of).collect()
    }
}

/// The kind of call in the estimates.
pub(super) fn kind(vendor: &Vendor, model: &str) -> String {
    format!("{}#{model}", vendor.name)
}
