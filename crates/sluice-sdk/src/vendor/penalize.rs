//! Penalize: the vendor replied 429 although the call was granted, so the bucket's level is lowered.

use std::time::Duration;

use sluice_core::{Amount, Dimension, Factor, FactorError, RatePlanner};
use sluice_table::{Resend, StoreError, Written};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, refresh, unknown};

/// The result of a penalty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Penalty {
    /// The level after the penalty.
    Applied(Amount),
    /// The bucket was empty or booked ahead, so there was nothing to take. Contains the level.
    NothingToTake(Amount),
}

/// Why a penalty could not be applied.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PenalizeError {
    /// The factor is not valid.
    #[error("factor {factor} cannot be used: {source}; 0.8 takes away 20 % of the level")]
    Factor {
        /// The factor as given.
        factor: String,
        /// What is wrong with it.
        source: FactorError,
    },
    /// A concurrency bucket. Only a release brings slots back: a penalty would lose them forever.
    #[error(
        "{0} is a concurrency limit, and a penalty would destroy its slots for ever: lower its capacity with \
         `sluice buckets apply`, or requeue the work"
    )]
    Concurrency(Dimension),
    /// An error of the dimension, of its row, or of the table.
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

impl Client {
    /// Lowers a rate bucket to `factor` of its present level: 0.8 after a first 429, 0.5 if they repeat, 0.3
    /// for a long `Retry-After`. Refill restores the level within `capacity / refill_rate` seconds.
    ///
    /// Takes at most the time of three requests (4.2 s each).
    ///
    /// # Errors
    /// [`PenalizeError`]: a factor outside 0 to 1, a concurrency bucket, an unknown dimension, or a table
    /// that does not answer.
    pub async fn penalize(&self, dimension: &str, factor: f64) -> Result<Penalty, PenalizeError> {
        let text = factor.to_string();
        let factor: Factor = text.parse().map_err(|source| PenalizeError::Factor { factor: text, source })?;
        let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
        let penalty = penalize(&self.inner, &self.inner.entry(&dimension), factor, None).await?;
        if let Penalty::Applied(level) = penalty {
            tracing::info!(event = "penalize.applied", %dimension, %level);
        }
        Ok(penalty)
    }
}

/// Takes at most what refills in `longest`; `None` is without this bound.
pub(crate) async fn penalize(
    inner: &Inner,
    entry: &Entry,
    factor: Factor,
    longest: Option<Duration>,
) -> Result<Penalty, PenalizeError> {
    let dimension = &entry.dimension;
    let mut bucket = refresh(inner, entry).await?.bucket;
    let mut tries = inner.store.tries();
    while tries.another() {
        if bucket.limit().is_concurrent() {
            return Err(PenalizeError::Concurrency(dimension.clone()));
        }
        let now = inner.time().await?;
        let Some(update) = RatePlanner::new(&bucket).penalize(factor, longest, now) else {
            return Ok(Penalty::NothingToTake(bucket.whole_level(now)));
        };
        // Not idempotent: never sent again after an ambiguous reply.
        match inner.store.update(&update, Resend::UnlessAmbiguous).await? {
            Written::Applied(row) => {
                let after = apply_read(inner, entry, &row)?;
                inner.clear_stock(dimension);
                return Ok(Penalty::Applied(after.whole_level(inner.now())));
            }
            // Plan again at once, from the row as it was a moment ago: a pause would only make the row older.
            Written::ConditionFailed(Some(row)) => bucket = apply_read(inner, entry, &row)?,
            Written::ConditionFailed(None) => return Err(unknown(inner, entry).into()),
        }
    }
    Err(PenalizeError::Contended(dimension.clone()))
}
