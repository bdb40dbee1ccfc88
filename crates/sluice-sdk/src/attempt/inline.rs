//! The lane of a concurrency bucket whose leases stand in its own row: those who take and those who release join in one write.

use std::sync::Arc;

use sluice_core::{Cost, InlineRelease, LeaseId};
use tokio::runtime::Handle;

use super::{Answer, Fresh, Taken, Terms, Want, stopped};
use crate::cache::Entry;
use crate::client::Inner;
use crate::give_back::{ReleaseError, Released};
use crate::heal;
use crate::lane::{Lane, NoAnswer, Seat, Service, Turn};
use crate::load::{self, InLine};
use crate::outcome::RetryIn;
use crate::retry::Poll;

mod batch;

use batch::Batch;

pub(crate) type InlineLane = Lane<InlineAsk, Reply>;
type InlineTurn = Turn<InlineAsk, Reply>;

/// What one caller wants.
#[derive(Debug)]
pub(crate) enum InlineAsk {
    Take {
        /// The same in every try: a lease under it can only be its own.
        id: LeaseId,
        cost: Cost,
        terms: Terms,
        /// Once a write that named it has gone unanswered.
        trace: Option<Trace>,
    },
    Release(InlineRelease),
}

/// A lease that may be there without its caller knowing. Dropped with a caller that left, or that was told of a failure, it is
/// given back, so that its slot need not wait for its end.
#[derive(Debug)]
pub(crate) struct Trace {
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    lease: Option<InlineRelease>,
}

impl Trace {
    /// Of the lease `id` of `cost`.
    fn new(inner: &Arc<Inner>, entry: &Arc<Entry>, id: LeaseId, cost: Cost) -> Self {
        let lease = Some(InlineRelease { id, cost });
        Self { inner: Arc::clone(inner), entry: Arc::clone(entry), lease }
    }

    /// A grant holds the lease, or another trace does.
    fn forget(mut self) {
        self.lease = None;
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let (Some(lease), Ok(runtime)) = (self.lease.take(), Handle::try_current()) else { return };
        let (inner, entry) = (Arc::clone(&self.inner), Arc::clone(&self.entry));
        runtime.spawn(async move {
            if let Err(error) = release(&inner, &entry, lease).await {
                tracing::debug!(event = "release.failed", dimension = %entry.dimension, %error);
            }
        });
    }
}

/// The answer to either.
#[derive(Debug)]
pub(crate) enum Reply {
    Taken(Answer),
    Released(Result<Released, ReleaseError>),
}

impl InlineAsk {
    /// Whether it may have what another caller left: as much, for as long.
    pub(crate) fn would_take(&self, fresh: &Fresh) -> bool {
        let Self::Take { cost: wanted, terms, .. } = self else { return false };
        let until = fresh.now().after(terms.lease.length());
        matches!(fresh.parts().as_slice(), [part] if part.cost == *wanted && part.lease_ends().is_some_and(|ends| ends >= until))
    }

    fn waits_for(&self, retry: &RetryIn) -> bool {
        matches!(self, Self::Take { terms, .. } if terms.waits_for(retry))
    }
}

/// Takes slots, waiting in line for them where `terms` allow.
pub(super) async fn take(inner: &Arc<Inner>, want: &Want, terms: Terms) -> Answer {
    let id = inner.config.lease_ids.next();
    let lane = &want.entry.inline;
    let _in_line = terms.until.map(|_| InLine::join(&want.entry, want.cost));
    loop {
        if let Some(retry) = lane.blocked().filter(|retry| !terms.waits_for(retry)) {
            let retry = load::behind(&want.entry, want.cost, retry, inner.now());
            heal::refused(inner, &want.entry, &retry);
            return Ok(Taken::Refused(retry));
        }
        match join(inner, &want.entry, InlineAsk::Take { id: id.clone(), cost: want.cost, terms, trace: None }).await {
            Ok(Reply::Taken(answer)) => return answer,
            Ok(Reply::Released(_)) | Err(NoAnswer::Lost) => return Err(stopped("UpdateItem").into()),
            Err(NoAnswer::NotServed) => {}
        }
    }
}

/// Gives back what the lease holds.
pub(crate) async fn release(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    lease: InlineRelease,
) -> Result<Released, ReleaseError> {
    loop {
        let answer = join(inner, entry, InlineAsk::Release(lease.clone()));
        match answer.await {
            Ok(Reply::Released(released)) => return released,
            Ok(Reply::Taken(_)) | Err(NoAnswer::Lost) => return Err(stopped("UpdateItem").into()),
            Err(NoAnswer::NotServed) => {}
        }
    }
}

async fn join(inner: &Arc<Inner>, entry: &Arc<Entry>, ask: InlineAsk) -> Result<Reply, NoAnswer> {
    let gives = matches!(ask, InlineAsk::Release(_));
    let service = |seat| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(entry), seat)) };
    let place = entry.inline.join(ask, service);
    if gives {
        entry.inline.wake();
    }
    place.answer().await
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, mut seat: Seat<InlineAsk, Reply>) {
    let mut poll = Poll::default();
    // All who are in line: those who give back must not stand behind a write's worth of those who wait.
    while let Some(turns) = seat.next(usize::MAX).await {
        let served = turns.len();
        let batch = Batch { inner: &inner, entry: &entry, turns, waiting: None, orphans: Vec::new() };
        let result = batch.serve().await;
        if seat.after(served, result, &mut poll).await {
            entry.doubt();
        }
    }
}
