//! Part 2: gives back what a bucket's ended leases hold, a transaction (inline: a write) at a time.

use std::sync::Arc;

use sluice_core::{Bucket, Chunk, Dimension, InlinePlanner, InlineReclaim, Lease, Timestamp};

use super::{Deadlines, is_over};
use crate::chunk::{Tally, send_chunk};
use sluice_table::{Attributes, MOST_TRIES, Resend, Store, StoreError, Written};

/// How many conflicts of a lease a sweep waits out: at most half a second. The next sweep finds the lease
/// again, and one hot bucket must not keep a page from its end.
const CONFLICTS: u32 = 5;

/// What the sweep has read of a bucket. It may be old: the conditions of the writes check it.
#[derive(Clone, Debug)]
pub(super) enum BucketRead {
    Bucket(Arc<Bucket>),
    Gone,
    Unreadable(String),
}

/// Leases of one bucket that have ended.
pub(super) enum EndedLeases {
    /// Leases with a row of their own.
    Rows(Vec<Lease>),
    /// The number of inline leases in the bucket's row, when the scan saw the row.
    Inline(usize),
}

impl EndedLeases {
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Rows(leases) => leases.len(),
            Self::Inline(leases) => *leases,
        }
    }
}

/// The result of giving back a group of leases.
pub(super) struct Reclaimed {
    pub(super) dimension: Dimension,
    pub(super) known: Option<BucketRead>,
    pub(super) tally: Tally,
    pub(super) result: Result<(), StoreError>,
}

/// What the groups of a sweep have in common.
pub(super) struct Sweep {
    pub(super) store: Store,
    pub(super) deadlines: Deadlines,
    /// Leases that ended before this instant have ended by every clock.
    pub(super) cutoff: Timestamp,
}

pub(super) async fn reclaim(
    sweep: Sweep,
    dimension: Dimension,
    known: Option<BucketRead>,
    ended: EndedLeases,
) -> Reclaimed {
    let mut tally = Tally::default();
    let known = match known {
        Some(known) => Ok(known),
        None => known_of(&sweep.store, &dimension).await,
    };
    let mut known = match known {
        Ok(known) => known,
        Err(error) => {
            tally.left += ended.len();
            // Throttled in every try: left to the next sweep.
            let result = if matches!(error, StoreError::Contended { .. }) { Ok(()) } else { Err(error) };
            return Reclaimed { dimension, known: None, tally, result };
        }
    };
    let result = match ended {
        EndedLeases::Rows(leases) => sweep.rows(&known, leases, &mut tally).await,
        EndedLeases::Inline(leases) => sweep.inline(&dimension, &mut known, leases, &mut tally).await,
    };
    Reclaimed { dimension, known: Some(known), tally, result }
}

pub(super) async fn known_of(store: &Store, dimension: &Dimension) -> Result<BucketRead, StoreError> {
    let Some(row) = store.read(dimension.as_str()).await? else { return Ok(BucketRead::Gone) };
    Ok(parsed(dimension, &Attributes(&row)))
}

fn parsed(dimension: &Dimension, row: &Attributes<'_>) -> BucketRead {
    match Bucket::read(dimension, row) {
        Ok(bucket) => BucketRead::Bucket(Arc::new(bucket)),
        Err(error) => BucketRead::Unreadable(error.to_string()),
    }
}

impl Sweep {
    async fn rows(
        &self,
        known: &BucketRead,
        leases: Vec<Lease>,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let bucket = match known {
            BucketRead::Bucket(bucket) => Some(bucket.as_ref()),
            BucketRead::Gone => None,
            BucketRead::Unreadable(error) => {
                tally.failed.extend(leases.iter().map(|lease| (lease.key().to_owned(), error.clone())));
                return Ok(());
            }
        };
        for chunk in Chunk::reclaim(bucket, leases) {
            send_chunk(&self.store, chunk, CONFLICTS, || !is_over(self.deadlines.work), tally).await?;
        }
        Ok(())
    }

    /// Gives back inline leases: those of the reading, which also contains those that the scan saw. A
    /// rejected write's reply contains the row for the next plan. Leases that it no longer has were taken
    /// over or renewed.
    async fn inline(
        &self,
        dimension: &Dimension,
        known: &mut BucketRead,
        found: usize,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let (mut done, mut replans) = (0, 0);
        loop {
            let bucket = match &*known {
                BucketRead::Bucket(bucket) => Arc::clone(bucket),
                BucketRead::Gone => break,
                BucketRead::Unreadable(error) => {
                    tally.failed.extend(std::iter::repeat_n(
                        (dimension.to_string(), error.clone()),
                        found.saturating_sub(done),
                    ));
                    return Ok(());
                }
            };
            let Some(reclaim) = InlinePlanner::new(&bucket).reclaim(self.cutoff) else { break };
            if is_over(self.deadlines.work) || replans > MOST_TRIES {
                tally.left += found.saturating_sub(done);
                return Ok(());
            }
            match self.send(dimension, &reclaim).await {
                Ok((is_applied, now)) => {
                    *known = now;
                    if is_applied {
                        done += count(&reclaim, tally);
                    } else {
                        replans += 1;
                    }
                }
                Err(error) => {
                    tally.left += found.saturating_sub(done);
                    return if matches!(error, StoreError::Contended { .. }) { Ok(()) } else { Err(error) };
                }
            }
        }
        tally.lost_races += found.saturating_sub(done);
        Ok(())
    }

    /// Sends the write. Returns whether it was applied, and the bucket as it is now. If the write is sent
    /// twice, the second send finds none of the leases, which its condition requires.
    async fn send(
        &self,
        dimension: &Dimension,
        reclaim: &InlineReclaim,
    ) -> Result<(bool, BucketRead), StoreError> {
        Ok(match self.store.update(&reclaim.update, Resend::Always).await? {
            Written::Applied(row) => (true, parsed(dimension, &Attributes(&row))),
            Written::ConditionFailed(Some(row)) => (false, parsed(dimension, &Attributes(&row))),
            // A bucket counts as gone only if a read shows so.
            Written::ConditionFailed(None) => (false, known_of(&self.store, dimension).await?),
        })
    }
}

/// Counts an applied write, and returns how many leases it removed. The recount reads slots in the row.
fn count(reclaim: &InlineReclaim, tally: &mut Tally) -> usize {
    let leases = reclaim.leases.len();
    let restored = leases - reclaim.already_capped;
    tally.restored += restored;
    tally.restored_slots += restored;
    tally.already_capped += reclaim.already_capped;
    leases
}
