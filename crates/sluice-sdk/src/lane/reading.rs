//! Reads a bucket, and stores what replies show of it.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, RowError};
use sluice_table::{Attributes, Item, StoreError};
use tokio::time::{Instant, timeout};

use crate::api::error::AcquireError;
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::{Stopped, in_parallel, stopped};

/// Returns the bucket as last seen, or reads it now: one read for callers that meet it at once.
pub(crate) async fn known(inner: &Inner, entry: &Entry) -> Result<BucketReading, AcquireError> {
    match entry.reading() {
        Some(reading) => Ok(reading),
        None => read_once(inner, entry, || entry.reading()).await,
    }
}

/// The entry that callers of a share take from, of the entry that they found by its name: the row of a share
/// of slots may not be known before the first reading.
pub(crate) async fn of_share(inner: &Inner, entry: Arc<Entry>) -> Result<Arc<Entry>, AcquireError> {
    let Some(share) = &entry.share else { return Ok(entry) };
    let bucket = known(inner, &entry).await?.bucket;
    if bucket.share().is_some() {
        return Ok(entry);
    }
    if bucket.limit().is_concurrent() {
        known(inner, &inner.entry_of(&entry.dimension, None)).await?;
    }
    Ok(inner.entry_of(&entry.dimension, Some(share)))
}

/// Reads the row once for all callers that come during the read. They share the reading or the failure, so
/// that they do not each wait for a table that does not answer. Takes at most an attempt and a request.
async fn read_once(
    inner: &Inner,
    entry: &Entry,
    known: impl Fn() -> Option<BucketReading>,
) -> Result<BucketReading, AcquireError> {
    check_not_missing(inner, entry)?;
    let came = Instant::now();
    let request = inner.store.longest_request();
    let read = async {
        // A reader that is no longer polled holds nobody up for longer than a request.
        let mut loading = timeout(request, entry.loading.lock()).await.ok();
        if let Some(reading) = known() {
            return Ok(reading);
        }
        check_not_missing(inner, entry)?;
        if let Some(failure) = loading.as_deref().and_then(|loading| loading.failure_since(came)) {
            return Err(failure);
        }
        let asked = Instant::now();
        let read = refresh(inner, entry).await;
        // If the bucket was created meanwhile, the failure is not shared: later callers ask again.
        if let (Some(loading), Err(error), false) = (&mut loading, &read, entry.was_made_since(asked)) {
            loading.failed(error);
        }
        read
    };
    timeout(inner.store.attempt().of_rows() + request, read).await.unwrap_or_else(|_| Err(not_read(entry)))
}

fn not_read(entry: &Entry) -> AcquireError {
    let message = format!(
        "the row of {} was not read in time: the callers that began to read it left",
        entry.dimension
    );
    StoreError::Unavailable { operation: "GetItem", message, maybe_applied: false }.into()
}

/// Fails if a read showed a moment ago that the table does not have the bucket. The answer comes from memory:
/// a caller that asks for such a bucket all the time costs one read a second.
pub(crate) fn check_not_missing(inner: &Inner, entry: &Entry) -> Result<(), AcquireError> {
    match entry.is_known_missing(inner.now()) {
        true => Err(unknown_dimension(inner, entry)),
        false => Ok(()),
    }
}

/// Returns the bucket as a reply within the last `span` showed it, or reads it now. Callers that come at once
/// share one read.
pub(crate) async fn known_since(
    inner: &Inner,
    entry: &Entry,
    span: Duration,
) -> Result<BucketReading, AcquireError> {
    let young = || entry.reading().filter(|reading| reading.is_younger_than(span, inner.now()));
    match young() {
        Some(reading) => Ok(reading),
        None => read_once(inner, entry, young).await,
    }
}

/// Reads the bucket, even if it is known.
pub(crate) async fn refresh(inner: &Inner, entry: &Entry) -> Result<BucketReading, AcquireError> {
    let clock = inner.store.clock();
    let (asked, asked_at, steady) = (Instant::now(), clock.known(), clock.steady_micros());
    let Some(row) = inner.store.read(entry.dimension.as_str()).await? else {
        // If this reply corrected the clock, the clock does not say when the request was sent.
        let way = u64::try_from(clock.steady_micros().saturating_sub(steady)).unwrap_or(0);
        let asked_at = asked_at.unwrap_or_else(|| inner.now().before(Duration::from_micros(way)));
        entry.note_missing(asked, asked_at);
        return entry.reading().ok_or_else(|| unknown_dimension(inner, entry));
    };
    apply_read(inner, entry, &row)?;
    entry.reading().ok_or_else(|| unknown(inner, entry))
}

pub(super) async fn refresh_all(inner: &Arc<Inner>, entries: &[Arc<Entry>]) -> Result<(), AcquireError> {
    let reads = entries.iter().map(|entry| {
        let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
        async move { refresh(&inner, &entry).await.map(drop) }
    });
    in_parallel(reads.collect()).await.map_err(|Stopped| stopped("GetItem"))?.into_iter().collect()
}

pub(crate) fn apply_read(inner: &Inner, entry: &Entry, row: &Item) -> Result<Arc<Bucket>, AcquireError> {
    let bucket = Arc::new(parse(entry, row)?);
    entry.apply_read(Arc::clone(&bucket), inner.now());
    if entry.share.is_some() && bucket.share().is_none() {
        // The bucket lacks the share: callers find its common line from now on.
        inner.entry_of(&entry.dimension, None).apply_read(Arc::clone(&bucket), inner.now());
    }
    Ok(bucket)
}

/// The bucket of a row, as the share of `entry` sees it.
pub(crate) fn parse(entry: &Entry, row: &Item) -> Result<Bucket, AcquireError> {
    let corrupt = |source: RowError| AcquireError::CorruptRow { dimension: entry.dimension.clone(), source };
    let bucket = Bucket::read(&entry.dimension, &Attributes(row)).map_err(corrupt)?;
    Ok(bucket.seen_from(entry.share.as_ref()))
}

/// Notes that a reply shows no row of the bucket, and returns the error. The next caller reads the bucket: it
/// is not known here how long the request was under way, and the bucket may have been created since.
pub(crate) fn unknown(inner: &Inner, entry: &Entry) -> AcquireError {
    entry.forget_removed();
    unknown_dimension(inner, entry)
}

fn unknown_dimension(inner: &Inner, entry: &Entry) -> AcquireError {
    AcquireError::UnknownDimension {
        dimension: entry.dimension.clone(),
        table: inner.store.table().to_owned(),
    }
}
