//! What an attempt takes: the buckets of its dimensions, which are read if they are not known.

use std::sync::Arc;

use sluice_core::{Borrowing, Cost, Limit, MOST_INLINE_LEASES};
use tokio::time::timeout_at;

use crate::api::error::AcquireError;
use crate::api::request::{Ask, Payer};
use crate::config::Leases;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::{Stopped, in_parallel, stopped};
use crate::lane::poll::{Poll, WaitContext, pause_until_return};
use crate::lane::reading::{known, of_share};
use crate::lane::setback::Setback;
use crate::lane::terms::Terms;

/// One dimension of an attempt, with what is known of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) entry: Arc<Entry>,
    pub(crate) cost: Cost,
    pub(crate) concurrent: bool,
    /// For a caller that borrows slots of another share.
    pub(crate) borrows: Option<Borrowing>,
}

impl Want {
    /// The ask that would take the same again.
    pub(crate) fn ask(&self) -> Ask {
        let share = Payer::Named(self.entry.payer().cloned());
        Ask { dimension: self.entry.asked().clone(), cost: Some(self.cost), share }
    }
}

/// Looks up the bucket of every dimension, and reads those never seen before.
pub(crate) async fn wants(inner: &Arc<Inner>, asks: &[Ask]) -> Result<Vec<Want>, AcquireError> {
    let entries: Vec<_> = asks.iter().map(|ask| inner.entry_for(ask)).collect();
    let unread = entries.iter().filter(|entry| entry.reading().is_none());
    let reads = unread.map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move { known(&inner, &entry).await.map(drop) }
    });
    let read = in_parallel(reads.collect()).await.map_err(|Stopped| stopped("GetItem"))?;
    read.into_iter().collect::<Result<(), _>>()?;
    let mut wants = Vec::with_capacity(asks.len());
    for (ask, entry) in asks.iter().zip(entries) {
        let entry = of_share(inner, entry).await?;
        let limit = *known(inner, &entry).await?.bucket.limit();
        wants.push(want(inner, entry, &limit, ask.cost_in(&limit)?)?);
    }
    Ok(wants)
}

/// As [`wants`], for a caller on `terms`: one that waits reads again, until its deadline.
pub(crate) async fn wants_waiting(
    inner: &Arc<Inner>,
    asks: &[Ask],
    terms: Terms,
) -> Result<Vec<Want>, Setback> {
    let first = &asks[0].dimension;
    let Some(until) = terms.stays_until() else {
        return wants(inner, asks).await.map_err(|error| Setback::of(error, first));
    };
    let (mut poll, mut why) = (Poll::default(), Setback::overtaken(first));
    loop {
        let returns = inner.store.returns();
        let Ok(read) = timeout_at(until, wants(inner, asks)).await else { return Err(why) };
        let error = match read {
            Ok(wants) => return Ok(wants),
            Err(error) => error,
        };
        why = Setback::of(error, first).following(Some(&why));
        if !why.is_waited_out(terms.queue_patience(inner.config.on_unavailable)) {
            return Err(why);
        }
        let context = WaitContext { until: Some(until), ..WaitContext::default() };
        pause_until_return(&inner.store, poll.next(&why, context).min(terms.patience()), returns).await;
    }
}

pub(super) fn want(
    inner: &Inner,
    entry: Arc<Entry>,
    limit: &Limit,
    cost: Cost,
) -> Result<Want, AcquireError> {
    let concurrent = limit.is_concurrent();
    if concurrent && inner.config.leases == Leases::Inline && !limit.fits_inline() {
        let (dimension, leases) = (entry.dimension.clone(), limit.calls_at_once());
        return Err(AcquireError::TooLargeForInline { dimension, leases, most: MOST_INLINE_LEASES });
    }
    Ok(Want { entry, cost, concurrent, borrows: None })
}
