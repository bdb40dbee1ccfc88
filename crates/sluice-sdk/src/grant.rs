//! A grant: what a caller holds while it calls the vendor.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, COMMON, Dimension, Timestamp};
use sluice_ops::Released;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::api::basis::Basis;
use crate::api::request::Ask;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::noted_use;
use crate::lane::parallel::{Stopped, finished, stopped};
use crate::lane::release::{ReleaseError, Use, give_back_unused, name_of, release, spawn_give_back};
use crate::lane::shadow;
use crate::lane::unclaimed::UnclaimedGrant;
use crate::telemetry::span;

pub(crate) mod held_leases;
pub(crate) mod outcome;
pub(crate) mod renew;
mod secure;
mod settle;

use smallvec::SmallVec;

use crate::grant::held_leases::HeldLeases;
use crate::grant::renew::Keeper;
use crate::lane::part::{Hold, Part, Parts, line_of};

/// Permission to call the vendor.
///
/// [`release`](Self::release) it when the call is over. A dropped grant gives its slots back on a task; if
/// the runtime is gone (a crash, a frozen Lambda), the lease ends and a sweep gives the slot back. Rate
/// tokens stay spent. While the grant is held, the client renews its leases.
#[derive(Debug)]
#[must_use = "a grant that is dropped gives back its slots and reports no result: release it"]
pub struct Grant {
    inner: Arc<Inner>,
    parts: Parts,
    granted_at: Timestamp,
    start_at: Timestamp,
    leases: SmallVec<[Arc<HeldLeases>; 1]>,
    acquiring: Duration,
    basis: Basis,
}

/// The longest that a release delays the end of a call: a Lambda should leave 5 s after the timeout.
pub(crate) const RELEASE_WAIT: Duration = Duration::from_secs(3);

impl Grant {
    /// Creates a grant from what was just granted. If `renews` is true, the client extends its leases by
    /// `lease_for`.
    pub(crate) fn new(
        inner: Arc<Inner>,
        unclaimed: UnclaimedGrant,
        lease_for: Duration,
        renews: bool,
    ) -> Self {
        let (at, took, basis) = (unclaimed.at, unclaimed.took, unclaimed.basis);
        let parts = unclaimed.into_parts();
        let leases = HeldLeases::of(&inner, &parts, lease_for, renews);
        leases.iter().for_each(|leases| inner.extensions.of::<Keeper>().add(&inner, leases));
        let mut grant = Self::of(inner, parts, at, took);
        grant.leases.extend(leases);
        grant.basis = basis;
        grant
    }

    /// Creates a grant of parts without leases.
    pub(crate) fn of(inner: Arc<Inner>, parts: Parts, at: Timestamp, acquiring: Duration) -> Self {
        let start_at = parts.iter().map(|part| part.start_at).fold(at, Timestamp::max);
        let (leases, basis) = (SmallVec::new(), Basis::Table);
        Self { inner, parts, granted_at: at, start_at, leases, acquiring, basis }
    }

    pub(crate) fn from_stock(inner: Arc<Inner>, part: Part) -> Self {
        let at = part.start_at;
        Self::of(inner, Parts::from_buf([part]), at, Duration::ZERO)
    }

    /// Takes the parts out, for another holder. The grant then gives nothing back.
    pub(crate) fn into_parts(mut self) -> Parts {
        self.take_parts()
    }

    /// Takes the parts out. Their leases are no longer renewed.
    fn take_parts(&mut self) -> Parts {
        let mut parts = std::mem::take(&mut self.parts);
        for leases in &self.leases {
            parts.iter_mut().for_each(|part| part.may_be_gone |= leases.is_gone(part));
            if !leases.end() {
                parts.retain(|part| !leases.covers(part));
            }
        }
        parts
    }

    pub(crate) const fn acquiring(&self) -> Duration {
        self.acquiring
    }

    /// The dimensions of which the grant holds a part.
    pub fn dimensions(&self) -> impl Iterator<Item = &Dimension> {
        self.parts.iter().filter(|part| !part.is_let_through()).map(|part| part.entry.asked())
    }

    /// What the grant took from `dimension`; `None` if it took nothing.
    #[must_use]
    pub fn cost(&self, dimension: &str) -> Option<Amount> {
        let of = |part: &&Part| part.entry.asked().as_str() == dimension && !part.is_let_through();
        self.parts.iter().find(of).map(|part| part.cost.amount())
    }

