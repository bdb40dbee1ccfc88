//! The leases of a grant: how they are renewed, found gone, and given back when the client is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Bucket, Dimension, Timestamp, Update};
use sluice_table::{Item, Resend, StoreError, Written};
use tokio::runtime::Id;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::api::error_kind::ErrorKind;
use crate::lane::expired_holder;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::reading::parse;
use crate::lane::release::{ReleaseError, release};
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

impl ErrorKind for RenewError {
    fn kind(&self) -> &'static str {
        "renew"
    }
}

/// What could not be given back while the client was closed: buckets, and the names of the leases.
#[derive(Debug, Default)]
pub(crate) struct FailedReleases(Mutex<Vec<(Dimension, String)>>);

impl FailedReleases {
    pub(crate) fn add(&self, leases: impl IntoIterator<Item = (Dimension, String)>) {
        self.0.lock().extend(leases);
    }

    /// What was tried once more is back.
    pub(crate) fn is_back(&self, lease: &str) {
        self.0.lock().retain(|(_, name)| name != lease);
    }

    pub(crate) fn all(&self) -> Vec<(Dimension, String)> {
        self.0.lock().clone()
    }
}

/// How many grants are renewed side by side.
pub(super) const AT_ONCE: usize = 64;

/// No end: there is no lease.
const NONE: i64 = i64::MAX;

/// The leases of a grant.
pub(crate) struct HeldLeases {
    inner: Arc<Inner>,
    state: Mutex<LeaseState>,
    /// How long each renewal extends them.
    length: Duration,
    /// When the first of them ends, in microseconds since the epoch; [`NONE`] if there is none yet.
    ends: AtomicI64,
    /// Until when the task renews them, by the steady clock.
    renewed_until: AtomicI64,
    /// Whether one of them ended and was given back while its holder went on.
    is_lost: AtomicBool,
    /// The runtime whose task renews them.
    runtime: Option<Id>,
}

#[derive(Default)]
struct LeaseState {
    /// What is renewed: parts whose lease is not known to be gone.
    parts: Parts,
    /// The names of leases that were found gone.
    gone: Vec<String>,
    /// Whether they are being given back, so that nobody renews them any more.
    has_ended: bool,
    /// Whether the client was closed and gives them back.
    is_closed: bool,
    /// Whether they are given back.
    are_back: bool,
    /// The end of the client waits for it.
    token: Option<TaskTrackerToken>,
}

impl HeldLeases {
    /// The leases of `parts`; `None` if they have none.
    pub(crate) fn of(
        inner: &Arc<Inner>,
        parts: &[Part],
        length: Duration,
        renews: bool,
    ) -> Option<Arc<Self>> {
        let ends = parts.iter().filter_map(Part::lease_ends).min();
        let parts: Parts =
            parts.iter().filter(|part| part.lease_ends().is_some() || part.is_unsecured()).cloned().collect();
        if parts.is_empty() {
            return None;
        }
        Some(Arc::new(Self {
            inner: Arc::clone(inner),
            state: Mutex::new(LeaseState {
                parts,
                token: Some(inner.background.token()),
                ..LeaseState::default()
            }),
            length,
            ends: AtomicI64::new(ends.map_or(NONE, Timestamp::micros)),
            renewed_until: AtomicI64::new(if renews { i64::MAX } else { i64::MIN }),
            is_lost: AtomicBool::new(false),
            runtime: inner.background.runtime().map(|runtime| runtime.id()),
        }))
    }

    /// The runtime whose task renews them.
    pub(super) const fn runtime(&self) -> Option<Id> {
        self.runtime
    }

