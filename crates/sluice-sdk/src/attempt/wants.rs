//! What an attempt is about: the buckets of its dimensions, read where they are not known.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Cost, Limit, MOST_INLINE_LEASES};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Stopped, Terms, Want, in_parallel, saw, stopped, unknown, unknown_dimension};
use crate::acquire::AcquireError;
use crate::cache::{Entry, Reading};
use crate::client::Inner;
use crate::config::Leases;
use crate::poll::{Company, Poll};
use crate::request::Ask;
use crate::waiting::Setback;
use sluice_table::StoreError;

/// Looks up the bucket of every dimension, reading those never seen before.
pub(super) async fn wants(inner: &Arc<Inner>, asks: &[Ask]) -> Result<Vec<Want>, AcquireError> {
    let entries: Vec<_> = asks.iter().map(|ask| inner.entry(&ask.dimension)).collect();
    let unread = entries.iter().filter(|entry| entry.reading().is_none());
    let reads = unread.map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move { known(&inner, &entry).await.map(drop) }
    });
    let read = in_parallel(reads.collect()).await.map_err(|Stopped| stopped("GetItem"))?;
    read.into_iter().collect::<Result<(), _>>()?;
    let mut wants = Vec::with_capacity(asks.len());
    for (ask, entry) in asks.iter().zip(entries) {
        let limit = *known(inner, &entry).await?.bucket.limit();
        wants.push(want(inner, entry, &limit, ask.cost_or(limit.cost_per_call()))?);
    }
    Ok(wants)
}

/// As [`wants`], for a caller on `terms`: what delays a line delays its readings too, and it hears of it at its deadline.
pub(crate) async fn wants_in_line(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> Result<Vec<Want>, Setback> {
    let first = &asks[0].dimension;
    let Some(until) = terms.stays_until() else {
        return wants(inner, asks).await.map_err(|error| Setback::of(error, first));
    };
    let (mut poll, mut why) = (Poll::default(), Setback::overtaken(first));
    loop {
        let Ok(read) = timeout_at(until, wants(inner, asks)).await else { return Err(why) };
        let error = match read {
            Ok(wants) => return Ok(wants),
            Err(error) => error,
        };
        why = Setback::of(error, first).following(Some(&why));
        if !why.is_waited_out(terms.in_line(inner)) {
            return Err(why);
        }
        let company = Company { until: Some(until), ..Company::default() };
        sleep(poll.next(&why, company).min(terms.patience())).await;
    }
}

pub(super) fn want(inner: &Inner, entry: Arc<Entry>, limit: &Limit, cost: Cost) -> Result<Want, AcquireError> {
    let concurrent = limit.is_concurrent();
    if concurrent && inner.config.leases == Leases::Inline && !limit.fits_inline() {
        let (dimension, leases) = (entry.dimension.clone(), limit.calls_at_once());
        return Err(AcquireError::TooLargeForInline { dimension, leases, most: MOST_INLINE_LEASES });
    }
    Ok(Want { entry, cost, concurrent })
}

/// The bucket as last seen, or read now; many callers that meet a bucket for the first time read it once.
pub(crate) async fn known(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    match entry.reading() {
        Some(reading) => Ok(reading),
        None => read_once(inner, entry, || entry.reading()).await,
    }
}

/// Whoever reads first reads for all who come meanwhile: they share its reading, and its failure. Otherwise each of them would
/// find out for itself, one after the other, that the table does not answer. Takes an attempt and a request at most; longer than a
/// request only after readers who left.
async fn read_once(inner: &Inner, entry: &Entry, known: impl Fn() -> Option<Reading>) -> Result<Reading, AcquireError> {
    is_not_missing(inner, entry)?;
    let came = Instant::now();
    let request = inner.store.longest_request();
    let read = async {
        // A reader that nobody drives any more holds nobody up for longer than a request.
        let mut loading = timeout(request, entry.loading.lock()).await.ok();
        if let Some(reading) = known() {
            return Ok(reading);
        }
        is_not_missing(inner, entry)?;
        if let Some(failure) = loading.as_deref().and_then(|loading| loading.failure_since(came)) {
            return Err(failure);
        }
        let asked = Instant::now();
        let read = refresh(inner, entry).await;
        // Whoever came after the bucket was made asks again.
        if let (Some(loading), Err(error), false) = (&mut loading, &read, entry.was_made_since(asked)) {
            loading.failed(error);
        }
        read
    };
    timeout(inner.store.attempt().of_rows() + request, read).await.unwrap_or_else(|_| Err(not_read(entry)))
}

fn not_read(entry: &Entry) -> AcquireError {
    let message = format!("the row of {} was asked for by callers who left, and not read in time", entry.dimension);
    StoreError::Unavailable { operation: "GetItem", message, maybe_applied: false }.into()
}

/// A bucket that the table was seen not to have a moment ago is answered from memory: a caller that asks for it all the time
/// costs a read a second.
pub(crate) fn is_not_missing(inner: &Inner, entry: &Entry) -> Result<(), AcquireError> {
    match entry.is_unknown(inner.now()) {
        true => Err(unknown_dimension(inner, entry)),
        false => Ok(()),
    }
}

/// The bucket as a reply of the last `span` showed it, or read now; many callers at once read it once.
pub(crate) async fn known_since(inner: &Inner, entry: &Entry, span: Duration) -> Result<Reading, AcquireError> {
    let young = || entry.reading().filter(|reading| reading.is_younger_than(span, inner.now()));
    match young() {
        Some(reading) => Ok(reading),
        None => read_once(inner, entry, young).await,
    }
}

/// Reads the bucket, whatever is known of it.
pub(crate) async fn refresh(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    let clock = inner.store.clock();
    let (asked, asked_at, steady) = (Instant::now(), clock.known(), clock.steady_micros());
    let Some(row) = inner.store.read(entry.dimension.as_str()).await? else {
        // A clock that this reply corrected does not tell when it was asked.
        let way = u64::try_from(clock.steady_micros().saturating_sub(steady)).unwrap_or(0);
        let asked_at = asked_at.unwrap_or_else(|| inner.now().before(Duration::from_micros(way)));
        entry.missed(asked, asked_at);
        return entry.reading().ok_or_else(|| unknown_dimension(inner, entry));
    };
    saw(inner, entry, &row)?;
    entry.reading().ok_or_else(|| unknown(inner, entry))
}

/// Reads the buckets side by side, whatever is known of them.
pub(super) async fn refresh_all(inner: &Arc<Inner>, entries: &[Arc<Entry>]) -> Result<(), AcquireError> {
    let reads = entries.iter().map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move { refresh(&inner, &entry).await.map(drop) }
    });
    in_parallel(reads.collect()).await.map_err(|Stopped| stopped("GetItem"))?.into_iter().collect()
}
