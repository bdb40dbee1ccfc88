//! Renewal: a holder whose call goes on keeps its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_core::{Bucket, Timestamp, Update};
use sluice_table::{Attributes, Item, Resend, StoreError, Written};

use crate::grant::{Grant, Holding};
use crate::lane::expired_holder;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part, Parts};
use crate::telemetry;

/// Why a lease could not be renewed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The lease ended and its slot was given back: someone else may hold the slot by now.
    #[error("the lease {key} is gone: it ended, and its slot was given back")]
    LeaseGone {
        /// The lease.
        key: String,
    },
    /// The table did not answer; the lease ends when it would have ended without the renewal.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The pause between two renewals is at least this long, also if they fail.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

impl Grant {
    /// Extends the grant's leases to one lease time from now, and never shortens them; no leases, no request.
    /// Takes at most a request (4.2 s) for each lease, and one more if DynamoDB's time is not known.
    ///
    /// # Errors
    /// [`RenewError::LeaseGone`] if a lease ended and was given back: stop calling the vendor, or know that
    /// the call is not counted. A release still gives back what else the grant holds.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let renewal = self.renewal().await?;
        let Renewed { mut gone, failure } = renewal.send().await;
        self.found_gone(&gone);
        if let Some(error) = failure {
            return Err(error.into());
        }
        self.was_renewed(&renewal);
        match gone.pop() {
            Some(key) => {
                tracing::warn!(event = "lease.gone", lease = key);
                Err(RenewError::LeaseGone { key })
            }
            None => Ok(()),
        }
    }

    async fn renewal(&self) -> Result<Renewal, StoreError> {
        Ok(self.renewal_at(self.inner().time().await?))
    }

    /// The writes that renew the leases from `now` on. A tracker sends them without holding a grant.
    pub(crate) fn renewal_at(&self, now: Timestamp) -> Renewal {
        let ends = now.after(self.lease_for()).ceil_to_second();
        Renewal { inner: Arc::clone(self.inner()), parts: self.parts().into(), ends }
    }

    pub(crate) fn was_renewed(&mut self, renewal: &Renewal) {
        if let Some(before) = self.lease_ends() {
            self.renewed_until(renewal.ends.max(before));
        }
    }

    /// Records leases that a renewal found gone, each once, whatever happens to it afterwards.
    pub(crate) fn found_gone(&mut self, gone: &[String]) {
        let (ends, inner) = (Timestamp::default(), Arc::clone(self.inner()));
        for part in self.parts_mut().iter_mut().filter(|part| !part.known_gone) {
            if renewal(part, ends).is_some_and(|(key, _)| gone.contains(&key)) {
                part.known_gone = true;
                expired_holder::found(&inner, &part.entry);
            }
        }
    }

    /// Renews the lease at half of its time (at once if that has passed), and more often while renewals fail.
    /// Never returns. Once the lease is gone, it only sets `lost`: trouble of the limiter must not kill
    /// healthy work.
    pub(crate) async fn keep_alive(&mut self, holding: Holding, lost: &AtomicBool) {
        let mut has_failed = false;
        while let (Holding::Renewed, Some(ends)) = (holding, self.lease_ends()) {
            // If the time is not known, the lease may end at any moment.
            let left = self.inner().store.clock().known().map_or(Duration::ZERO, |now| ends.since(now));
            let half = self.lease_for() / 2;
            let again = if has_failed { half / 8 } else { Duration::ZERO };
            let pause = if left > half { left.saturating_sub(half) } else { again };
            tokio::time::sleep(pause.max(SHORTEST_PAUSE)).await;
            let renewed = self.renew().await;
            has_failed = renewed.is_err();
            match renewed {
                Ok(()) => tracing::debug!(event = "lease.renewed", dimensions = %self.names()),
                // Other leases of the grant, if it has any, live on.
                Err(RenewError::LeaseGone { .. }) => lost.store(true, Ordering::Relaxed),
                Err(error) => tracing::warn!(event = "lease.renewal_failed", dimensions = %self.names(), %error),
            }
        }
        std::future::pending().await
    }
}

/// A renewal of what a grant held when the renewal was created.
pub(crate) struct Renewal {
    inner: Arc<Inner>,
    parts: Parts,
    ends: Timestamp,
}

/// The result of a renewal: the names of the leases that were gone, and why others could not be renewed.
pub(crate) struct Renewed {
    pub(crate) gone: Vec<String>,
    pub(crate) failure: Option<StoreError>,
}

impl Renewal {
    /// Leaves out the leases with these names.
    pub(crate) fn without(mut self, gone: &[String]) -> Self {
        let ends = self.ends;
        self.parts.retain(|part| renewal(part, ends).is_some_and(|(key, _)| !gone.contains(&key)));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Sends the renewals. A lease that fails or is gone does not keep the others from being renewed.
    pub(crate) async fn send(&self) -> Renewed {
        let mut renewed = Renewed { gone: Vec::new(), failure: None };
        let renewals = self.parts.iter().filter_map(|part| renewal(part, self.ends).map(|renewal| (part, renewal)));
        for (part, (key, update)) in renewals {
            // Setting the same end twice equals setting it once. A failed condition may show a later end.
            let outcome = match self.inner.patient.update(&update, Resend::Always).await {
                Ok(Written::Applied(_)) => telemetry::RenewalOutcome::Renewed,
                Ok(Written::ConditionFailed(Some(row))) if still_holds(&self.parts, &key, &row) => {
                    telemetry::RenewalOutcome::Renewed
                }
                Ok(Written::ConditionFailed(_)) => {
                    renewed.gone.push(key);
                    telemetry::RenewalOutcome::Gone
                }
                Err(error) => {
                    renewed.failure = Some(error);
                    telemetry::RenewalOutcome::Failed
                }
            };
            telemetry::renewal(part.entry.label(), outcome);
        }
        renewed
    }
}

/// The write that renews the lease of `part`, and the lease's name.
fn renewal(part: &Part, ends: Timestamp) -> Option<(String, Update)> {
    let dimension = &part.entry.dimension;
    match &part.hold {
        Hold::Inline(inline) => {
            let update = sluice_core::renew_inline(dimension.to_string(), &inline.id, ends);
            Some((format!("{dimension}/{}", inline.id.as_str()), update))
        }
        _ => part.lease().map(|lease| (lease.key().to_owned(), sluice_core::renew(lease.key().to_owned(), ends))),
    }
}

/// Whether the row whose condition failed still has the lease: a bucket's row outlives its leases.
fn still_holds(parts: &[Part], key: &str, row: &Item) -> bool {
    let named =
        |part: &&Part| key.strip_prefix(part.entry.dimension.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let Some(part) = parts.iter().find(named) else { return true };
    let Hold::Inline(inline) = &part.hold else { return true };
    let bucket = Bucket::read(&part.entry.dimension, &Attributes(row)).ok();
    bucket.as_ref().and_then(Bucket::inline).is_some_and(|leases| leases.contains(&inline.id))
}