    pub(crate) fn ends(&self) -> Option<Timestamp> {
        let ends = self.ends.load(Ordering::Acquire);
        (ends != NONE).then(|| Timestamp::from_micros(ends))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Renews them until then, by the steady clock; always for `i64::MAX`, not for `i64::MIN`.
    pub(crate) fn renew_until(&self, steady: i64) {
        self.renewed_until.store(steady, Ordering::Release);
    }

    /// Whether the lease of `part` was found gone.
    pub(crate) fn is_gone(&self, part: &Part) -> bool {
        let state = self.state.lock();
        !state.gone.is_empty() && part.lease_name().is_some_and(|name| state.gone.contains(&name))
    }

    /// Whether half of their time has passed. If the time is not known, the leases may end at any moment.
    pub(super) fn is_due(&self, now: Option<Timestamp>, steady: i64) -> bool {
        let Some(ends) = self.ends() else { return false };
        let is_half_over = now.is_none_or(|now| ends.since(now) <= self.length / 2);
        is_half_over && steady < self.renewed_until.load(Ordering::Acquire) && !self.renewable().is_empty()
    }

    /// The parts to renew.
    fn renewable(&self) -> Parts {
        let state = self.state.lock();
        if state.has_ended { Parts::new() } else { state.parts.clone() }
    }

    /// The parts whose calls began in an outage, and are not known to have a lease.
    pub(super) fn unsecured(&self) -> Parts {
        self.renewable().into_iter().filter(Part::is_unsecured).collect()
    }

    /// Whether there are such parts.
    pub(super) fn has_unsecured(&self) -> bool {
        let state = self.state.lock();
        !state.has_ended && state.parts.iter().any(Part::is_unsecured)
    }

    /// How long a lease lasts.
    pub(super) const fn length(&self) -> Duration {
        self.length
    }

    /// Notes that one of them has a lease by now, which ends then.
    pub(super) fn has_lease(&self, ends: Timestamp) {
        self.ends.fetch_min(ends.micros(), Ordering::AcqRel);
    }

    /// Extends the leases to one lease time from now, and never shortens them.
    pub(super) async fn renew(&self) -> Result<(), RenewError> {
        let parts = self.renewable();
        if parts.iter().any(|part| part.lease_ends().is_some()) {
            self.send(&parts).await?;
        }
        match self.state.lock().gone.last().cloned() {
            Some(key) => Err(RenewError::LeaseGone { key }),
            None => Ok(()),
        }
    }

    /// Sends the renewals of `parts`.
    async fn send(&self, parts: &[Part]) -> Result<(), RenewError> {
        let ends = self.inner.patient.time().await?.after(self.length).ceil_to_second();
        let Renewed { gone, failure } = send(&self.inner, parts, ends).await;
        self.found_gone(&gone);
        if let Some(error) = failure {
            return Err(error.into());
        }
        // What has no lease yet was not renewed.
        let _ = self.ends.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| {
            (before != NONE).then(|| before.max(ends.micros()))
        });
        Ok(())
    }

