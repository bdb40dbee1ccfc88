//! What is logged as a warning once an outage of DynamoDB, however often it occurs.

use std::sync::atomic::{AtomicU32, Ordering};

use sluice_table::Store;

/// The outage of the last warning: the number of returns before it, plus one. Zero: none.
#[derive(Debug, Default)]
pub(crate) struct OnceAnOutage(AtomicU32);

impl OnceAnOutage {
    /// Whether it was not logged in this outage before. While DynamoDB is not out, always.
    pub(crate) fn is_first(&self, store: &Store) -> bool {
        let outage = store.returns().wrapping_add(1);
        !store.is_out() || self.0.swap(outage, Ordering::Relaxed) != outage
    }
}
