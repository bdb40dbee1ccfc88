//! Renewal: a holder whose call goes on keeps its leases. One task for each runtime renews them. After an
//! outage, it also gives back the slots that the process kept, and takes those that calls began without.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::grant::held_leases::{AT_ONCE, HeldLeases, RenewError};
use crate::grant::{Grant, secure};
use crate::lane::inner::Inner;
use crate::lane::once_an_outage::OnceAnOutage;
use crate::lane::parallel::in_parallel;
use crate::lane::shadow;
use crate::lane::task::boxed;

/// How many times in one lease time the task looks for leases to renew. A renewal may be late by one such
/// interval. A larger number costs more passes over all leases that are held.
const LOOKS: u32 = 16;

/// The shortest time between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks after single requests have failed, while calls that began then have no lease.
const AFTER_FAILURES: Duration = Duration::from_secs(1);

impl Grant {
    /// Extends the grant's leases to one lease time from now, and never shortens them; no leases, no request.
    /// The client does so by itself, unless
    /// [`ClientBuilder::renew_leases`](crate::ClientBuilder::renew_leases) is off. Takes at most a request
    /// (4.2 s) for each lease, and one more if DynamoDB's time is not known.
    ///
    /// # Errors
    /// [`RenewError::LeaseGone`] if a lease ended and was given back: stop calling the vendor, or know that
    /// the call is not counted. A release still gives back what else the grant holds.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let mut renewed = Ok(());
        for leases in self.leases() {
            renewed = renewed.and(leases.renew().await);
        }
        shadow::or_in_shadow(self.inner(), renewed, || ())
    }
}

/// The leases that the client's grants hold, and whether its task renews them.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    kept: Mutex<Kept>,
    /// A renewal that failed was logged.
    logged: OnceAnOutage,
    /// Wakes the task: a call has begun without a lease while DynamoDB came back.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    held: Vec<Weak<HeldLeases>>,
    /// The runtimes whose tasks renew. Each renews what was granted there: a task ends with its runtime.
    running: Vec<Id>,
}

/// The task of a runtime. If it ends in any other way than by itself, as with its runtime, the next grant
/// there starts another.
struct RenewalTask {
    keeper: Arc<Keeper>,
    runtime: Id,
    has_ended: bool,
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if !self.has_ended {
            self.keeper.kept.lock().running.retain(|id| *id != self.runtime);
        }
    }
}

impl Keeper {
    /// Renews these leases from now on, by the task of the runtime that they were granted on.
    pub(crate) fn add(self: Arc<Self>, inner: &Arc<Inner>, leases: &Arc<HeldLeases>) {
        if leases.has_unsecured() && !inner.store.is_out() {
            self.wake.notify_one();
        }
        let mut kept = self.kept.lock();
        if kept.held.len() == kept.held.capacity() {
            kept.held.retain(|held| held.strong_count() > 0);
        }
        kept.held.push(Arc::downgrade(leases));
        let Some(runtime) = inner.background.runtime() else { return };
        let id = runtime.id();
        if !kept.running.contains(&id) {
            kept.running.push(id);
            drop(kept);
            let every = (inner.config.lease_ttl / LOOKS).max(SHORTEST_PAUSE);
            let task = RenewalTask { keeper: self, runtime: id, has_ended: false };
            runtime.spawn(boxed(renew_all(Arc::downgrade(inner), task, every)));
        }
    }

    /// The leases that are held, the oldest first.
    pub(crate) fn held(&self) -> Vec<Arc<HeldLeases>> {
        self.kept.lock().held.iter().filter_map(Weak::upgrade).collect()
    }

    /// Logs a renewal that failed; in an outage, the first one as a warning.
    fn failed(&self, inner: &Inner, leases: &HeldLeases, error: &RenewError) {
        let dimensions = leases.dimensions();
        if self.logged.is_first(&inner.store) {
            tracing::warn!(
                event = "lease.renewal_failed", %dimensions, %error,
                "a lease was not renewed, and is tried again: if it ends first, its slot may go to another call"
            );
        } else {
            tracing::debug!(
                event = "lease.renewal_failed", %dimensions, %error,
                "a lease was not renewed, as others in this outage, and is tried again"
            );
        }
    }

