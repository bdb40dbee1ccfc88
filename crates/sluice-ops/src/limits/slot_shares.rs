//! Declares, changes and removes shares of a concurrency bucket: the rows are read, and each step is planned from what
//! they are, until they are as wanted.

use std::time::Duration;

use sluice_core::{Bucket, Dimension, InvalidLimit, Limit, Load, SlotRows, SlotStep, Split, Write};
use sluice_table::{Resend, StoreError, Transacted, Transaction, Written};
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
    /// Gives a concurrency bucket these shares. Slots that are held move when they come back. If that takes longer than
    /// 30 s, nothing is lost: the next call goes on from there.
    pub(super) async fn apply_slot_shares(&self, dimension: &Dimension, to: &Split) -> Result<Applied, LimitsError> {
        let (began, mut before, mut created, mut steps, mut failures) = (Instant::now(), None, false, 0, 0);
        loop {
            if began.elapsed() >= LONGEST_CHANGE {
                return Err(LimitsError::Contended(dimension.clone()));
            }
            let Some(common) = self.bucket(dimension).await? else {
                let bucket = Bucket::full(dimension.clone(), *to.common(), self.store.time().await?);
                created |= matches!(self.store.put(&bucket.create()).await?, Written::Applied(_));
                continue;
            };
            may_become(&common, to.whole())?;
            let from = before.get_or_insert_with(|| common.split()).clone();
            let rows = self.slot_rows(common, to).await?;
            let is_applied = match rows.next(to, self.store.time().await?) {
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
                SlotStep::Remove(row, write) => {
                    let is_removed = self.send(&[write]).await?;
                    if is_removed {
                        self.observer.removed(&row);
                        // As when a bucket is removed: nothing depends on it.
                        let _ = self.store.delete_row(&Load::key(&row)).await;
                    }
                    is_removed
                }
                SlotStep::Write(writes) => self.send(&writes).await?,
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

    /// Reads the rows of all shares that the bucket has or is to have.
    async fn slot_rows(&self, common: Bucket, to: &Split) -> Result<SlotRows, LimitsError> {
        let mut shares = Vec::new();
        for name in SlotRows::names(&common, to) {
            shares.push(match common.dimension().of_share(&name) {
                Some(row) => self.bucket(&row).await?,
                None => None,
            });
        }
        Ok(SlotRows { common, shares })
    }

    /// Whether the writes were applied. Each has the condition that what it was planned from still holds.
    async fn send(&self, writes: &[Write]) -> Result<bool, StoreError> {
        if let [Write::Update(update)] = writes {
            return Ok(matches!(self.store.update(update, Resend::Always).await?, Written::Applied(_)));
        }
        let sent = self.store.transact(&Transaction::new(writes)).await?;
        Ok(matches!(sent, Transacted::Committed))
    }
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
