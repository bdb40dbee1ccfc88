//! The lane of a concurrency bucket with inline leases: callers that take and that release share a write.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Borrowing, Cost, InlineRelease, LeaseId};
use sluice_ops::Released;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::no_grant::{behind, too_late};
use crate::lane::parallel::stopped;
use crate::lane::poll::{Others, Poll};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, QueueAsk, QueueResult, Service, Waiter};
use crate::lane::release::{RELEASE_PATIENCE, ReleaseError};
use crate::lane::round;
use crate::lane::setback::{QueuePatience, Setback};
use crate::lane::slot_wait::WaitingForSlot;
use crate::lane::task::boxed;
use crate::lane::terms::Terms;
use crate::lane::turns::Turns;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::lane::wants::Want;

mod batch;

use crate::lane::inline::batch::InlineBatch;

pub(crate) type InlineLane = Lane<InlineAsk, InlineOutcome>;
type InlineWaiter = Waiter<InlineAsk, InlineOutcome>;

/// The lane of calls of a bucket that run already.
#[derive(Debug, Default)]
struct Running(Arc<InlineLane>);

/// What one caller wants.
#[derive(Debug)]
pub(crate) enum InlineAsk {
    Take {
        /// The same in every try: a lease under this id can only be the caller's own.
        id: LeaseId,
        cost: Cost,
        /// As [`Want::borrows`].
        borrows: Option<Borrowing>,
        terms: Terms,
        /// Set once a write that named the lease has gone unanswered.
        unconfirmed: Option<UnconfirmedLease>,
    },
    Release {
        lease: InlineRelease,
        /// The release is tried until then, whatever happens in between.
        until: Instant,
        /// Whether a write that named the lease has gone unanswered.
        is_doubted: bool,
    },
}

/// A lease that may exist without its caller knowing. If this is dropped with a caller that left or that
/// received a failure, the lease is given back. The slot then does not stay taken until the lease ends.
#[derive(Debug)]
pub(crate) struct UnconfirmedLease {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    lease: Option<InlineRelease>,
}

impl UnconfirmedLease {
    fn new(inner: &Arc<Inner>, entry: &Arc<Entry>, id: LeaseId, cost: Cost) -> Self {
        let lease = Some(InlineRelease { id, cost });
        Self { inner: Arc::clone(inner), entry: Arc::clone(entry), lease }
    }

    /// Keeps the lease: a grant or another value of this type holds it.
    fn forget(mut self) {
        self.lease = None;
    }
}

impl Drop for UnconfirmedLease {
    fn drop(&mut self) {
        let (Some(lease), Ok(runtime)) = (self.lease.take(), Handle::try_current()) else { return };
        let (inner, entry) = (Arc::clone(&self.inner), Arc::clone(&self.entry));
        runtime.spawn(boxed(async move {
            if let Err(error) = release(&inner, &entry, lease).await {
                tracing::debug!(event = "release.failed", dimension = %entry.dimension, %error);
            }
        }));
    }
}

/// The answer to a take or a release.
#[derive(Debug)]
pub(crate) enum InlineOutcome {
    Taken(LaneAnswer),
    Released(Result<Released, ReleaseError>),
}

impl InlineAsk {
    /// Whether the caller may have what another caller left: as many slots, for as long.
    pub(crate) fn would_take(&self, unclaimed: &UnclaimedGrant) -> bool {
        let Self::Take { cost: wanted, borrows, terms, .. } = self else { return false };
        if borrows.is_some() {
            return false;
        }
        let until = unclaimed.now().after(terms.lease);
        matches!(unclaimed.parts().as_slice(), [part] if part.cost == *wanted && part.lease_ends().is_some_and(|ends| ends >= until))
    }

    /// Whether it waits until all processes have found the end of an outage.
    const fn waits_for_hold(&self) -> bool {
        matches!(self, Self::Take { terms, .. } if !terms.is_running)
    }

