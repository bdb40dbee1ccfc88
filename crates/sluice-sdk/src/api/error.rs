//! Why an acquire returned neither a grant nor a refusal.

use sluice_core::{Amount, COMMON, Cost, Dimension, RowError};
use sluice_table::StoreError;

use crate::api::request::RequestError;

/// Why an acquire returned neither a grant nor a refusal.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request is invalid, whatever the table contains.
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
    /// No wait will ever suffice: the call costs more than the capacity of the bucket.
    #[error("{dimension} can never grant {cost}{}: {}", of_share(share.as_deref()), why(*capacity, share.as_deref()))]
    NeverSatisfiable {
        /// The dimension.
        dimension: Dimension,
        /// What the call takes.
        cost: Cost,
        /// The capacity of the bucket, or of the share's line in it.
        capacity: Amount,
        /// In a bucket with shares: the one that pays, or `common`.
        share: Option<String>,
    },
    /// The bucket has more slots than its row has room for leases.
    #[error(
        "{dimension} allows {leases} leases at once, and a row holds {most} inline leases at most: use lease rows (SLUICE_LEASES=concurrent), or lower the capacity"
    )]
    TooLargeForInline {
        /// The dimension.
        dimension: Dimension,
        /// Leases at once: the bucket's capacity, divided by the cost of a call.
        leases: u64,
        /// The most leases that one row takes.
        most: usize,
    },
    /// The bucket's row cannot be read.
    #[error(
        "the row of {dimension} cannot be read: {source}; {}", source.advice()
    )]
    CorruptRow {
        /// The dimension.
        dimension: Dimension,
        /// The attribute, and what is wrong with it.
        source: RowError,
    },
    /// The client is closed, or is being closed.
    #[error("the client is closed: nothing is granted after `Client::close`")]
    Closed,
    /// The caller does not run in Tokio's runtime.
    #[error("no Tokio runtime: call this in a function under #[tokio::main], or in `Runtime::block_on`")]
    NoRuntime,
    /// The table did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn of_share(share: Option<&str>) -> String {
    match share {
        None => String::new(),
        Some(COMMON) => " to callers that name no share".to_owned(),
        Some(share) => format!(" to the share {share}"),
    }
}

fn why(capacity: Amount, share: Option<&str>) -> String {
    match share {
        Some(COMMON) => {
            format!("they have {capacity}; lower the cost or the shares' parts, or raise the capacity")
        }
        None => format!("its capacity is {capacity}; lower the cost, or raise the capacity"),
        Some(_) => {
            format!("the share holds {capacity}; lower the cost, or raise the share's part or the capacity")
        }
    }
}

impl AcquireError {
    /// The name of the error in spans.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::UnknownDimension { .. } => "unknown_dimension",
            Self::NeverSatisfiable { .. } => "never_satisfiable",
            Self::TooLargeForInline { .. } => "too_large_for_inline",
            Self::CorruptRow { .. } => "corrupt_row",
            Self::Closed => "closed",
            Self::NoRuntime => "no_runtime",
            Self::Store(_) => "store",
        }
    }
}
