//! Part 2: gives back what the ended leases of one bucket hold, a transaction's worth at a time.

use std::sync::Arc;

use sluice_core::{Bucket, Chunk, Dimension, Lease};

use super::{Deadlines, is_over};
use crate::give_back::{Tally, settle};
use crate::store::{Attributes, Store, StoreError};

/// Conflicts that a lease is waited for before it is left to the next sweep: at most half a second.
const TRIES: u32 = 5;

/// What the sweep has read of a bucket. It may be old: the conditions say whether it still holds.
#[derive(Clone, Debug)]
pub(super) enum Known {
    Bucket(Arc<Bucket>),
    Gone,
    Unreadable(String),
}

/// What became of a group of leases.
pub(super) struct Done {
    pub(super) dimension: Dimension,
    pub(super) known: Option<Known>,
    pub(super) tally: Tally,
    pub(super) result: Result<(), StoreError>,
}

/// Gives back what `leases` hold, all of them of `dimension`.
pub(super) async fn reclaim(
    store: Store,
    deadlines: Deadlines,
    dimension: Dimension,
    known: Option<Known>,
    leases: Vec<Lease>,
) -> Done {
    let mut tally = Tally::default();
    let known = match known {
        Some(known) => Ok(known),
        None => read(&store, &dimension).await,
    };
    let result = match &known {
        Ok(Known::Bucket(bucket)) => give_back(&store, deadlines, Some(bucket), leases, &mut tally).await,
        Ok(Known::Gone) => give_back(&store, deadlines, None, leases, &mut tally).await,
        Ok(Known::Unreadable(error)) => {
            tally.failed.extend(leases.iter().map(|lease| (lease.key().to_owned(), error.clone())));
            Ok(())
        }
        Err(_) => {
            tally.left += leases.len();
            Ok(())
        }
    };
    let (known, result) = match known {
        Ok(known) => (Some(known), result),
        // Throttled in every try: the next sweep's.
        Err(StoreError::Contended { .. }) => (None, Ok(())),
        Err(error) => (None, Err(error)),
    };
    Done { dimension, known, tally, result }
}

async fn read(store: &Store, dimension: &Dimension) -> Result<Known, StoreError> {
    let Some(row) = store.read(dimension.as_str()).await? else { return Ok(Known::Gone) };
    Ok(match Bucket::read(dimension, &Attributes(&row)) {
        Ok(bucket) => Known::Bucket(Arc::new(bucket)),
        Err(error) => Known::Unreadable(error.to_string()),
    })
}

async fn give_back(
    store: &Store,
    deadlines: Deadlines,
    bucket: Option<&Bucket>,
    leases: Vec<Lease>,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    for chunk in Chunk::reclaim(bucket, leases) {
        settle(store, chunk, TRIES, || !is_over(deadlines.work), tally).await?;
    }
    Ok(())
}
