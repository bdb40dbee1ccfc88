//! Where leases get their ids.

use std::fmt;
use std::sync::Arc;

use sluice_core::LeaseId;

/// Draws ids that no other process draws: by default UUIDs (version 7) from the system's clock and random source. An id that
/// was there before would be taken for this client's own.
#[derive(Clone)]
pub(crate) struct LeaseIds(Arc<dyn Fn() -> String + Send + Sync>);

impl LeaseIds {
    pub(crate) fn from_fn(next: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    /// The next id; a UUID where what was drawn is none, since a slot without a lease would be lost with its holder.
    pub(crate) fn next(&self) -> Option<LeaseId> {
        LeaseId::new((self.0)()).or_else(|| LeaseId::new(uuid()))
    }
}

impl Default for LeaseIds {
    fn default() -> Self {
        Self::from_fn(uuid)
    }
}

fn uuid() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

impl fmt::Debug for LeaseIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseIds")
    }
}
