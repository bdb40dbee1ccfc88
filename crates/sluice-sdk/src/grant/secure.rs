//! After an outage: what the process kept goes back, and calls that it let begin by itself, and that still run,
//! get a lease.
//!
//! If another call had their slots before, its lease is renewed. The others were free in the table at the
//! beginning of the outage. Nobody could take them in it, and nobody takes any for a while after it
//! ([`fallback::hold`](crate::lane::fallback)): so they are free, most often, and are taken as any.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Timestamp;
use tokio::time::sleep;

use crate::grant::held_leases::{AT_ONCE, FailedReleases, HeldLeases, Renewed, left, send};
use crate::lane::fallback::hold;
use crate::lane::inner::Inner;
use crate::lane::local_slots::LocalSlots;
use crate::lane::one_bucket::take_running;
use crate::lane::parallel::in_parallel;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::release::{Use, release, spawn_give_back};
use crate::lane::setback::Taken;

/// The pause after a call has got no slots. A smaller value finds free ones sooner, and asks more.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives back what the process kept, and makes sure that calls of `held` have leases: until all have, or the
/// hold is over. Then the next look for renewals tries again. What cannot be given back is kept again if
/// DynamoDB is out, or goes on by itself, or its lease ends.
pub(super) async fn secure(inner: Arc<Inner>, held: Vec<Arc<HeldLeases>>) {
    let inner = &inner;
    let spare = inner.fallback.take_spare(inner.now());
    let give_back = async {
        let names: Vec<_> = spare.iter().filter_map(left).collect();
        if let Err(error) = release(inner, spare).await {
            tracing::debug!(event = "release.failed", %error);
            if inner.background.is_closing() {
                inner.extensions.of::<FailedReleases>().add(names);
            }
        }
    };
    let secure = async {
        loop {
            let unsecured: Vec<_> = held.iter().filter(|leases| leases.has_unsecured()).collect();
            for some in unsecured.chunks(AT_ONCE) {
                let calls = some.iter().map(|leases| {
                    let (inner, leases) = (Arc::clone(inner), Arc::clone(leases));
                    async move { secure_one(&inner, &leases).await }
                });
                if in_parallel(calls.collect()).await.is_err() {
                    return;
                }
            }
            let is_left = held.iter().any(|leases| leases.has_unsecured());
            if !is_left || !hold::holds(&inner.store, inner.config.on_unavailable) {
                return;
            }
            sleep(PAUSE).await;
        }
    };
    tokio::join!(give_back, secure);
}

async fn secure_one(inner: &Arc<Inner>, leases: &HeldLeases) {
    for part in leases.unsecured() {
        let Hold::LocalSlots(slots) = &part.hold else { continue };
        let renewed = match slots.handed_on() {
            Some(leased) => renew(inner, &leased, slots, leases.length()).await,
            None => None,
        };
        let ends = match renewed {
            None if part.is_unleased() => take(inner, &part, slots).await,
            renewed => renewed,
        };
        ends.into_iter().for_each(|ends| leases.has_lease(ends));
    }
}

/// Renews the lease that another call had. Returns when it ends; `None` if it is gone, or nobody knows.
async fn renew(
    inner: &Inner,
    leased: &Part,
    slots: &LocalSlots<Part>,
    length: Duration,
) -> Option<Timestamp> {
    let dimension = &leased.entry.dimension;
    let ends = inner.patient.time().await.ok()?.after(length).ceil_to_second();
    let Renewed { gone, failure } = send(inner, std::slice::from_ref(leased), ends).await;
    if let Some(error) = failure {
        tracing::debug!(event = "unavailable.not_leased", %dimension, %error);
        return None;
    }
    if gone.is_empty() {
        slots.found_lease();
        tracing::debug!(event = "unavailable.leased", %dimension);
        return Some(ends);
    }
    // Its release was applied without an answer, or the lease ended: slots are taken again.
    inner.fallback.begin_unleased(dimension, leased.cost);
    if !slots.lost_lease() {
        inner.fallback.end_unleased(inner, dimension, leased.cost);
    }
    None
}

/// Returns when the lease ends, if the call has one.
async fn take(inner: &Arc<Inner>, part: &Part, slots: &LocalSlots<Part>) -> Option<Timestamp> {
    let (entry, dimension) = (&part.entry, &part.entry.dimension);
    match take_running(inner, entry, part.cost).await {
        Ok(Taken::Granted(unclaimed)) => {
            let leased = unclaimed.into_parts().pop()?;
            let (ends, lease) = (leased.lease_ends(), leased.lease_name());
            match slots.lease(leased, lease) {
                Ok(()) => inner.fallback.end_unleased(inner, dimension, part.cost),
                Err(leased) => {
                    // The call has ended meanwhile.
                    spawn_give_back(inner, Parts::from_buf([leased]), Use::Unused, |_| ());
                    return None;
                }
            }
            tracing::debug!(event = "unavailable.leased", %dimension);
            ends
        }
        Ok(Taken::Refused(retry)) => {
            let reason = retry.reason.as_str();
            if !hold::holds(&inner.store, inner.config.on_unavailable) && slots.is_first_refusal() {
                tracing::warn!(event = "unavailable.not_leased", %dimension, reason,
                    "a call that began while DynamoDB was out has no slot of the table: the vendor may see one call \
                     more");
            } else {
                tracing::debug!(event = "unavailable.not_leased", %dimension, reason);
            }
            None
        }
        Err(error) => {
            tracing::debug!(event = "unavailable.not_leased", %dimension, %error);
            None
        }
    }
}
