//! Renewal: a holder that goes on keeps its lease.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_core::Timestamp;

use crate::grant::{Grant, Holding};
use crate::store::{IfAmbiguous, StoreError, Written};

/// Why a lease could not be renewed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// It ended and was given back: someone else may hold the slot by now.
    #[error("the lease {key} is gone: it ended, and its slot was given back")]
    LeaseGone {
        /// The lease.
        key: String,
    },
    /// The table did not answer; the lease still ends when it did.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Grant {
    /// Lets its leases end one lease time from now, and not earlier than they do. A grant without lease rows has nothing to
    /// renew.
    ///
    /// # Errors
    /// [`RenewError::LeaseGone`] where a lease ended and was given back: the holder should stop calling the vendor, or go on
    /// knowing that it is not counted. The grant stays usable; what else it holds is still given back by a release.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let ends = self.inner().now().after(self.lease_for()).ceil_to_second();
        let mut gone = None;
        let updates: Vec<_> = self
            .leases()
            .map(|lease| (lease.key().to_owned(), sluice_core::renew(lease.key().to_owned(), ends)))
            .collect();
        for (key, update) in updates {
            // Setting the same end twice is setting it once. A row in the reply of a failed condition ends later already.
            match self.inner().store.update(&update, IfAmbiguous::SendAgain).await? {
                Written::Applied(_) | Written::ConditionFailed(Some(_)) => {}
                Written::ConditionFailed(None) => gone = Some(key),
            }
        }
        if let Some(key) = gone {
            tracing::warn!(event = "lease.gone", lease = key);
            return Err(RenewError::LeaseGone { key });
        }
        if self.lease_ends().is_some() {
            self.renewed_until(ends.max(self.lease_ends().unwrap_or(Timestamp::from_micros(0))));
        }
        Ok(())
    }

    /// Renews the lease at half of its time, and more often while that fails. Never ends; after the lease is gone it only says
    /// so in `lost`, since a failure of the limiter must not kill healthy work.
    pub(crate) async fn keep_alive(&mut self, holding: Holding, lost: &AtomicBool) {
        while let (Holding::Renewed, Some(ends)) = (holding, self.lease_ends()) {
            let left = ends.since(self.inner().now());
            let half = self.lease_for() / 2;
            tokio::time::sleep(if left > half { left.saturating_sub(half) } else { half / 8 }).await;
            match self.renew().await {
                Ok(()) => tracing::debug!(event = "lease.renewed", dimensions = %self.names()),
                Err(RenewError::LeaseGone { .. }) => {
                    lost.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => tracing::warn!(event = "lease.renewal_failed", dimensions = %self.names(), %error),
            }
        }
        std::future::pending().await
    }
}