    /// The line of `dimension` that its tokens or slots were taken from: the name of a share, or `common` for
    /// what no share has. It is not the share of the request if they were borrowed. `None` if the grant holds
    /// nothing of `dimension` that was taken from the table.
    #[must_use]
    pub fn paid_from(&self, dimension: &str) -> Option<&str> {
        self.parts.iter().find_map(|part| match &part.hold {
            _ if part.entry.asked().as_str() != dimension => None,
            Hold::Tokens { receipt, .. } => Some(line_of(receipt)),
            Hold::Slots(_) | Hold::Inline(_) => {
                Some(part.entry.share_of().map_or(COMMON, |(_, share)| share.as_str()))
            }
            Hold::Local | Hold::LocalSlots(_) | Hold::LetThrough { .. } => None,
        })
    }

    /// When the call may be made.
    #[must_use]
    pub const fn start_at(&self) -> Timestamp {
        self.start_at
    }

    /// How long after the grant the call may be made: zero, unless a start was booked.
    #[must_use]
    pub fn booked_wait(&self) -> Duration {
        self.start_at.since(self.granted_at)
    }

    /// When the first of the grant's leases ends, as last renewed; `None` if it has none.
    #[must_use]
    pub fn lease_ends(&self) -> Option<Timestamp> {
        self.leases.iter().filter_map(|leases| leases.ends()).min()
    }

    /// Whether a lease ended and its slot was given back while the grant was held, so that the slot may be in
    /// use twice.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.leases.iter().any(|leases| leases.is_lost())
    }

    /// What the grant rests on: the table, or a decision of this process, while DynamoDB is out or in shadow
    /// mode.
    #[must_use]
    pub const fn basis(&self) -> Basis {
        self.basis
    }

    /// Gives back what the call held: concurrency slots and lease rows. Rate tokens stay spent, without a
    /// request. What was charged is settled first, as in [`settle`](Self::settle).
    ///
    /// With lease rows, takes at most the time of two requests (4.2 s each) while DynamoDB does not answer,
    /// and 10 s plus four requests while other writers conflict. With inline leases, at most 9 s plus six
    /// requests: the release is tried for 5 s, also through an outage. With a share policy
    /// ([`ClientBuilder::on_unavailable`](crate::ClientBuilder::on_unavailable)), the process keeps the slots
    /// while DynamoDB is out, lets its next calls have them, and gives them back afterwards: this returns at
    /// once.
    ///
    /// # Errors
    /// [`ReleaseError`] if the table did not answer. The slot then comes back at the latest when its lease
    /// ends.
    pub async fn release(mut self) -> Result<Released, ReleaseError> {
        if !self.parts.iter().any(Part::is_held) {
            return Ok(Released::GivenBack);
        }
        self.parts.iter().for_each(Part::call_ended);
        let span = span::release(self.display());
        // On its own task: the grant is released even if the caller is dropped here.
        let (inner, parts, leases) =
            (Arc::clone(&self.inner), self.take_parts(), std::mem::take(&mut self.leases));
        let Some(runtime) = self.inner.background.runtime() else {
            return Err(stopped("TransactWriteItems").into());
        };
        let releasing = async move {
            let released = release(&inner, parts).await;
            leases.iter().for_each(|leases| leases.released(released.is_ok()));
            released
        };
        let released = self.inner.background.spawn(&runtime, releasing.instrument(span.clone())).await;
        let result = finished(released).unwrap_or_else(|Stopped| Err(stopped("TransactWriteItems").into()));
        span.record("sluice.outcome", name_of(&result));
        shadow::or_in_shadow(&self.inner, result, || Released::GivenBack)
    }

    /// Releases the grant, and waits for at most `RELEASE_WAIT`. The release then goes on by itself.
    pub(crate) async fn release_in_time(self) {
        let names = self.names();
        match timeout(RELEASE_WAIT, self.release()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(event = "release.failed", dimensions = %names, %error),
            Err(_) => tracing::warn!(event = "release.slow", dimensions = %names),
        }
    }

    /// Gives everything back, including rate tokens, on a task of its own: the call was never made.
    pub(crate) fn give_back_unused(mut self) {
        let parts = self.take_parts();
        let leases = std::mem::take(&mut self.leases);
        spawn_give_back(&self.inner, parts, Use::Unused, move |is_back| {
            leases.iter().for_each(|leases| leases.released(is_back))
        });
    }

    /// Gives everything back, also the tokens: the call was not made. If this future is dropped after its
    /// first poll, the return goes on. What cannot be given back is logged, and comes back when its lease
    /// ends. Takes at most as long as a settle and a [`release`](Self::release).
    pub async fn cancel(self) {
        self.parts.iter().for_each(|part| noted_use::not_used(&self.inner, part));
        self.cancel_uncounted().await;
    }

    /// The same for a grant that was not counted as used.
    async fn cancel_uncounted(mut self) {
        let (inner, parts, leases) =
            (Arc::clone(&self.inner), self.take_parts(), std::mem::take(&mut self.leases));
        let Some(runtime) = self.inner.background.runtime() else { return };
        let giving_back = async move {
            give_back_unused(&inner, parts).await;
            leases.iter().for_each(|leases| leases.released(true));
        };
        let _ = self.inner.background.spawn(&runtime, giving_back).await;
    }

    pub(crate) fn join(mut self, mut other: Self) -> Self {
        self.parts.append(&mut other.parts);
        self.start_at = self.start_at.max(other.start_at);
        self.leases.append(&mut other.leases);
        if self.basis == Basis::Table {
            self.basis = other.basis;
        }
        self
    }

    /// The asks that would take the same again.
    fn asks(&self) -> Vec<Ask> {
        self.parts.iter().map(Part::ask).collect()
    }

    fn display(&self) -> impl Display {
        std::fmt::from_fn(|f| f.write_str(&self.names()))
    }

    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.entry.dimension.as_str()).collect();
        names.join(",")
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    pub(crate) fn part_mut(&mut self, dimension: &str) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.entry.asked().as_str() == dimension)
    }

    pub(crate) fn leases(&self) -> &[Arc<HeldLeases>] {
        &self.leases
    }

    /// Renews the leases as the client is set to.
    pub(crate) fn renew_as_set(&self) {
        self.renew_until(if self.inner.config.renew_leases { i64::MAX } else { i64::MIN });
    }

    /// Renews the leases until then, by the steady clock.
    pub(crate) fn renew_until(&self, steady: i64) {
        self.leases.iter().for_each(|leases| leases.renew_until(steady));
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.parts.iter().for_each(Part::call_ended);
        if self.parts.iter().any(Part::is_held) {
            let parts = self.take_parts();
            let leases = std::mem::take(&mut self.leases);
            spawn_give_back(&self.inner, parts, Use::Used, move |is_back| {
                leases.iter().for_each(|leases| leases.released(is_back))
            });
        }
    }
}

