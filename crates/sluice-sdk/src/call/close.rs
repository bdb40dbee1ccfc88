//! The end of a client: what it holds goes back before the process ends.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Dimension;
use sluice_table::LONGEST_SETTING;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::grant::RELEASE_WAIT;
use crate::grant::held_leases::{FailedReleases, HeldLeases, left};
use crate::grant::renew::Keeper;
use crate::lane::inner::Inner;
use crate::lane::parallel::in_parallel;
use crate::lane::part::Parts;
use crate::lane::release::{Use, spawn_give_back};
use crate::lane::{noted_use, prefetch};
use crate::telemetry::emf;

/// How a client ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Whether calls still ran, or grants were still held, when the time for them was over. The calls were
    /// cut off, and the leases of the grants were given back.
    pub cut_off: bool,
    /// What could not be given back in time. It comes back when its leases end.
    pub left: Vec<Left>,
}

/// A lease that was still held when a client ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// The bucket.
    pub dimension: Dimension,
    /// The lease: its key, or its id in the bucket's row.
    pub lease: String,
}

impl Closed {
    /// Whether nothing is left on the table.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.left.is_empty()
    }
}

impl Client {
    /// Ends the client and all of its clones, in at most `within`: for a process that is told to stop.
    /// Without it, slots that are held when the runtime ends stay taken until their leases have ended and a
    /// sweep gives them back.
    ///
    /// 1. Nothing is granted any more ([`AcquireError::Closed`](crate::AcquireError::Closed)), also not to
    ///    callers that wait.
    /// 2. Tokens in stock go back. Running calls and grants have time to end, until 3 s before the end of
    ///    `within`, or half of it if that is less: their releases and settlements are waited for.
    /// 3. Calls of slots that still run are cut off ([`LimitError::Closed`](crate::LimitError::Closed)), and
    ///    the leases of grants that are still held are given back.
    ///
    /// The grant of a stream goes back too; its reply is not cut off.
    ///
    /// # Panics
    /// Outside of Tokio's runtime.
    ///
    /// ```no_run
    /// # async fn stop(sluice: sluice_sdk::Client) {
    /// let closed = sluice.close(std::time::Duration::from_secs(10)).await;
    /// if !closed.is_clean() {
    ///     eprintln!("not given back: {:?}", closed.left);
    /// }
    /// # }
    /// ```
    pub async fn close(&self, within: Duration) -> Closed {
        let within = within.min(LONGEST_SETTING);
        let ends = Instant::now() + within;
        let (inner, background) = (&self.inner, &self.inner.background);
        background.close();
        // Callers that wait in queues have left: their queues look again, and end.
        inner.cache.entries().iter().for_each(|entry| entry.slots_reclaimed());
        let patience = ends - RELEASE_WAIT.min(within / 2);
        give_back_spare(inner);
        let ended = async {
            flush(inner).await;
            background.idle().await;
        };
        let cut_off = timeout_at(patience, ended).await.is_err();
        if cut_off {
            background.cut_off();
            let _ = timeout_at(ends, give_back(inner)).await;
            let _ = timeout_at(ends, noted_use::write_all(inner)).await;
        } else {
            // What is not noted in time is lost, and nothing is cut off by it.
            let _ = timeout_at(patience, noted_use::write_all(inner)).await;
        }
        emf::flush();
        let held = held(inner);
        let failed = inner.extensions.of::<FailedReleases>().all();
        let left = held.iter().flat_map(|leases| leases.left()).chain(failed);
        let left = left.map(|(dimension, lease)| Left { dimension, lease }).collect();
        let closed = Closed { cut_off, left };
        match closed.is_clean() {
            true => tracing::info!(event = "client.closed", cut_off),
            false => tracing::warn!(
                event = "client.closed",
                cut_off,
                left = closed.left.len(),
                "slots come back when their leases end"
            ),
        }
        closed
    }
}

fn held(inner: &Inner) -> Vec<Arc<HeldLeases>> {
    inner.extensions.of::<Keeper>().held()
}

/// Gives back slots that were kept for further calls, each on a task. Until it is back, it counts as failed.
fn give_back_spare(inner: &Arc<Inner>) {
    for part in inner.fallback.take_spare(inner.now()) {
        let Some((dimension, lease)) = left(&part) else { continue };
        let failed = inner.extensions.of::<FailedReleases>();
        failed.add([(dimension, lease.clone())]);
        spawn_give_back(inner, Parts::from_buf([part]), Use::Used, move |is_back| {
            if is_back {
                failed.is_back(&lease);
            }
        });
    }
}

/// Gives back all tokens in stock.
async fn flush(inner: &Arc<Inner>) {
    let entries = inner.cache.entries();
    let stocked = entries.into_iter().filter(|entry| entry.stock.is_some());
    let flushes = stocked.map(|entry| {
        let inner = Arc::clone(inner);
        async move { prefetch::flush(&inner, &entry).await }
    });
    let _ = in_parallel(flushes.collect()).await;
}

/// Gives back the leases of grants that are still held. Calls that were cut off give back by themselves.
async fn give_back(inner: &Arc<Inner>) {
    // The calls that were cut off come first: their release settles what they used.
    tokio::task::yield_now().await;
    let releases = held(inner).into_iter().map(|leases| async move {
        if let Err(error) = leases.close().await {
            tracing::warn!(event = "release.failed", %error);
        }
    });
    let _ = in_parallel(releases.collect()).await;
    inner.background.idle().await;
}
