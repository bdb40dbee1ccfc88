//! Part 5: goes on with changes of shares of slots; callers that found no slot do, too. `buckets apply` waits
//! 30 s for slots that calls hold; what comes back later would be used by nobody until somebody applies the
//! file again.

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
        match try_often(store, &dimension).await {
            Ok(SlotsMoved::Nothing) => {}
            Ok(SlotsMoved::Some) => tracing::info!(event = "reconciler.shares_moved", %dimension),
            Ok(SlotsMoved::Rejected) => {
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

async fn try_often(store: &Store, dimension: &Dimension) -> Result<SlotsMoved, StoreError> {
    for attempt in 0..MOST_TRIES {
        let Some(rows) = read_rows(store, dimension).await? else { return Ok(SlotsMoved::Nothing) };
        match give_slots(store, &rows).await? {
            SlotsMoved::Rejected => store.back_off(attempt).await,
            ended => return Ok(ended),
        }
    }
    Ok(SlotsMoved::Rejected)
}

/// What became of slots that came back while the shares of their bucket change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsMoved {
    /// Lines that lacked some have them, or the change has ended.
    Some,
    /// There was nothing to do, or the next step is an operator's.
    Nothing,
    /// The rows were written meanwhile.
    Rejected,
}

/// Gives slots that came back to the lines of a concurrency bucket that lack some, if its shares are being
/// changed; or ends the change. One write, and none if these rows show nothing to do.
///
/// # Errors
/// [`StoreError`] if the table does not answer.
pub async fn give_slots(store: &Store, rows: &SlotRows) -> Result<SlotsMoved, StoreError> {
    let Some(writes) = rows.resumed() else { return Ok(SlotsMoved::Nothing) };
    Ok(if send(store, &writes).await? { SlotsMoved::Some } else { SlotsMoved::Rejected })
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