/// A grant, or none, under which no call was made yet. A drop gives everything back, including rate tokens.
#[derive(Debug, Default)]
pub(crate) struct UnusedGrant(Option<Grant>);

impl UnusedGrant {
    pub(crate) fn join(&mut self, grant: Grant) {
        self.0 = Some(match self.0.take() {
            Some(held) => held.join(grant),
            None => grant,
        });
    }

    pub(crate) const fn take(&mut self) -> Option<Grant> {
        self.0.take()
    }

    pub(crate) fn is_lease_lost(&self) -> bool {
        self.0.as_ref().is_some_and(Grant::is_lease_lost)
    }

    /// The asks that would take all of it again.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        self.0.iter().flat_map(Grant::asks).collect()
    }

    pub(crate) async fn cancel(&mut self) {
        if let Some(grant) = self.0.take() {
            grant.cancel_uncounted().await;
        }
    }

    pub(crate) fn start_at(&self) -> Option<Timestamp> {
        self.0.as_ref().map(Grant::start_at)
    }

    /// How long after the grant its start is.
    pub(crate) fn booked_wait(&self) -> Duration {
        self.0.as_ref().map(Grant::booked_wait).unwrap_or_default()
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.0.iter().flat_map(|grant| &grant.parts).map(|part| Arc::clone(&part.entry)).collect()
    }

    /// Takes out the tokens whose start is more than `by` earlier than the latest start.
    pub(crate) fn split_earlier_than(&mut self, by: Duration) -> Parts {
        let Some(grant) = &mut self.0 else { return Parts::new() };
        let latest = grant.start_at;
        let is_early =
            |part: &Part| matches!(part.hold, Hold::Tokens { .. }) && latest.since(part.start_at) > by;
        let (early, kept): (Parts, Parts) = std::mem::take(&mut grant.parts).into_iter().partition(is_early);
        grant.parts = kept;
        early
    }
}

impl Drop for UnusedGrant {
    fn drop(&mut self) {
        if let Some(grant) = self.0.take() {
            grant.give_back_unused();
        }
    }
}
