//! Penalize: the vendor said 429 although a slot was granted, so the bucket is believed less.

use sluice_core::{Amount, Dimension, Factor, FactorError, RatePlanner};
use sluice_table::{IfAmbiguous, StoreError, Written};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, refresh, unknown};

/// What a penalty left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Penalty {
    /// The level that is left.
    Applied(Amount),
    /// The bucket was empty, or booked ahead: there was nothing to take.
    NothingToTake(Amount),
}

/// Why a penalty could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PenalizeError {
    /// Not a factor.
    #[error("factor {factor} cannot be used: {source}; 0.8 takes 20 % of the level away")]
    Factor {
        /// As given.
        factor: String,
        /// What is wrong with it.
        source: FactorError,
    },
    /// Slots come back by release alone: taking free ones away would lose them for ever.
    #[error(
        "{0} is a concurrency limit, and a penalty would destroy its slots for ever: lower its capacity with \
         `sluice buckets apply`, or requeue the work"
    )]
    Concurrency(Dimension),
    /// The dimension, its row, or the table.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// Other writers were faster in every try.
    #[error("the penalty on {0} met a conflict in every try; nothing was applied")]
    Contended(Dimension),
}

impl From<RequestError> for PenalizeError {
    fn from(error: RequestError) -> Self {
        Self::Acquire(error.into())
    }
}

impl From<StoreError> for PenalizeError {
    fn from(error: StoreError) -> Self {
        Self::Acquire(error.into())
    }
}

/// Tries of a penalty on a bucket that others keep moving: each failure means that one of them got on.
const TRIES: u32 = 20;

impl Client {
    /// Leaves `factor` of the present level of a rate bucket: 0.8 after a first 429, 0.5 where they repeat, 0.3 for a long
    /// `Retry-After`. Refill heals it within `capacity / refill_rate` seconds.
    ///
    /// Takes at most three times the time of a request (4.2 s).
    ///
    /// # Errors
    /// [`PenalizeError`]: a factor outside 0 to 1, a concurrency bucket, an unknown dimension, a table that does not answer.
    pub async fn penalize(&self, dimension: &str, factor: f64) -> Result<Penalty, PenalizeError> {
        let text = factor.to_string();
        let factor: Factor = text.parse().map_err(|source| PenalizeError::Factor { factor: text, source })?;
        let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
        penalize(&self.inner, &self.inner.entry(&dimension), factor).await
    }
}

pub(crate) async fn penalize(inner: &Inner, entry: &Entry, factor: Factor) -> Result<Penalty, PenalizeError> {
    let dimension = &entry.dimension;
    let mut bucket = refresh(inner, entry).await?.bucket;
    let mut tries = inner.store.tries(TRIES);
    while tries.another() {
        if bucket.limit().is_concurrent() {
            return Err(PenalizeError::Concurrency(dimension.clone()));
        }
        let now = inner.time().await?;
        let Some(update) = RatePlanner::new(&bucket).penalize(factor, now) else {
            return Ok(Penalty::NothingToTake(bucket.level(now)));
        };
        // Twice would take more than asked: after a lost reply it is left at that.
        match inner.store.update(&update, IfAmbiguous::Stop).await? {
            Written::Applied(row) => {
                let after = apply_read(inner, entry, &row)?;
                entry.stock.iter().for_each(|stock| stock.clear());
                let level = after.level(inner.now());
                tracing::info!(event = "penalize.applied", %dimension, %level);
                return Ok(Penalty::Applied(level));
            }
            // At once, from the row as it was a moment ago: a pause would only make it old.
            Written::ConditionFailed(Some(row)) => bucket = apply_read(inner, entry, &row)?,
            Written::ConditionFailed(None) => return Err(unknown(inner, entry).into()),
        }
    }
    Err(PenalizeError::Contended(dimension.clone()))
}
