//! One attempt to take what a caller asks for: plan, write on condition, and on a conflict plan again.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, Cost, Dimension, Reason, Refusal, RowError};
use tokio::time::timeout;

use crate::acquire::AcquireError;
use crate::cache::{Entry, Reading};
use crate::client::Inner;
use crate::config::Leases;
use crate::grant::{Grant, Part};
use crate::outcome::{Outcome, RetryIn, RetryReason};
use crate::request::Ask;
use crate::retry::Backoff;
use crate::store::{ATTEMPT_TIMEOUT, Attributes, Item, StoreError};

mod parallel;
mod transaction;

/// What a caller accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How far ahead it books.
    pub(crate) patience: Duration,
    /// How long its leases last.
    pub(crate) lease_for: Duration,
}

/// One dimension of an attempt, with what is known of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) entry: Arc<Entry>,
    pub(crate) cost: Cost,
    pub(crate) concurrent: bool,
}

/// What came of one attempt on one or all of its dimensions.
pub(crate) enum Taken<T> {
    Granted(T),
    Refused(RetryIn),
}

/// Plans made at once after a false condition, before the next ones wait: each has the row as it was a moment ago, and each
/// failure means that another writer got on.
const PLANS_AT_ONCE: u32 = 8;

pub(crate) async fn attempt(inner: Arc<Inner>, asks: Vec<Ask>, terms: Terms) -> Result<Outcome, AcquireError> {
    let answer = match take(&inner, &asks, terms).await {
        Err(AcquireError::Store(error)) if error.is_unavailable() => {
            match inner.fallback.take(&inner, &asks, terms.patience) {
                Some(outcome) => {
                    tracing::warn!(event = "acquire.unavailable", table = inner.store.table(), %error, answered = "locally");
                    Ok(outcome)
                }
                None => Err(AcquireError::Store(error)),
            }
        }
        Err(AcquireError::Store(StoreError::Contended { .. })) => Ok(Outcome::RetryIn(contended(&asks[0].dimension))),
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

async fn take(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> Result<Outcome, AcquireError> {
    let wants = wants(inner, asks).await?;
    let granted_at = inner.now();
    let one_transaction = inner.config.leases == Leases::All || wants.iter().any(|want| want.concurrent);
    let taken = if one_transaction {
        transaction::take(inner, &wants, terms).await?
    } else {
        parallel::take(inner, wants, terms).await?
    };
    Ok(match taken {
        Taken::Granted(parts) => Outcome::Granted(Grant::new(Arc::clone(inner), parts, granted_at, terms.lease_for)),
        Taken::Refused(retry) => Outcome::RetryIn(retry),
    })
}

/// Looks up the bucket of every dimension, reading those never seen before.
pub(crate) async fn wants(inner: &Arc<Inner>, asks: &[Ask]) -> Result<Vec<Want>, AcquireError> {
    let reads = asks.iter().map(|ask| {
        let (inner, entry) = (Arc::clone(inner), inner.entry(&ask.dimension));
        async move { known(&inner, &entry).await }
    });
    let readings = in_parallel(reads.collect()).await;
    asks.iter()
        .zip(readings)
        .map(|(ask, reading)| {
            let limit = *reading?.bucket.limit();
            let cost = ask.cost_or(limit.cost_per_call());
            Ok(Want { entry: inner.entry(&ask.dimension), cost, concurrent: limit.is_concurrent() })
        })
        .collect()
}

/// The bucket as last seen, or read now; many callers that meet a bucket for the first time read it once.
pub(crate) async fn known(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    if let Some(reading) = entry.reading() {
        return Ok(reading);
    }
    // Whoever reads first reads for all; a read that hangs holds nobody up for longer than one attempt.
    let _loading = timeout(ATTEMPT_TIMEOUT, entry.loading.lock()).await;
    match entry.reading() {
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
pub(crate) fn saw(inner: &Inner, entry: &Entry, row: &Item) -> Result<Bucket, AcquireError> {
    let bucket = parse(&entry.dimension, row)?;
    entry.saw(bucket.clone(), inner.now());
    Ok(bucket)
}

pub(crate) fn parse(dimension: &Dimension, row: &Item) -> Result<Bucket, AcquireError> {
    let corrupt = |source: RowError| AcquireError::CorruptRow { dimension: dimension.clone(), source };
    Bucket::read(dimension, &Attributes(row)).map_err(corrupt)
}

/// The bucket's row is gone.
fn unknown(inner: &Inner, entry: &Entry) -> AcquireError {
    entry.forget();
    AcquireError::UnknownDimension { dimension: entry.dimension.clone(), table: inner.store.table().to_owned() }
}

pub(crate) fn refused(dimension: &Dimension, refusal: Refusal) -> RetryIn {
    let reason = match refusal.reason {
        Reason::NoFreeSlot => RetryReason::NoFreeSlot,
        Reason::CoolingDown => RetryReason::CoolingDown,
        _ => RetryReason::Exhausted,
    };
    RetryIn { wait: refusal.wait, dimension: dimension.clone(), reason }
}

pub(crate) fn contended(dimension: &Dimension) -> RetryIn {
    RetryIn { wait: Backoff::DEFAULT.cap(), dimension: dimension.clone(), reason: RetryReason::Contended }
}

/// The refusal that is told for several: the longest wait, and who causes it.
fn longest(refusals: impl IntoIterator<Item = RetryIn>) -> Option<RetryIn> {
    refusals.into_iter().max_by_key(|retry| retry.wait)
}

/// Waits before planning again for the `tries`th time, once the plans at once are used up. False where it is time to give up.
async fn try_again(inner: &Inner, tries: u32, dimension: &Dimension) -> bool {
    if tries >= PLANS_AT_ONCE + inner.store.max_retries() {
        return false;
    }
    tracing::debug!(event = "acquire.contention_retry", %dimension, tries);
    if tries >= PLANS_AT_ONCE {
        inner.store.back_off(tries - PLANS_AT_ONCE).await;
    }
    true
}

/// Runs futures side by side and returns their results in order. One alone runs where it is.
pub(crate) async fn in_parallel<T: Send + 'static>(
    mut futures: Vec<impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    if futures.len() == 1
        && let Some(only) = futures.pop()
    {
        return vec![only.await];
    }
    let mut results = Vec::with_capacity(futures.len());
    for task in futures.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        match task.await {
            Ok(result) => results.push(result),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down and polls nothing any more, this future included.
            Err(_) => std::future::pending().await,
        }
    }
    results
}

/// What a grant is made of.
pub(crate) type Parts = Vec<Part>;
