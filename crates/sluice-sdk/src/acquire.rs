//! Acquire: take what a call needs, or say when to come back.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Cost, Dimension, RowError};

use crate::attempt::Terms;
use crate::client::Client;
use crate::lane;
use crate::outcome::Outcome;
use crate::request::{Request, RequestError};
use crate::store::StoreError;

/// Why an acquire could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request makes no sense, whatever the table holds.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The table has no bucket of this name.
    #[error(
        "unknown dimension {dimension}: table {table:?} has no such bucket; declare it with `sluice buckets apply`"
    )]
    UnknownDimension {
        /// The dimension.
        dimension: Dimension,
        /// The table that was asked.
        table: String,
    },
    /// No wait will ever do: the call costs more than the bucket can hold.
    #[error("{dimension} can never grant {cost}: its capacity is {capacity}; lower the cost, or raise the capacity")]
    NeverSatisfiable {
        /// The dimension.
        dimension: Dimension,
        /// What the call takes.
        cost: Cost,
        /// What the bucket holds at most.
        capacity: Amount,
    },
    /// The bucket's row cannot be read.
    #[error(
        "the row of {dimension} cannot be read: {source}; mend the attribute, or remove the bucket with `sluice buckets rm` and apply it again"
    )]
    CorruptRow {
        /// The dimension.
        dimension: Dimension,
        /// The attribute, and what is wrong with it.
        source: RowError,
    },
    /// The table did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Client {
    /// Takes what `request` names from all of its buckets, or from none; never waits for quota.
    ///
    /// One dimension of a rate limit is one conditional write; several are written in parallel, and what was granted is given
    /// back if any refuses. With a concurrency limit among them it is one transaction. A refusal that the process remembers
    /// costs no request.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, a cost that can never be granted, a row that cannot be read, a
    /// table that does not answer. A refusal is no error but [`Outcome::RetryIn`].
    pub async fn acquire(&self, request: impl Into<Request>) -> Result<Outcome, AcquireError> {
        let asks = request.into().parse()?;
        let terms = Terms { patience: Duration::ZERO, lease_for: self.inner.config.lease_ttl };
        lane::submit(Arc::clone(&self.inner), asks, terms).await
    }
}
