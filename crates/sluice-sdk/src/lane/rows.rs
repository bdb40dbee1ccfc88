//! The lane of a set of dimensions with lease rows: one transaction for all callers in the queue.

use std::sync::Arc;

use sluice_core::{Amount, Borrowing, Cost, Dimension, LeaseId, ShareName};
use tokio::time::Instant;

use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::no_grant::{behind, too_late};
use crate::lane::parallel::stopped;
use crate::lane::part::Part;
use crate::lane::poll::{Others, Poll};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, QueueAsk, QueueResult, Service, Waiter};
use crate::lane::round;
use crate::lane::setback::Setback;
use crate::lane::slot_wait::WaitingForSlot;
use crate::lane::terms::Terms;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::lane::wants::Want;

mod batch;
mod transaction;

use crate::lane::rows::batch::RowBatch;

pub(crate) type RowLane = Lane<RowAsk, LaneAnswer>;
type RowWaiter = Waiter<RowAsk, LaneAnswer>;

/// The lane of calls of a bucket that run already.
#[derive(Debug, Default)]
struct Running(Arc<RowLane>);

/// What one caller wants of each dimension of the set, in the order of the dimensions.
#[derive(Clone, Debug)]
pub(crate) struct RowAsk {
    costs: Vec<Cost>,
    /// As [`Want::borrows`].
    borrows: Vec<Option<Borrowing>>,
    /// The same in every try: a lease under one of these ids can only be the caller's own.
    ids: Vec<LeaseId>,
    terms: Terms,
}

impl RowAsk {
    /// Whether it takes slots of another share.
    fn borrows(&self) -> bool {
        self.borrows.iter().any(Option::is_some)
    }

    /// The cost of each dimension, and what stays free there if the caller borrows.
    fn amounts(&self) -> impl Iterator<Item = (Cost, Option<Amount>)> {
        let leaves = self.borrows.iter().map(|borrows| borrows.as_ref().map(|borrowing| borrowing.leaves));
        self.costs.iter().copied().zip(leaves)
    }

    /// Whether the caller may have what another caller left: as much, for as long, and not later.
    pub(crate) fn would_take(&self, unclaimed: &UnclaimedGrant) -> bool {
        let now = unclaimed.now();
        let (until, latest) = (now.after(self.terms.lease), now.after(self.terms.patience()));
        let fits = |(part, cost): (&Part, &Cost)| {
            part.cost == *cost
                && part.start_at <= latest
                && part.lease_ends().is_none_or(|ends| ends >= until)
        };
        !self.borrows()
            && unclaimed.parts().len() == self.costs.len()
            && unclaimed.parts().iter().zip(&self.costs).all(fits)
    }
}

impl QueueAsk for RowAsk {
    fn stays_until(&self) -> Option<Instant> {
        self.terms.stays_until()
    }
}

/// Takes the costs of all `wants` in the lane of their set. Waits for slots if `terms` allow.
pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    let entries: Vec<_> = wants.iter().map(|want| Arc::clone(&want.entry)).collect();
    // Those that run wait for nobody: they have a lane of their own.
    let lane = match terms.is_running {
        true => Arc::clone(&entries[0].extensions.of::<Running>().0),
        false => inner.cache.row_lane(&entries),
    };
    let ask = RowAsk {
        costs: wants.iter().map(|want| want.cost).collect(),
        borrows: wants.iter().map(|want| want.borrows.clone()).collect(),
        ids: wants.iter().map(|_| inner.config.lease_ids.next()).collect(),
        terms,
    };
    let slots = wants.iter().filter(|want| want.concurrent && terms.stays);
    let waiting: Vec<_> = slots.map(|want| WaitingForSlot::join(&want.entry, want.cost)).collect();
    let serve = |leader| -> Service {
        Box::pin(serve(Arc::clone(inner), entries.clone(), Arc::clone(&lane), leader))
    };
    let stays = |why: &Setback| why.is_waited_out(terms.queue_patience(inner.config.on_unavailable));
    match lane.take(|| ask.clone(), stays, serve).await {
        QueueResult::Answered(answer) => answer,
        QueueResult::Behind(setback) => behind(inner, wants, setback),
        QueueResult::Lost => Err(stopped("TransactWriteItems").into()),
        QueueResult::Late => {
            drop(waiting);
            too_late(inner, wants, lane.why(), lane.looks_for())
        }
    }
}

async fn serve(
    inner: Arc<Inner>,
    entries: Vec<Arc<Entry>>,
    lane: Arc<RowLane>,
    leader: Leader<RowAsk, LaneAnswer>,
) {
    let _serving = inner.background.token();
    let (inner, entries, lane) = (&inner, &entries, &lane);
    let batch =
        |waiters| RowBatch { inner, entries, lane, waiters, waiting: None, unclaimed_grants: Vec::new() };
    let crowd = || entries.iter().filter_map(|entry| entry.load.crowd()).max();
    let others = || Others { crowd: crowd(), next_look: None };
    round::lead(inner, leader, Poll::default(), batch, others, || {
        entries.iter().for_each(|entry| entry.doubt())
    })
    .await;
}

/// Returns the name of a set of dimensions, each with its share.
pub(crate) fn name(entries: &[Arc<Entry>]) -> Vec<(Dimension, Option<ShareName>)> {
    entries.iter().map(|entry| (entry.dimension.clone(), entry.share.clone())).collect()
}
