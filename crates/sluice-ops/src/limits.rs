//! Declares and removes buckets: what an operator does, and the CLI on the operator's behalf.

use std::collections::BTreeSet;

use sluice_core::{
    Bucket, Change, Dimension, InvalidLimit, Limit, Load, MOST_INLINE_LEASES, OnLowerLimit, RatePlanner,
    SlotShare, Split, Timestamp, on_lower_limit,
};
use sluice_table::{Item, Resend, StoreError, Written};

use crate::ops::Ops;
use read::parse;
pub(crate) use slot_shares::send;

mod error;
mod read;
mod slot_shares;

pub use error::{BucketError, BucketFault, LimitsError};
pub use read::BucketRow;

/// What applying a limit did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// The bucket did not exist. It starts full.
    Created,
    /// The bucket had these limits already.
    Unchanged,
    /// The bucket had these limits already. Its anchor was in the future, where a wrong clock had put it, and
    /// was moved back. The level is kept.
    Repaired,
    /// The bucket had other limits or shares. Its level is kept.
    Changed {
        /// The limit and the shares that the bucket had.
        from: Split,
    },
}

impl Ops {
    /// Checks whether [`apply_limit`](Self::apply_limit) would accept this limit, without the table.
    ///
    /// # Errors
    /// [`LimitsError::TooLargeForInline`] if callers write their leases inline.
    pub fn check_limit(&self, dimension: &Dimension, limit: &Limit) -> Result<(), LimitsError> {
        let is_inline = self.has_inline_leases && limit.is_concurrent();
        if is_inline && !limit.fits_inline() {
            let (calls, most) = (limit.calls_at_once(), MOST_INLINE_LEASES);
            return Err(LimitsError::TooLargeForInline { dimension: dimension.clone(), calls, most });
        }
        Ok(())
    }

    /// Gives `dimension` this limit: creates the bucket, full, or changes the limit and keeps the level. An
    /// anchor in the future is moved back, as far as this process knows the time. Doubts about the limit
    /// ([`Limit::warning`]) are logged, as event `limit.doubtful`. Takes at most five requests (4.2 s each),
    /// six if DynamoDB's time is not known. The shares of the bucket stay, in proportion
    /// ([`apply_split`](Self::apply_split) sets them).
    ///
    /// # Errors
    /// [`LimitsError`] for a change between rate and concurrency, a limit that is too large for inline
    /// leases, a row that cannot be read, or a table that does not answer.
    pub async fn apply_limit(&self, dimension: &Dimension, limit: &Limit) -> Result<Applied, LimitsError> {
        self.apply(dimension, limit, |bucket| bucket.split().scaled_to(*limit)).await
    }

    /// Gives `dimension` this limit and these shares, as [`apply_limit`](Self::apply_limit) does: shares that
    /// the bucket has and `split` has not are removed. A new share gets its part of what the common line has,
    /// and what a removed share had goes there. Beside callers who change the bucket many hundred times a
    /// second, other writers may be faster in every try.
    ///
    /// A share of a concurrency bucket gets slots as they come free, within 30 s; the call takes at most 60 s
    /// then. Callers that find no slot, and sweeps, give it what comes free later.
    ///
    /// # Errors
    /// As [`apply_limit`](Self::apply_limit), and [`LimitsError::SlotsHeld`].
    pub async fn apply_split(&self, dimension: &Dimension, split: &Split) -> Result<Applied, LimitsError> {
        let whole = split.whole();
        self.apply(dimension, whole, |bucket| match bucket.limit().is_concurrent() == whole.is_concurrent() {
            true => Ok(split.clone()),
            false => {
                Err(InvalidLimit::KindChange { from: bucket.limit().limit_type(), to: whole.limit_type() })
            }
        })
        .await
    }

