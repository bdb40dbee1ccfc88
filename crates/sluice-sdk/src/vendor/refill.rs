//! Refill: an operator sets the level of a rate bucket, as after a vendor's reply that lowered it by mistake.

use sluice_core::{Amount, Change, Dimension};
use sluice_table::{Resend, StoreError, Written};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, refresh, unknown};

/// The result of a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refilled {
    /// The level was set.
    Set {
        /// The level before. Below zero if starts are booked ahead.
        from: Amount,
        /// The level after.
        level: Amount,
    },
    /// The bucket was at this level already.
    Already(Amount),
}

/// Why a bucket could not be refilled.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefillError {
    /// The level is above the capacity, or below zero.
    #[error(
        "{dimension} cannot be refilled to {level}: a level is between 0 and the capacity, which is {capacity}"
    )]
    OutOfRange {
        /// The dimension.
        dimension: Dimension,
        /// The level as given.
        level: Amount,
        /// The capacity of the bucket.
        capacity: Amount,
    },
    /// A concurrency bucket. Slots that nobody gave back would be used a second time.
    #[error(
        "{0} is a concurrency limit, and has nothing to refill: slots come back by release, and `sluice reconcile` gives \
         back what crashed callers held"
    )]
    Concurrency(Dimension),
    /// An error of the dimension, of its row, or of the table.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// Other writers were faster in every try.
    #[error("the refill of {0} met a conflict in every try; nothing was applied")]
    Contended(Dimension),
}

impl From<RequestError> for RefillError {
    fn from(error: RequestError) -> Self {
        Self::Acquire(error.into())
    }
}

impl From<StoreError> for RefillError {
    fn from(error: StoreError) -> Self {
        Self::Acquire(error.into())
    }
}

impl Client {
    /// Sets the level of a rate bucket to `level`, or to its capacity. For an operator: calls worth what the
    /// level rises may start **beyond the limit**, in each window that contains the refill. Calls that wait
    /// for a booked start keep it, and new calls may start at once. A cool-down stays
    /// ([`end_cool_down`](Self::end_cool_down) ends it).
    ///
    /// A refill may also lower the level. Tokens that were taken before it are not given back after it. If
    /// the anchor of the bucket lies in the future, it is moved back, as far as this process knows the time.
    ///
    /// Takes at most the time of three requests (4.2 s each).
    ///
    /// # Errors
    /// [`RefillError`]: a level above the capacity or below zero, a concurrency bucket, an unknown dimension,
    /// or a table that does not answer. After an ambiguous reply the write is not sent again, so the bucket
    /// may have been refilled.
    pub async fn refill(&self, dimension: &str, level: Option<Amount>) -> Result<Refilled, RefillError> {
        let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
        let refilled = refill(&self.inner, &self.inner.entry(&dimension), level).await?;
        if let Refilled::Set { from, level } = refilled {
            tracing::warn!(event = "refill.applied", %dimension, %from, %level);
        }
        Ok(refilled)
    }
}

async fn refill(inner: &Inner, entry: &Entry, level: Option<Amount>) -> Result<Refilled, RefillError> {
    let dimension = &entry.dimension;
    let mut bucket = refresh(inner, entry).await?.bucket;
    let mut tries = inner.store.tries();
    while tries.another() {
        if bucket.limit().is_concurrent() {
            return Err(RefillError::Concurrency(dimension.clone()));
        }
        let capacity = bucket.whole_limit().capacity();
        let level = level.unwrap_or(capacity);
        if level < Amount::ZERO || level > capacity {
            return Err(RefillError::OutOfRange { dimension: dimension.clone(), level, capacity });
        }
        let now = inner.time().await?;
        let (lines, from) = (bucket.every_line(), bucket.whole_level(now));
        let repair =
            lines.iter().find_map(|line| inner.planner(line, now).repair(now)).map(|repair| repair.update);
        let is_repair = repair.is_some();
        let refill = || match bucket.has_shares() {
            true => (level != from).then(|| Change::refill_lines(&bucket, level, now)),
            false => inner.planner(&bucket, now).refill(level, now),
        };
        let Some(update) = repair.or_else(refill) else {
            return Ok(Refilled::Already(from));
        };
        // Not idempotent: never sent again after an ambiguous reply.
        match inner.store.update(&update, Resend::UnlessAmbiguous).await? {
            Written::Applied(row) => {
                bucket = apply_read(inner, entry, &row)?;
                if !is_repair {
                    inner.clear_stock(dimension);
                    return Ok(Refilled::Set { from, level: bucket.whole_level(inner.now()) });
                }
            }
            // Plan again at once, from the row as it was a moment ago: a pause would only make the row older.
            Written::ConditionFailed(Some(row)) => bucket = apply_read(inner, entry, &row)?,
            Written::ConditionFailed(None) => return Err(unknown(inner, entry).into()),
        }
    }
    Err(RefillError::Contended(dimension.clone()))
}