    /// How long the caller stays in the queue.
    fn patience(&self, inner: &Inner) -> QueuePatience {
        match self {
            Self::Take { terms, .. } => terms.queue_patience(inner.config.on_unavailable),
            // What the table holds goes back to the table, unless the process keeps it (`lane::release`).
            Self::Release { until, .. } => QueuePatience {
                stays: until.saturating_duration_since(Instant::now()),
                answers_locally: false,
                moves_on: false,
            },
        }
    }
}

impl QueueAsk for InlineAsk {
    fn stays_until(&self) -> Option<Instant> {
        match self {
            Self::Take { terms, .. } => terms.stays_until(),
            Self::Release { until, .. } => Some(*until),
        }
    }

    fn takes(&self) -> bool {
        matches!(self, Self::Take { .. })
    }

    fn came(&self) -> u64 {
        match self {
            Self::Take { terms, .. } => terms.came,
            Self::Release { .. } => 0,
        }
    }
}

pub(super) async fn take(inner: &Arc<Inner>, want: &Want, terms: Terms) -> LaneAnswer {
    let id = inner.config.lease_ids.next_inline();
    let waiting = terms.stays.then(|| WaitingForSlot::join(&want.entry, want.cost));
    // Those that run wait for nobody: they have a lane of their own.
    let running = terms.is_running.then(|| Arc::clone(&want.entry.extensions.of::<Running>().0));
    let lane = running.as_ref().unwrap_or(&want.entry.inline);
    let (cost, borrows) = (want.cost, &want.borrows);
    let ask = || InlineAsk::Take { id: id.clone(), cost, borrows: borrows.clone(), terms, unconfirmed: None };
    let stays = |why: &Setback| why.is_waited_out(terms.queue_patience(inner.config.on_unavailable));
    match lane.take(ask, stays, service(inner, &want.entry)).await {
        QueueResult::Answered(InlineOutcome::Taken(answer)) => answer,
        QueueResult::Answered(InlineOutcome::Released(_)) | QueueResult::Lost => {
            Err(stopped("UpdateItem").into())
        }
        QueueResult::Behind(setback) => behind(inner, std::slice::from_ref(want), setback),
        QueueResult::Late => {
            drop(waiting);
            too_late(inner, std::slice::from_ref(want), lane.why(), lane.looks_for())
        }
    }
}

pub(crate) async fn release(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    lease: InlineRelease,
) -> Result<Released, ReleaseError> {
    let until = Instant::now() + RELEASE_PATIENCE;
    let ask = || InlineAsk::Release { lease: lease.clone(), until, is_doubted: false };
    match entry.inline.give(ask, service(inner, entry)).await {
        Some(InlineOutcome::Released(released)) => released,
        Some(InlineOutcome::Taken(_)) | None => Err(stopped("UpdateItem").into()),
    }
}

fn service<'a>(
    inner: &'a Arc<Inner>,
    entry: &'a Arc<Entry>,
) -> impl Fn(Leader<InlineAsk, InlineOutcome>) -> Service + 'a {
    move |leader| Box::pin(serve(Arc::clone(inner), Arc::clone(entry), leader))
}

/// The pause until the first caller that waits is likely to have its turn.
fn next_look(inner: &Inner, entry: &Entry) -> Option<Duration> {
    let reading = entry.reading()?;
    entry.extensions.of::<Turns>().next_look(&reading.bucket, inner.now())
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, leader: Leader<InlineAsk, InlineOutcome>) {
    let _serving = inner.background.token();
    let (inner, entry) = (&inner, &entry);
    let batch = |waiters| InlineBatch {
        inner,
        entry,
        waiters,
        waiting: None,
        unclaimed_grants: Vec::new(),
        is_outdated: false,
        turns: entry.extensions.of(),
        began: Instant::now(),
    };
    let others = || Others { crowd: entry.load.crowd(), next_look: next_look(inner, entry) };
    round::lead(inner, leader, Poll::default(), batch, others, || entry.doubt()).await;
}
