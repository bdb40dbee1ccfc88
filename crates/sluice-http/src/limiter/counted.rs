//! What a limited call took, and what it used.

use sluice_sdk::core::Amount;

use crate::costs::{Costs, Taken};
use crate::limiter::{Limiter, Vendor};
use crate::reply::Replied;

/// What is needed to settle a call.
#[derive(Debug)]
pub(crate) struct CountedCall {
    pub(super) limiter: Limiter,
    pub(super) vendor: Vendor,
    pub(super) model: String,
    /// What the call asked for of each bucket of tokens. It took no more than the bucket holds.
    pub(super) reserved: Vec<(Taken, Amount)>,
}

impl CountedCall {
    /// What the call used by bucket, as far as the reply says and the vendor's way of counting tells. Tokens
    /// of other buckets stay as they were taken, or go back if the vendor did nothing.
    pub(super) fn used(&self, replied: &Replied) -> Vec<(String, Amount)> {
        let is_whole = replied.complete && replied.error.is_none() && !replied.cut;
        if let Some(output) = replied.used.and_then(|used| used.output).filter(|_| is_whole) {
            self.limiter.settings().estimator.observe(kind(&self.vendor, &self.model), output);
        }
        let costs = Costs::of(&self.vendor.profile, &self.model);
        let of = |(bucket, reserve): &(Taken, Amount)| {
            let took = (*reserve).min(bucket.capacity);
            let stated = costs.used(bucket.quota, replied, took);
            let used = match stated {
                // What the bucket was too small to give was counted all the same.
                stated if costs.is_on_arrival() && *reserve > took => {
                    Some(stated.map_or(*reserve, |used| used.max(*reserve)))
                }
                None if replied.error.is_some() && replied.began => Some(took),
                stated => stated,
            };
            Some((bucket.dimension.to_string(), used?))
        };
        self.reserved.iter().filter_map(of).collect()
    }
}

/// The kind of call in the estimates.
pub(super) fn kind(vendor: &Vendor, model: &str) -> String {
    format!("{}#{model}", vendor.name)
}
