//! After an outage: calls that the process let begin by itself, and that still run, get a lease.
//!
//! If another call had their slots before, its lease is renewed. The others were free in the table at the
//! beginning of the outage. Nobody could take them in it, and nobody takes any for a while after it
//! ([`fallback::hold`](crate::lane::fallback)): so they are free, most often, and are taken as any.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Timestamp;
use tokio::time::sleep;

use crate::grant::held_leases::{HeldLeases, Renewed, send};
use crate::lane::fallback::hold;
use crate::lane::inner::Inner;
use crate::lane::one_bucket::take_running;
use crate::lane::part::{Hold, LocalSlots, Part, Parts};
use crate::lane::reading::known_since;
use crate::lane::release::{Use, spawn_give_back};
use crate::lane::setback::Taken;

/// The pause after a look at a row in which too few slots were free. A smaller value reads more.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes sure that calls have leases. A call that gets none is tried again with the next look for renewals.
pub(super) async fn secure(inner: &Arc<Inner>, leases: &HeldLeases) {
    for part in leases.unsecured() {
        let Hold::LocalSlots(slots) = &part.hold else { continue };
        let renewed = match slots.handed_on() {
            Some(leased) => renew(inner, &leased, slots, leases.length()).await,
            None => None,
        };
        let ends = match renewed {
            None if part.is_alone() => take(inner, &part, slots).await,
            renewed => renewed,
        };
        ends.into_iter().for_each(|ends| leases.has_lease(ends));
    }
}

/// Renews the lease that another call had. Returns when it ends; `None` if it is gone, or nobody knows.
async fn renew(inner: &Inner, leased: &Part, slots: &LocalSlots, length: Duration) -> Option<Timestamp> {
    let ends = inner.patient.time().await.ok()?.after(length).ceil_to_second();
    let Renewed { gone, failure } = send(inner, std::slice::from_ref(leased), ends).await;
    if failure.is_some() {
        return None;
    }
    let is_running = slots.found(gone.is_empty());
    if is_running && !gone.is_empty() {
        // Its release was applied without an answer, or the lease ended: slots are taken again.
        inner.fallback.is_alone(&leased.entry.dimension, leased.cost);
    }
    gone.is_empty().then_some(ends)
}

/// Returns when the lease ends, if the call has one.
async fn take(inner: &Arc<Inner>, part: &Part, slots: &LocalSlots) -> Option<Timestamp> {
    let (entry, dimension) = (&part.entry, &part.entry.dimension);
    // A take from a row with too few free slots takes over leases that have ended. Until all processes have
    // renewed theirs, their calls may run.
    loop {
        let free = known_since(inner, entry, PAUSE).await.ok()?.bucket.tokens();
        let is_held = hold::refusal(&inner.store, inner.config.on_unavailable, dimension).is_some();
        match () {
            () if !part.is_alone() => return None,
            () if free >= part.cost.amount() || !is_held => break,
            () => sleep(PAUSE).await,
        }
    }
    match take_running(inner, entry, part.cost).await {
        Ok(Taken::Granted(unclaimed)) => {
            let leased = unclaimed.into_parts().pop()?;
            let ends = leased.lease_ends();
            match slots.lease(leased) {
                Ok(()) => inner.fallback.is_back(dimension, part.cost),
                // The call has ended meanwhile.
                Err(leased) => spawn_give_back(inner, Parts::from_buf([leased]), Use::Unused, |_| ()),
            }
            tracing::debug!(event = "unavailable.leased", %dimension);
            ends
        }
        Ok(Taken::Refused(retry)) => {
            tracing::warn!(event = "unavailable.not_leased", %dimension, reason = retry.reason.as_str(),
                "a call that began while DynamoDB was out has no slot of the table yet: the vendor may see one call \
                 more");
            None
        }
        Err(error) => {
            tracing::debug!(event = "unavailable.not_leased", %dimension, %error);
            None
        }
    }
}
