//! Renewal: a holder that goes on keeps its lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Between two renewals, where they fail.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

impl Grant {
    /// Lets its leases end one lease time from now, and not earlier than they do. A grant without lease rows has nothing to
    /// renew.
    ///
    /// # Errors
    /// [`RenewError::LeaseGone`] where a lease ended and was given back: the holder should stop calling the vendor, or go on
    /// knowing that it is not counted. The grant stays usable; what else it holds is still given back by a release.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let ends = self.inner().now().after(self.lease_for()).ceil_to_second();
        let (mut gone, mut failure) = (None, None);
        let keys: Vec<String> = self.leases().map(|lease| lease.key().to_owned()).collect();
        // One that fails or is gone does not keep the others from being renewed.
        for key in keys {
            // Setting the same end twice is setting it once. A row in the reply of a failed condition ends later already.
            let update = sluice_core::renew(key.clone(), ends);
            match self.inner().store.update(&update, IfAmbiguous::SendAgain).await {
                Ok(Written::Applied(_) | Written::ConditionFailed(Some(_))) => {}
                Ok(Written::ConditionFailed(None)) => gone = Some(key),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        if let Some(before) = self.lease_ends() {
            self.renewed_until(ends.max(before));
        }
        match gone {
            Some(key) => {
                tracing::warn!(event = "lease.gone", lease = key);
                Err(RenewError::LeaseGone { key })
            }
            None => Ok(()),
        }
    }

    /// Renews the lease at half of its time, and more often while that fails. Never ends; after the lease is gone it only says
    /// so in `lost`, since a failure of the limiter must not kill healthy work.
    pub(crate) async fn keep_alive(&mut self, holding: Holding, lost: &AtomicBool) {
        while let (Holding::Renewed, Some(ends)) = (holding, self.lease_ends()) {
            let left = ends.since(self.inner().now());
            let half = self.lease_for() / 2;
            let pause = if left > half { left.saturating_sub(half) } else { half / 8 };
            tokio::time::sleep(pause.max(SHORTEST_PAUSE)).await;
            match self.renew().await {
                Ok(()) => tracing::debug!(event = "lease.renewed", dimensions = %self.names()),
                // The others, if it has any, live on.
                Err(RenewError::LeaseGone { .. }) => lost.store(true, Ordering::Relaxed),
                Err(error) => tracing::warn!(event = "lease.renewal_failed", dimensions = %self.names(), %error),
            }
        }
        std::future::pending().await
    }
}
