//! One attempt to take what a caller asks for: each bucket's part through the lane of the bucket, or all parts through one
//! lane where they change in one transaction.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, Cost, Dimension, Limit, MOST_INLINE_LEASES, Refusal, RowError};
use tokio::time::{Instant, timeout};

use crate::acquire::AcquireError;
use crate::cache::{Entry, Reading};
use crate::client::Inner;
use crate::config::Leases;
use crate::grant::Grant;
use crate::metrics;
use crate::outcome::{Outcome, RetryIn};
use crate::request::Ask;
use crate::retry::Backoff;
use crate::store::{Attributes, Item, StoreError};

mod apart;
mod fresh;
pub(crate) mod inline;
mod parallel;
pub(crate) mod rows;
pub(crate) mod tokens;

pub(crate) use fresh::Fresh;
pub(crate) use parallel::{Stopped, finished, in_parallel, stopped};

/// What a caller accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Until when its start may be, or a slot may be waited for; `None` for now or not at all.
    pub(crate) until: Option<Instant>,
    /// How long its leases last.
    pub(crate) lease: LeaseTerm,
}

/// How long a lease lasts, told when it is written: its caller may have stood in line before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTerm {
    pub(crate) at_least: Duration,
    /// It lasts until then besides.
    pub(crate) until: Option<Instant>,
}

impl Terms {
    /// Now or not at all.
    pub(crate) const fn at_once(lease: Duration) -> Self {
        Self { until: None, lease: LeaseTerm { at_least: lease, until: None } }
    }

    /// How far ahead it books, from now.
    pub(crate) fn patience(self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether it would rather wait for `retry` than hear of it.
    pub(crate) fn waits_for(self, retry: &RetryIn) -> bool {
        let patience = self.patience();
        let is_over = retry.reason.is_over_in_time() && retry.wait > patience;
        !patience.is_zero() && !is_over
    }
}

impl LeaseTerm {
    /// From now.
    pub(crate) fn length(self) -> Duration {
        let until = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        until.unwrap_or_default().max(self.at_least)
    }
}

/// One dimension of an attempt, with what is known of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) entry: Arc<Entry>,
    pub(crate) cost: Cost,
    pub(crate) concurrent: bool,
}

/// What came of one attempt on one or all of its dimensions.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Granted(T),
    Refused(RetryIn),
}

/// The answer to a turn that takes.
pub(crate) type Answer = Result<Taken<Fresh>, AcquireError>;

/// Plans made at once after a false condition, before the next ones wait: each has the row as it was a moment ago, and each
/// failure means that another writer got on.
pub(crate) const PLANS_AT_ONCE: u32 = 8;

/// An answer to come. On the heap, and without its type: the types of all that it runs through are more than the compiler takes
/// in a caller's own future, and more memory than a grant from stock should move.
pub(crate) type Submitted<'a> = Pin<Box<dyn Future<Output = Result<Outcome, AcquireError>> + Send + 'a>>;

/// As [`submit`], for one dimension whose bucket is known, as nearly all requests are: no list, no name to parse.
pub(crate) fn submit_one(inner: &Arc<Inner>, entry: Arc<Entry>, cost: Option<Cost>, terms: Terms) -> Submitted<'_> {
    Box::pin(async move {
        let dimension = entry.dimension.clone();
        let answer = take_one(inner, entry, cost, terms).await;
        told(inner, || vec![Ask { dimension, cost, times: 1 }], terms, answer)
    })
}

async fn take_one(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    cost: Option<Cost>,
    terms: Terms,
) -> Result<Outcome, AcquireError> {
    let limit = match entry.limit() {
        Some(limit) => limit,
        None => *known(inner, &entry).await?.bucket.limit(),
    };
    let want = want(inner, entry, &limit, cost.unwrap_or_else(|| limit.cost_per_call()))?;
    take_wants(inner, &[want], terms).await
}

/// Takes what is asked for, or says why not.
pub(crate) fn submit<'a>(inner: &'a Arc<Inner>, asks: &'a [Ask], terms: Terms) -> Submitted<'a> {
    Box::pin(async move {
        let answer = match wants(inner, asks).await {
            Ok(wants) => take_wants(inner, &wants, terms).await,
            Err(error) => Err(error),
        };
        told(inner, || asks.to_vec(), terms, answer)
    })
}

/// As [`submit`], for a caller that would carry its start: books as far ahead as `terms` say, where that takes no lease. A start
/// that is granted locally cannot be carried.
pub(crate) fn book<'a>(inner: &'a Arc<Inner>, asks: &'a [Ask], terms: Terms) -> Submitted<'a> {
    Box::pin(async move {
        let at_once = Terms { until: None, ..terms };
        let answer = match wants(inner, asks).await {
            Ok(wants) => {
                let takes_lease = inner.config.leases == Leases::All || wants.iter().any(|want| want.concurrent);
                take_wants(inner, &wants, if takes_lease { at_once } else { terms }).await
            }
            Err(error) => Err(error),
        };
        told(inner, || asks.to_vec(), at_once, answer)
    })
}