    /// What the task of `runtime` renews. If there is nothing, notes that the task ends.
    fn held_or_end(&self, runtime: Id, is_left: impl FnOnce() -> bool) -> Option<Vec<Arc<HeldLeases>>> {
        let mut kept = self.kept.lock();
        kept.held.retain(|held| held.strong_count() > 0);
        let is_here = |leases: &Arc<HeldLeases>| leases.runtime() == Some(runtime);
        let here: Vec<_> = kept.held.iter().filter_map(Weak::upgrade).filter(is_here).collect();
        // In this order: slots are kept before their grant is dropped.
        if here.is_empty() && !is_left() {
            kept.running.retain(|id| *id != runtime);
            return None;
        }
        Some(here)
    }
}

/// Renews the leases of the client's grants of one runtime, until none is held, and nothing of an outage is
/// left.
async fn renew_all(client: Weak<Inner>, mut task: RenewalTask, every: Duration) {
    let mut returns = None;
    let (mut renewing, mut securing, mut pause) =
        (None::<JoinHandle<()>>, None::<(u32, JoinHandle<()>)>, every);
    loop {
        if look(&client, &task.keeper.wake, pause, &mut returns).await.is_none() {
            return;
        }
        let Some(inner) = client.upgrade() else { return };
        let is_securing = securing.as_ref().is_some_and(|(_, task)| !task.is_finished());
        let Some(held) = task.keeper.held_or_end(task.runtime, || is_securing || inner.fallback.has_spare())
        else {
            task.has_ended = true;
            return;
        };
        // Side by side: neither waits for the other.
        let (now, steady) = (inner.store.clock().known(), inner.store.clock().steady_micros());
        let due: Vec<_> = held.iter().filter(|leases| leases.is_due(now, steady)).cloned().collect();
        if !due.is_empty() && renewing.as_ref().is_none_or(JoinHandle::is_finished) {
            renewing =
                Some(tokio::spawn(boxed(renew_due(Arc::clone(&inner), Arc::clone(&task.keeper), due))));
        }
        let is_left = inner.fallback.has_spare() || held.iter().any(|leases| leases.has_unsecured());
        pause = every;
        if is_left && !inner.store.is_out() {
            // Nobody says when DynamoDB answers again of which single requests failed.
            pause = every.min(AFTER_FAILURES);
            let returned = inner.store.returns();
            // One that began before the last return knows nothing of calls that began since.
            if !is_securing || securing.as_ref().is_some_and(|(since, _)| *since != returned) {
                let secure = boxed(secure::secure(Arc::clone(&inner), held));
                securing = Some((returned, inner.background.spawn(&Handle::current(), secure)));
            }
        }
    }
}

/// Renews leases, some of them side by side.
async fn renew_due(inner: Arc<Inner>, keeper: Arc<Keeper>, mut due: Vec<Arc<HeldLeases>>) {
    // A table that does not say the time would not accept a renewal either: the next look is soon.
    if inner.patient.time().await.is_err() {
        return;
    }
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(AT_ONCE));
        let renewals = due.into_iter().map(|leases| {
            let (inner, keeper) = (Arc::clone(&inner), Arc::clone(&keeper));
            async move {
                match leases.renew().await {
                    Ok(()) => tracing::debug!(event = "lease.renewed", dimensions = %leases.dimensions()),
                    // Logged when it was found; the other leases of the grant live on.
                    Err(RenewError::LeaseGone { .. }) => {}
                    Err(error) => keeper.failed(&inner, &leases, &error),
                }
            }
        });
        if in_parallel(renewals.collect()).await.is_err() {
            return;
        }
        due = rest;
    }
}

/// Waits for the next look: when it is due, when a call has begun without a lease, or when DynamoDB comes
/// back. Then another process may take over leases that have ended meanwhile, unless they are renewed first.
/// `returns` is how often it had come back by the last look. `None` if the client is gone.
async fn look(client: &Weak<Inner>, wake: &Notify, pause: Duration, returns: &mut Option<u32>) -> Option<()> {
    // Without the client, which may be dropped meanwhile.
    let store = client.upgrade()?.store.clone();
    tokio::select! {
        () = sleep(pause) => {}
        () = wake.notified() => {}
        () = store.returned(returns.unwrap_or_else(|| store.returns())) => {}
    }
    *returns = Some(store.returns());
    Some(())
}