    /// Records leases that a renewal found gone, each once. A lease that was released while its renewal was
    /// under way is gone for that reason.
    fn found_gone(&self, gone: &[String]) {
        if gone.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if state.has_ended {
            return;
        }
        let (lost, kept): (Parts, Parts) = std::mem::take(&mut state.parts)
            .into_iter()
            .partition(|part| part.lease_name().is_some_and(|name| gone.contains(&name)));
        state.parts = kept;
        for part in lost {
            if let Hold::LocalSlots(slots) = &part.hold {
                // A release of another call that had the lease before may have arrived late.
                self.ends.store(NONE, Ordering::Release);
                self.inner.fallback.begin_unleased(&part.entry.dimension, part.cost);
                if !slots.lost_lease() {
                    self.inner.fallback.end_unleased(&self.inner, &part.entry.dimension, part.cost);
                }
                state.parts.push(part);
                continue;
            }
            let Some(key) = part.lease_name() else { continue };
            tracing::warn!(
                event = "lease.gone",
                lease = key,
                "the lease ended and its slot was given back while the call went on: another call may run beside it"
            );
            state.gone.push(key);
            expired_holder::found(&self.inner, &part.entry);
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the renewals: the leases are about to be given back. Returns false if that was done already,
    /// because the client was closed.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state.lock();
        state.has_ended = true;
        !state.is_closed
    }

    /// Whether `part` is one of them.
    pub(crate) fn covers(&self, part: &Part) -> bool {
        let wanted = part.lease_name();
        wanted.is_some() && self.state.lock().parts.iter().any(|part| part.lease_name() == wanted)
    }

    /// Notes how the release by their holder ended. After the client was closed, it says nothing.
    pub(crate) fn released(&self, are_back: bool) {
        let left = if are_back { Vec::new() } else { self.left() };
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        (state.are_back, state.token) = (are_back, None);
        drop(state);
        if !left.is_empty() && self.inner.background.is_closing() {
            self.inner.extensions.of::<FailedReleases>().add(left);
        }
    }

    pub(super) fn dimensions(&self) -> String {
        let state = self.state.lock();
        state.parts.iter().map(|part| part.entry.dimension.as_str()).collect::<Vec<_>>().join(",")
    }

    /// What is not given back yet: buckets, and the names of the leases.
    pub(crate) fn left(&self) -> Vec<(Dimension, String)> {
        let state = self.state.lock();
        if state.are_back {
            return Vec::new();
        }
        state.parts.iter().filter_map(left).collect()
    }

    /// Gives the leases back although their holder has not released them: the client is closed.
    pub(crate) async fn close(&self) -> Result<(), ReleaseError> {
        let parts = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.has_ended, true) {
                return Ok(());
            }
            state.is_closed = true;
            state.parts.clone()
        };
        let released = release(&self.inner, parts).await;
        let mut state = self.state.lock();
        (state.are_back, state.token) = (released.is_ok(), None);
        released.map(drop)
    }
}

impl std::fmt::Debug for HeldLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLeases").field("ends", &self.ends()).finish_non_exhaustive()
    }
}

/// What is left of `part` if it is not given back: its bucket, and the name of its lease.
pub(crate) fn left(part: &Part) -> Option<(Dimension, String)> {
    Some((part.entry.dimension.clone(), part.lease_name()?))
}

/// The result of a renewal: the names of the leases that were gone, and why others could not be renewed.
pub(super) struct Renewed {
    pub(super) gone: Vec<String>,
    pub(super) failure: Option<StoreError>,
}

/// Sends the renewals of `parts`. A lease that fails or is gone does not keep the others from being renewed.
pub(super) async fn send(inner: &Inner, parts: &[Part], ends: Timestamp) -> Renewed {
    let mut renewed = Renewed { gone: Vec::new(), failure: None };
    let parts = parts.iter().filter_map(Part::of_table);
    let renewals = parts.filter_map(|part| Some((renewal(&part, ends)?, part.lease_name()?, part)));
    for (update, key, part) in renewals {
        // Setting the same end twice equals setting it once. A failed condition may show a later end.
        let outcome = match inner.patient.update(&update, Resend::Always).await {
            Ok(Written::Applied(_)) => telemetry::RenewalOutcome::Renewed,
            Ok(Written::ConditionFailed(Some(row))) if still_holds(&part, &row) => {
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

/// The write that renews the lease of `part`.
fn renewal(part: &Part, ends: Timestamp) -> Option<Update> {
    match &part.hold {
        Hold::Inline(inline) => {
            Some(sluice_core::renew_inline(part.entry.dimension.to_string(), &inline.id, ends))
        }
        _ => part.lease().map(|lease| sluice_core::renew(lease.key().to_owned(), ends)),
    }
}

/// Whether the row whose condition failed still has the lease: a bucket's row outlives its leases.
fn still_holds(part: &Part, row: &Item) -> bool {
    let Hold::Inline(inline) = &part.hold else { return true };
    let bucket = parse(&part.entry, row).ok();
    bucket.as_ref().and_then(Bucket::inline).is_some_and(|leases| leases.contains(&inline.id))
}