    async fn apply(
        &self,
        dimension: &Dimension,
        limit: &Limit,
        wanted: impl Fn(&Bucket) -> Result<Split, InvalidLimit>,
    ) -> Result<Applied, LimitsError> {
        self.check_limit(dimension, limit)?;
        if let Some(warning) = limit.warning() {
            tracing::warn!(event = "limit.doubtful", %dimension, "{warning}");
        }
        let store = &self.store;
        let invalid = |source| LimitsError::Limit { dimension: dimension.clone(), source };
        let (mut known, mut repaired) = (self.bucket(dimension).await?, None);
        if limit.is_concurrent() {
            self.check_no_share(dimension).await?;
            let has_shares = known.as_ref().is_some_and(Bucket::has_slot_shares);
            let new = || Bucket::full(dimension.clone(), *limit, Timestamp::default());
            let to = wanted(&known.clone().unwrap_or_else(new)).map_err(invalid)?;
            if has_shares || !to.shares().is_empty() {
                return self.apply_slot_shares(dimension, &to).await;
            }
        }
        let mut tries = store.tries();
        while tries.another() {
            let Some(bucket) = known else {
                let bucket = Bucket::full(dimension.clone(), *limit, store.time().await?);
                let split = wanted(&bucket).map_err(invalid)?;
                match store.put(&bucket.create_split(&split)).await? {
                    Written::Applied(_) => {
                        self.observer.changed(dimension);
                        return Ok(Applied::Created);
                    }
                    Written::ConditionFailed(_) => known = self.bucket(dimension).await?,
                }
                continue;
            };
            if bucket.has_slot_shares() {
                // Another operator has declared them since the first reading.
                return self.apply_slot_shares(dimension, &wanted(&bucket).map_err(invalid)?).await;
            }
            let (from, now) = (bucket.split(), store.time().await?);
            let lines = bucket.every_line();
            let repair = |line| RatePlanner::at(line, now, || store.clock().future_anchor()).repair(now);
            if let Some(repair) = lines.iter().find_map(repair) {
                repaired = Some(now);
                known = match store.update(&repair.update, Resend::Always).await? {
                    Written::Applied(row) => {
                        tracing::warn!(event = "anchor.repaired", %dimension, ahead = ?bucket.anchor().since(now));
                        Some(parse(dimension, &row)?)
                    }
                    Written::ConditionFailed(row) => row.map(|row| parse(dimension, &row)).transpose()?,
                };
                self.observer.changed(dimension);
                continue;
            }
            let to = wanted(&bucket).map_err(invalid)?;
            if from == to {
                // Perhaps an earlier send created the bucket, and this process learns of it now.
                self.observer.exists(dimension);
                // The repair was applied, by this send or by one whose reply was lost.
                let is_repaired = lines.iter().any(|line| repaired == Some(line.anchor()));
                return Ok(if is_repaired { Applied::Repaired } else { Applied::Unchanged });
            }
            let update = Change::split(&bucket, &to, now).map_err(invalid)?;
            // After a lost reply, the second try finds the new limits and nothing to do.
            match store.update(&update, Resend::Always).await? {
                Written::Applied(_) => {
                    self.observer.changed(dimension);
                    return Ok(Applied::Changed { from });
                }
                // Planned again at once, from the row as it was a moment ago: callers of a full bucket move
                // its anchor at every call.
                Written::ConditionFailed(row) => known = row.map(|row| parse(dimension, &row)).transpose()?,
            }
        }
        Err(LimitsError::Contended(dimension.clone()))
    }

    /// Sets whether `dimension` adopts a lower limit that its vendor reports, and down to which floor; true
    /// if that changed. Takes at most two requests (4.2 s each).
    ///
    /// # Errors
    /// [`BucketError`] for an unknown dimension, a row that cannot be read, or a table that does not answer.
    pub async fn on_lower_limit(
        &self,
        dimension: &Dimension,
        then: OnLowerLimit,
    ) -> Result<bool, BucketError> {
        let unknown =
            || BucketError::Unknown { dimension: dimension.clone(), table: self.table().to_owned() };
        let bucket = self.bucket(dimension).await?.ok_or_else(unknown)?;
        self.observer.read(&bucket);
        if bucket.is_set_to(then) {
            return Ok(false);
        }
        match self.store.update(&on_lower_limit(dimension, then), Resend::Always).await? {
            Written::Applied(row) => {
                self.observer.read(&parse(dimension, &row)?);
                Ok(true)
            }
            Written::ConditionFailed(_) => {
                self.observer.removed(dimension);
                Err(unknown())
            }
        }
    }

