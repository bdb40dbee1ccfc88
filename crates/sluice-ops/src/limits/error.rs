//! Why a bucket cannot be read, changed or declared.

use sluice_core::{Amount, Dimension, DimensionError, InvalidLimit, RowError, ShareName};
use sluice_table::StoreError;

/// Why a row that is not a lease is not a bucket either.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketFault {
    /// The key is not a dimension.
    #[error(transparent)]
    Key(#[from] DimensionError),
    /// An attribute is missing or invalid.
    #[error(transparent)]
    Row(#[from] RowError),
}

/// Why nothing can be said about a bucket, or done to it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The table has no bucket of this name.
    #[error(
        "unknown dimension {dimension}: table {table:?} has no such bucket; declare it with `sluice buckets apply`"
    )]
    Unknown {
        /// The dimension.
        dimension: Dimension,
        /// The table that was asked.
        table: String,
    },
    /// The row of the bucket cannot be read.
    #[error(
        "the row of {dimension} cannot be read: {source}; {}", source.advice()
    )]
    Corrupt {
        /// The dimension.
        dimension: Dimension,
        /// The attribute, and what is wrong with it.
        source: RowError,
    },
    /// The table did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a limit could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The bucket's row cannot be read, or the table did not answer.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The change is invalid.
    #[error("{dimension}: {source}")]
    Limit {
        /// The dimension.
        dimension: Dimension,
        /// What is wrong.
        source: InvalidLimit,
    },
    /// Callers write their leases inline, in the bucket's row, and the row would grow too large.
    #[error(
        "{dimension}: {calls} calls at once are too many for inline leases, which share the bucket's row; a row holds {most} at \
         most: lower the capacity, raise the cost of a call, split the bucket, or use lease rows (SLUICE_LEASES=concurrent)"
    )]
    TooLargeForInline {
        /// The dimension.
        dimension: Dimension,
        /// The bucket's capacity in calls of the default cost.
        calls: u64,
        /// The most inline leases of a bucket.
        most: usize,
    },
    /// Calls hold slots that a share is to have.
    #[error(
        "{dimension}: calls still hold {held} of the slots that are to move; as calls end, callers that find no slot and sweeps \
         give these slots to the shares; to remove the row of a removed share, apply the file again then"
    )]
    SlotsHeld {
        /// The dimension.
        dimension: Dimension,
        /// The slots that are still to move.
        held: Amount,
    },
    /// A share is to have a row that another bucket has.
    #[error(
        "{dimension}: its share {share} is to have the row {row}, and another bucket has this name: give the share another \
         name, or remove that bucket"
    )]
    NameTaken {
        /// The dimension.
        dimension: Dimension,
        /// The share.
        share: ShareName,
        /// The row.
        row: Dimension,
    },
    /// A share is to have a row whose name would be too long.
    #[error(
        "{dimension}: the name {dimension}@{share} of the row of its share is too long: give the share a shorter name"
    )]
    NameTooLong {
        /// The dimension.
        dimension: Dimension,
        /// The share.
        share: ShareName,
    },
    /// A limit for a row that has the slots of a share.
    #[error(
        "{0} is the row of a share, whose slots are a part of its bucket's: change `[bucket.shares]` of that bucket instead"
    )]
    RowOfShare(Dimension),
    /// Callers or other operators wrote the rows of the shares in every try.
    #[error(
        "{0}: its rows changed during every try; what the change of its shares has done so far stays: apply the file again \
         (if that never helps, `shares` in its row has what only a later version writes: use that version)"
    )]
    SharesContended(Dimension),
    /// The row changed in every try.
    #[error("the row of {0} changed during every try; nothing was applied: try again")]
    Contended(Dimension),
}

impl From<StoreError> for LimitsError {
    fn from(error: StoreError) -> Self {
        Self::Bucket(error.into())
    }
}
