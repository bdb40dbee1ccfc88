//! Declares, changes and removes shares of a concurrency bucket: the rows are read, and each step is planned
//! from what they are, until they are as wanted.

use std::time::Duration;

use futures_util::future::try_join_all;
use sluice_core::{Bucket, Dimension, InvalidLimit, Limit, Load, SlotRows, SlotStep, Split, Write};
use sluice_table::{Resend, Store, StoreError, Transacted, Transaction, Written};
use tokio::time::{Instant, sleep};

use super::{Applied, LimitsError};
use crate::ops::Ops;

/// How long a change of shares waits for slots that calls hold.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How often it looks whether some have come back.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// When the change gives up beside callers whose writes are faster in every try.
const LONGEST_CHANGE: Duration = Duration::from_secs(60);

impl Ops {
    /// Gives a concurrency bucket these shares. Slots that are held move when they come back. If that takes
    /// longer than 30 s, nothing is lost: the next call goes on from there, and so do callers that find no
    /// slot, and sweeps.
    pub(super) async fn apply_slot_shares(
        &self,
        dimension: &Dimension,
        to: &Split,
    ) -> Result<Applied, LimitsError> {
        let (began, mut before, mut created, mut steps, mut failures) = (Instant::now(), None, false, 0, 0);
        loop {
            if began.elapsed() >= LONGEST_CHANGE {
                return Err(LimitsError::SharesContended(dimension.clone()));
            }
            let Some(common) = self.bucket(dimension).await? else {
                let bucket = Bucket::full(dimension.clone(), *to.common(), self.store.time().await?);
                created |= matches!(self.store.put(&bucket.create()).await?, Written::Applied(_));
                continue;
            };
            may_become(&common, to.whole())?;
            let from = before.get_or_insert_with(|| common.split()).clone();
            let rows = self.slot_rows(common, to).await?;
            let is_applied = match rows.next(to) {
                SlotStep::Done => {
                    rows.shares.iter().flatten().for_each(|row| self.observer.changed(row.dimension()));
                    self.observer.changed(dimension);
                    return Ok(match (created, steps) {
                        (true, _) => Applied::Created,
                        (false, 0) => Applied::Unchanged,
                        (false, _) => Applied::Changed { from },
                    });
                }
                SlotStep::Wait(held) if began.elapsed() >= LONGEST_WAIT => {
                    return Err(LimitsError::SlotsHeld { dimension: dimension.clone(), held });
                }
                SlotStep::Wait(_) => {
                    sleep(LOOK_EVERY).await;
                    continue;
                }
                SlotStep::Remove(row, writes) => {
                    let is_removed = send(&self.store, &writes).await?;
                    if is_removed {
                        self.observer.removed(&row);
                        // As when a bucket is removed: nothing depends on it.
                        let _ = self.store.delete_row(&Load::key(&row)).await;
                    }
                    is_removed
                }
                SlotStep::Write(writes) | SlotStep::GoOn(writes) => send(&self.store, &writes).await?,
                _ => false,
            };
            steps += 1;
            if is_applied {
                failures = 0;
                continue;
            }
            self.store.back_off(failures).await;
            failures = (failures + 1).min(5);
        }
    }

    /// Whether the bucket has this limit and these shares, its rows of shares too.
    ///
    /// # Errors
    /// [`LimitsError`] if a row cannot be read, the table does not answer, or a name is taken.
    pub async fn has_split(&self, bucket: &Bucket, split: &Split) -> Result<bool, LimitsError> {
        if bucket.limit().is_concurrent() {
            self.check_no_share(bucket.dimension()).await?;
        }
        if !bucket.limit().is_concurrent() || split.shares().is_empty() && !bucket.has_slot_shares() {
            return Ok(bucket.is_split_as(split));
        }
        let rows = self.slot_rows(bucket.clone(), split).await?;
        Ok(rows.next(split) == SlotStep::Done)
    }

    /// Fails for the row of a share: nobody but its bucket says how many slots it has.
    pub(super) async fn check_no_share(&self, dimension: &Dimension) -> Result<(), LimitsError> {
        let Some((whole, share)) = dimension.whole_and_share() else { return Ok(()) };
        let bucket = self.bucket(&whole).await?;
        let has = |bucket: &Bucket| bucket.slot_shares().iter().any(|named| named.name == share);
        match bucket.is_some_and(|bucket| has(&bucket)) {
            true => Err(LimitsError::RowOfShare(dimension.clone())),
            false => Ok(()),
        }
    }

    /// Reads the rows of all shares that the bucket has or is to have. A row of a share that the bucket does
    /// not name is another bucket.
    async fn slot_rows(&self, common: Bucket, to: &Split) -> Result<SlotRows, LimitsError> {
        let name = common.dimension();
        let rows = SlotRows::names(&common, to).into_iter().map(async |share| {
            let Some(row) = name.of_share(&share) else {
                return Err(LimitsError::NameTooLong { dimension: name.clone(), share });
            };
            let bucket = self.bucket(&row).await?;
            let is_named = common.slot_shares().iter().any(|named| named.name == share);
            match bucket.as_ref().is_some_and(|bucket| !is_named || !bucket.limit().is_concurrent()) {
                true => Err(LimitsError::NameTaken { dimension: name.clone(), share, row }),
                false => Ok(bucket),
            }
        });
        let shares = try_join_all(rows).await?;
        Ok(SlotRows { common, shares })
    }
}

/// Whether the writes of a step were applied. Each has the condition that what it was planned from still
/// holds.
pub(crate) async fn send(store: &Store, writes: &[Write]) -> Result<bool, StoreError> {
    if let [Write::Update(update)] = writes {
        return Ok(matches!(store.update(update, Resend::Always).await?, Written::Applied(_)));
    }
    Ok(matches!(store.transact(&Transaction::new(writes)).await?, Transacted::Committed))
}

fn may_become(bucket: &Bucket, to: &Limit) -> Result<(), LimitsError> {
    let from = bucket.limit();
    match from.is_concurrent() == to.is_concurrent() {
        true => Ok(()),
        false => Err(LimitsError::Limit {
            dimension: bucket.dimension().clone(),
            source: InvalidLimit::KindChange { from: from.limit_type(), to: to.limit_type() },
        }),
    }
}