    /// Keeps clients and sweeps out of `dimension` that do not speak this protocol or a later one; true if
    /// the row did not say so before. Never lowers what the row requires. Takes two requests (4.2 s each),
    /// and one or two for each share of a concurrency bucket, whose row requires the same from then on.
    ///
    /// # Errors
    /// [`BucketError`] for an unknown dimension, or a table that does not answer.
    pub async fn require_protocol(&self, dimension: &Dimension, protocol: i64) -> Result<bool, BucketError> {
        // The shares first: who may not read the bucket's row does not learn of their rows.
        let before = match self.bucket(dimension).await {
            Ok(bucket) => bucket,
            // It requires a later protocol than this version knows.
            Err(BucketError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let requires = async |share: &SlotShare| {
            self.store.update(&Bucket::require_protocol(&share.row, protocol), Resend::Always).await
        };
        for share in before.iter().flat_map(|bucket| bucket.slot_shares()) {
            requires(share).await?;
        }
        let required =
            self.store.update(&Bucket::require_protocol(dimension, protocol), Resend::Always).await?;
        let (row, is_new) = match required {
            Written::Applied(row) => (row, true),
            Written::ConditionFailed(Some(row)) => (row, false),
            Written::ConditionFailed(None) => {
                return Err(BucketError::Unknown {
                    dimension: dimension.clone(),
                    table: self.table().to_owned(),
                });
            }
        };
        // A row that is made from now on has what the bucket's row requires; one that was made since the
        // reading may not.
        let last = parse(dimension, &row).ok();
        let had_row = |share: &&SlotShare| {
            let before = before.iter().flat_map(|bucket| bucket.slot_shares());
            before.clone().any(|named| named.row == share.row && !named.is_closed)
        };
        for share in last.iter().flat_map(|bucket| bucket.slot_shares()).filter(|share| !had_row(share)) {
            requires(share).await?;
        }
        Ok(is_new)
    }

    /// Removes a bucket, and what sweeps measured of it; false if there was none. Its leases stay until a
    /// sweep. Takes at most three requests (4.2 s each), and two for each share of a concurrency bucket.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn remove_bucket(&self, dimension: &Dimension) -> Result<bool, StoreError> {
        let before = match self.bucket(dimension).await {
            Ok(bucket) => bucket,
            Err(BucketError::Store(error)) => return Err(error),
            // Then its shares are not known either.
            Err(_) => None,
        };
        let removed = self.remove_row(dimension).await?;
        // A share may have got its row since the reading. If the reply was lost, only the reading is known.
        let last = removed.as_ref().and_then(|row| parse(dimension, row).ok());
        let named = before.iter().chain(&last).flat_map(|bucket| bucket.slot_shares());
        for row in named.map(|share| &share.row).collect::<BTreeSet<_>>() {
            self.remove_row(row).await?;
        }
        Ok(removed.is_some())
    }

    /// Returns the row as it was last.
    async fn remove_row(&self, dimension: &Dimension) -> Result<Option<Item>, StoreError> {
        let removed = self.store.delete_row(dimension.as_str()).await?;
        self.observer.removed(dimension);
        if removed.is_none() {
            return Ok(None);
        }
        // Nothing depends on the load row, and a load is not reported without its bucket
        // ([`Survey::loads`](crate::Survey::loads)). The bucket is gone even if the load row cannot be
        // deleted, or if a sweep or a note that is under way writes the row again.
        if let Err(error) = self.store.delete_row(&Load::key(dimension)).await {
            tracing::debug!(event = "load.left", %dimension, %error);
        }
        Ok(removed)
    }
}