/// What the caller hears: an outage may be answered locally.
fn told(
    inner: &Arc<Inner>,
    asks: impl FnOnce() -> Vec<Ask>,
    terms: Terms,
    answer: Result<Outcome, AcquireError>,
) -> Result<Outcome, AcquireError> {
    let answer = match answer {
        Err(AcquireError::Store(error)) if error.is_unavailable() => {
            match inner.fallback.take(inner, &asks(), terms.patience()) {
                Some(outcome) => {
                    metrics::unavailable("local");
                    tracing::warn!(event = "acquire.unavailable", table = inner.store.table(), %error, answered = "locally");
                    Ok(outcome)
                }
                None => {
                    metrics::unavailable("error");
                    Err(AcquireError::Store(error))
                }
            }
        }
        Err(AcquireError::Store(StoreError::Contended { .. })) => Ok(Outcome::RetryIn(
            asks().first().map_or_else(|| unreachable!("no request is empty"), |ask| contended(&ask.dimension)),
        )),
        other => other,
    };
    match &answer {
        Ok(Outcome::Granted(grant)) => tracing::debug!(
            event = "acquire.granted",
            dimensions = %grant.names(),
            booked_ms = grant.booked_wait().as_millis(),
        ),
        Ok(Outcome::RetryIn(retry)) => tracing::debug!(
            event = "acquire.retry_in",
            dimension = %retry.dimension,
            reason = retry.reason.as_str(),
            wait_ms = retry.wait.as_millis(),
        ),
        Err(_) => {}
    }
    answer
}

async fn take_wants(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> Result<Outcome, AcquireError> {
    let in_one = match inner.config.leases {
        Leases::All => true,
        Leases::Inline => false,
        _ => wants.iter().any(|want| want.concurrent),
    };
    let taken = if in_one { rows::take(inner, wants, terms).await? } else { apart::take(inner, wants, terms).await? };
    Ok(match taken {
        Taken::Granted(fresh) => Outcome::Granted(Grant::new(Arc::clone(inner), fresh, terms.lease.length())),
        Taken::Refused(retry) => Outcome::RetryIn(retry),
    })
}

/// Looks up the bucket of every dimension, reading those never seen before.
pub(crate) async fn wants(inner: &Arc<Inner>, asks: &[Ask]) -> Result<Vec<Want>, AcquireError> {
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

fn want(inner: &Inner, entry: Arc<Entry>, limit: &Limit, cost: Cost) -> Result<Want, AcquireError> {
    let concurrent = limit.is_concurrent();
    if concurrent && inner.config.leases == Leases::Inline && !limit.fits_inline() {
        let (dimension, leases) = (entry.dimension.clone(), limit.calls_at_once());
        return Err(AcquireError::TooLargeForInline { dimension, leases, most: MOST_INLINE_LEASES });
    }
    Ok(Want { entry, cost, concurrent })
}

/// The bucket as last seen, or read now; many callers that meet a bucket for the first time read it once.
pub(crate) async fn known(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    if let Some(reading) = entry.reading() {
        return Ok(reading);
    }
    is_not_missing(inner, entry)?;
    // Whoever reads first reads for all; a read that hangs holds nobody up for longer than one attempt.
    let _loading = timeout(inner.store.attempt().of_rows(), entry.loading.lock()).await;
    match entry.reading() {
        Some(reading) => Ok(reading),
        None => {
            is_not_missing(inner, entry)?;
            refresh(inner, entry).await
        }
    }
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
    if let Some(reading) = young() {
        return Ok(reading);
    }
    is_not_missing(inner, entry)?;
    let _loading = timeout(inner.store.attempt().of_rows(), entry.loading.lock()).await;
    match young() {
        Some(reading) => Ok(reading),
        None => refresh(inner, entry).await,
    }
}

/// Reads the bucket, whatever is known of it.
pub(crate) async fn refresh(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    let row = inner.store.read(entry.dimension.as_str()).await?;
    let row = row.ok_or_else(|| unknown(inner, entry))?;
    saw(inner, entry, &row)?;
    entry.reading().ok_or_else(|| unknown(inner, entry))
}

/// Takes in the row that a reply showed.
pub(crate) fn saw(inner: &Inner, entry: &Entry, row: &Item) -> Result<Arc<Bucket>, AcquireError> {
    let bucket = Arc::new(parse(&entry.dimension, row)?);
    entry.saw(Arc::clone(&bucket), inner.now());
    Ok(bucket)
}

pub(crate) fn parse(dimension: &Dimension, row: &Item) -> Result<Bucket, AcquireError> {
    let corrupt = |source: RowError| AcquireError::CorruptRow { dimension: dimension.clone(), source };
    Bucket::read(dimension, &Attributes(row)).map_err(corrupt)
}

/// The bucket's row is gone.
pub(crate) fn unknown(inner: &Inner, entry: &Entry) -> AcquireError {
    entry.unknown(inner.now());
    unknown_dimension(inner, entry)
}

fn unknown_dimension(inner: &Inner, entry: &Entry) -> AcquireError {
    AcquireError::UnknownDimension { dimension: entry.dimension.clone(), table: inner.store.table().to_owned() }
}

pub(crate) fn refused(dimension: &Dimension, refusal: Refusal) -> RetryIn {
    RetryIn::new(refusal.wait, dimension.clone(), refusal.reason.into())
}

pub(crate) fn contended(dimension: &Dimension) -> RetryIn {
    let reason = crate::outcome::RetryReason::Contended;
    RetryIn::new(Backoff::DEFAULT.cap(), dimension.clone(), reason)
}

/// The refusal that is told for several: the longest wait, and who causes it.
pub(crate) fn longest(refusals: impl IntoIterator<Item = RetryIn>) -> Option<RetryIn> {
    refusals.into_iter().max_by_key(|retry| retry.wait)
}

/// Waits before planning again for the `tries`th time, once the plans at once are used up. False where it is time to give up.
pub(crate) async fn try_again(inner: &Inner, tries: u32, dimension: &Dimension) -> bool {
    if tries >= PLANS_AT_ONCE + inner.store.max_retries() {
        return false;
    }
    tracing::debug!(event = "acquire.contention_retry", %dimension, tries);
    if tries >= PLANS_AT_ONCE {
        inner.store.back_off(tries - PLANS_AT_ONCE).await;
    }
    true
}
