//! The background task renews the leases of the grants that are held.

use std::sync::Weak;
use std::time::Duration;

use sluice_core::Timestamp;
use tokio::sync::watch;

use crate::call::tracker::Shared;
use crate::call::tracker::index::ReservationId;
use crate::grant::Grant;
use crate::grant::renew::{Renewal, Renewed};
use crate::lane::parallel::in_parallel;

/// How many times in one lease time the task looks for leases to renew. A renewal may be late by one such
/// interval. A larger number costs more passes over all held grants.
const LOOKS: u32 = 16;
/// How many renewals are sent side by side.
const AT_ONCE: usize = 64;

/// A held grant, and its leases that were found gone.
pub(super) struct KeptGrant {
    pub(super) grant: Grant,
    gone: Vec<String>,
}

pub(super) struct PendingRenewal {
    id: ReservationId,
    renewal: Renewal,
}

impl KeptGrant {
    pub(super) const fn new(grant: Grant) -> Self {
        Self { grant, gone: Vec::new() }
    }

    /// The renewal of the grant's leases, once half of their time has passed.
    fn due(&self, now: Timestamp) -> Option<Renewal> {
        let left = self.grant.lease_ends()?.since(now);
        (left <= self.grant.lease_for() / 2).then(|| self.grant.renewal_at(now).without(&self.gone))
    }
}

impl PendingRenewal {
    pub(super) const fn id(&self) -> ReservationId {
        self.id
    }

    pub(super) fn of(id: ReservationId, kept: &KeptGrant, now: Timestamp) -> Option<Self> {
        kept.due(now).filter(|renewal| !renewal.is_empty()).map(|renewal| Self { id, renewal })
    }
}

/// Renews until the tracker is stopped or dropped. Between two looks, and while it sends, it holds neither
/// the lock nor the tracker.
pub(super) async fn run(shared: Weak<Shared>, lease_ttl: Duration, mut stopped: watch::Receiver<()>) {
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            () = tokio::time::sleep(lease_ttl / LOOKS) => {}
        }
        let store = match shared.upgrade() {
            None => break,
            Some(shared) if shared.index().len() == 0 => continue,
            Some(shared) => shared.store.clone(),
        };
        // A table that does not return the time would not accept a renewal either: the next look is soon.
        let Ok(now) = store.time().await else { continue };
        let Some(mut due) = shared.upgrade().map(|shared| shared.due(now)) else { break };
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(AT_ONCE));
            let Ok(sent) = in_parallel(due.into_iter().map(send).collect()).await else { return };
            let Some(shared) = shared.upgrade() else { return };
            sent.into_iter().for_each(|(due, renewed)| take_note(&shared, &due, renewed));
            due = rest;
        }
    }
}

async fn send(due: PendingRenewal) -> (PendingRenewal, Renewed) {
    let renewed = due.renewal.send().await;
    (due, renewed)
}

/// Records the result of a renewal, unless the grant was taken in the meantime. Such a grant may have been
/// released before its renewal arrived, and its lease is then gone for that reason.
fn take_note(shared: &Shared, due: &PendingRenewal, Renewed { gone, failure }: Renewed) {
    let mut index = shared.index();
    let Some(kept) = index.payload_mut(due.id) else { return };
    if failure.is_none() {
        kept.grant.was_renewed(&due.renewal);
    }
    kept.grant.found_gone(&gone);
    kept.gone.extend_from_slice(&gone);
    let dimensions = kept.grant.names();
    drop(index);
    // Once for each lease: a gone lease is not renewed again.
    gone.iter().for_each(|lease| tracing::warn!(event = "lease.gone", lease));
    match failure {
        None => tracing::debug!(event = "lease.renewed", dimensions),
        Some(error) => tracing::warn!(event = "lease.renewal_failed", dimensions, %error),
    }
}
