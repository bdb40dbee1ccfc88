//! Part 4: goes on with changes of shares of slots. `buckets apply` waits 30 s for slots that calls hold;
//! what comes back later would be used by nobody until somebody applies the file again.

use std::collections::BTreeMap;

use sluice_core::{Bucket, Dimension, ShareName, SlotRows};
use sluice_table::{Store, StoreError};

use super::recount::read_buckets;
use crate::limits::send;

/// One is enough if nobody else writes the rows.
const MOST_TRIES: u32 = 6;

/// Goes on with the changes of these buckets, each as far as slots have come back. What fails is left to the
/// next sweep: the work of this one is done.
pub(super) async fn go_on(store: &Store, changing: Vec<Dimension>) {
    for dimension in changing {
        match go_on_with(store, &dimension).await {
            Ok(Ended::AsFarAsPossible) => {}
            Ok(Ended::Rejected) => {
                let message = "its rows changed during every try; or `shares` in its row has what only a later version writes: \
                               update the reconciler";
                tracing::warn!(event = "reconciler.shares_left", %dimension, message);
            }
            Err(error) => {
                tracing::warn!(event = "reconciler.shares_left", %dimension, message = %error);
                if error.is_unavailable() {
                    break;
                }
            }
        }
    }
}

enum Ended {
    AsFarAsPossible,
    /// Conditions of its writes did not hold in any try.
    Rejected,
}

async fn go_on_with(store: &Store, dimension: &Dimension) -> Result<Ended, StoreError> {
    for attempt in 0..MOST_TRIES {
        let Some(rows) = read_rows(store, dimension).await? else { return Ok(Ended::AsFarAsPossible) };
        let Some(writes) = rows.resumed() else { return Ok(Ended::AsFarAsPossible) };
        if send(store, &writes).await? {
            // All that had come back is given out, or the change has ended.
            tracing::info!(event = "reconciler.shares_moved", %dimension);
            return Ok(Ended::AsFarAsPossible);
        }
        store.back_off(attempt).await;
    }
    Ok(Ended::Rejected)
}

/// `None` if the bucket is gone, or no change is under way any more.
async fn read_rows(store: &Store, dimension: &Dimension) -> Result<Option<SlotRows>, StoreError> {
    let mut common = read_buckets(store, vec![dimension.to_string()]).await?.0;
    let Some(common) = common.remove(dimension).filter(|bucket| bucket.changes_to().is_some()) else {
        return Ok(None);
    };
    let row = |share: &ShareName| common.dimension().of_share(share);
    let rows: Vec<Dimension> = SlotRows::names(&common, &common.split()).iter().filter_map(row).collect();
    let mut read: BTreeMap<Dimension, Bucket> =
        read_buckets(store, rows.iter().map(ToString::to_string).collect()).await?.0;
    let shares = rows.iter().map(|row| read.remove(row)).collect();
    Ok(Some(SlotRows { common, shares }))
}
