//! Declares, lists and removes buckets: what an operator does, and the CLI on the operator's behalf.

use sluice_core::schema::{KEY, LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX};
use sluice_core::{
    Amount, AttributeNames, Bucket, Change, Dimension, DimensionError, InvalidLimit, Limit, Load, MOST_INLINE_LEASES,
    OnLowerLimit, Operand, RatePlanner, Row, RowError, ShareName, Split, Timestamp, on_lower_limit,
};

use sluice_table::{Attributes, Consistency, Item, Resend, Scan, StoreError, Written, value_text};

use crate::ops::Ops;

mod slot_shares;

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

/// A bucket's row as it was listed.
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketRow {
    /// Its key.
    pub key: String,
    /// The bucket, or why its row cannot be read.
    pub bucket: Result<Bucket, BucketFault>,
}

impl BucketRow {
    /// Reads the row with this key.
    #[must_use]
    pub fn read(key: String, row: &impl Row) -> Self {
        let bucket = Dimension::new(&key).map_err(BucketFault::from);
        Self { bucket: bucket.and_then(|dimension| Ok(Bucket::read(&dimension, row)?)), key }
    }
}

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
        "{dimension}: {held} slots are still held by calls that began before the change; the shares have what was free so \
         far, and together no more than the limit: apply the file again when those calls have ended"
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
    /// A limit for a row that has the slots of a share.
    #[error(
        "{0} is the row of a share, whose slots are a part of its bucket's: change `[bucket.shares]` of that bucket instead"
    )]
    RowOfShare(Dimension),
    /// A change of shares has not come to its end.
    #[error(
        "{0}: a change of its shares is under way, and its parts are not known before that is done; apply the file of \
         limits again"
    )]
    SharesChange(Dimension),
    /// The row changed in every try.
    #[error("the row of {0} changed during every try; nothing was applied: try again")]
    Contended(Dimension),
}

impl From<StoreError> for LimitsError {
    fn from(error: StoreError) -> Self {
        Self::Bucket(error.into())
    }
}

impl Ops {
    /// Reads one bucket; `None` if there is none of this name. Takes at most a request (4.2 s).
    ///
    /// # Errors
    /// [`BucketError`] if the row cannot be read or the table does not answer.
    pub async fn bucket(&self, dimension: &Dimension) -> Result<Option<Bucket>, BucketError> {
        let row = self.store.read(dimension.as_str()).await?;
        row.map(|row| parse(dimension, &row)).transpose()
    }

    /// Reads the load row of a bucket of any type: what sweeps measured, and what each caller used. A
    /// measurement that cannot be read counts as none. Takes at most a request (4.2 s).
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn load(&self, dimension: &Dimension) -> Result<Load, StoreError> {
        let row = self.store.read(&Load::key(dimension)).await?;
        let load = row.and_then(|row| Load::read(dimension, &Attributes(&row)).ok());
        Ok(load.unwrap_or_else(|| Load::none(dimension)))
    }

    /// Reads every bucket, sorted by key. A scan: for people, not for calls. Takes at most 20.2 s for each
    /// page of a megabyte.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn buckets(&self) -> Result<Vec<BucketRow>, StoreError> {
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter: "NOT (begins_with(#key, :lease) OR begins_with(#key, :load) OR begins_with(#key, :ticket))".into(),
            consistency: Consistency::Eventual,
            names: AttributeNames::of(&[KEY]),
            values: vec![
                (":lease".into(), Operand::Text(LEASE_PREFIX.into())),
                (":load".into(), Operand::Text(LOAD_PREFIX.into())),
                (":ticket".into(), Operand::Text(TICKET_PREFIX.into())),
            ],
            projection: None,
            page: None,
            from: None,
        };
        let mut rows = Vec::new();
        loop {
            let page = self.store.scan(&scan).await?;
            rows.extend(page.rows.iter().map(|row| BucketRow::read(value_text(row, KEY), &Attributes(row))));
            scan.from = page.next;
            if scan.from.is_none() {
                break;
            }
        }
        rows.sort_by(|a: &BucketRow, b| a.key.cmp(&b.key));
        Ok(rows)
    }

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
        let bucket = if limit.is_concurrent() { self.bucket(dimension).await? } else { None };
        if bucket.is_some_and(|bucket| bucket.slot_shares().iter().any(|share| share.is_closed)) {
            return Err(LimitsError::SharesChange(dimension.clone()));
        }
        self.apply(dimension, limit, |bucket| bucket.split().scaled_to(*limit)).await
    }

    /// Gives `dimension` this limit and these shares, as [`apply_limit`](Self::apply_limit) does: shares that the
    /// bucket has and `split` has not are removed. A new share gets its part of what the common line has, and what a
    /// removed share had goes there. Beside callers who change the bucket many hundred times a second, other writers
    /// may be faster in every try.
    ///
    /// A share of a concurrency bucket gets slots as they come free, within 30 s; the call takes at most 60 s then.
    ///
    /// # Errors
    /// As [`apply_limit`](Self::apply_limit), and [`LimitsError::SlotsHeld`].
    pub async fn apply_split(&self, dimension: &Dimension, split: &Split) -> Result<Applied, LimitsError> {
        let whole = split.whole();
        self.apply(dimension, whole, |bucket| match bucket.limit().is_concurrent() == whole.is_concurrent() {
            true => Ok(split.clone()),
            false => Err(InvalidLimit::KindChange { from: bucket.limit().limit_type(), to: whole.limit_type() }),
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
            let has_shares = known.as_ref().is_some_and(|bucket| !bucket.slot_shares().is_empty());
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
            if !bucket.slot_shares().is_empty() {
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

    /// Sets whether `dimension` adopts a lower limit that its vendor reports, and down to which floor; true if
    /// that changed. Takes at most two requests (4.2 s each).
    ///
    /// # Errors
    /// [`BucketError`] for an unknown dimension, a row that cannot be read, or a table that does not answer.
    pub async fn on_lower_limit(&self, dimension: &Dimension, then: OnLowerLimit) -> Result<bool, BucketError> {
        let unknown = || BucketError::Unknown { dimension: dimension.clone(), table: self.table().to_owned() };
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

    /// Keeps clients and sweeps out of `dimension` that do not speak this protocol or a later one; true if the row
    /// did not say so before. Never lowers what the row requires. Takes two requests (4.2 s each), and one for each share
    /// of a concurrency bucket, whose row requires the same from then on.
    ///
    /// # Errors
    /// [`BucketError`] for an unknown dimension, or a table that does not answer.
    pub async fn require_protocol(&self, dimension: &Dimension, protocol: i64) -> Result<bool, BucketError> {
        // The shares first: who may not read the bucket's row does not learn of their rows. A row that is not there yet is
        // made with what the bucket's row requires.
        let shares = match self.bucket(dimension).await {
            Ok(bucket) => bucket.map(|bucket| bucket.slot_shares().to_vec()).unwrap_or_default(),
            // It requires a later protocol than this version knows, as its shares do since.
            Err(BucketError::Corrupt { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        for share in shares {
            self.store.update(&Bucket::require_protocol(&share.row, protocol), Resend::Always).await?;
        }
        match self.store.update(&Bucket::require_protocol(dimension, protocol), Resend::Always).await? {
            Written::Applied(_) => Ok(true),
            Written::ConditionFailed(Some(_)) => Ok(false),
            Written::ConditionFailed(None) => {
                Err(BucketError::Unknown { dimension: dimension.clone(), table: self.table().to_owned() })
            }
        }
    }

    /// Removes a bucket, and what sweeps measured of it; false if there was none. Its leases stay until a
    /// sweep. Takes at most three requests (4.2 s each), and two for each share of a concurrency bucket.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn remove_bucket(&self, dimension: &Dimension) -> Result<bool, StoreError> {
        let shares = match self.bucket(dimension).await {
            Ok(bucket) => bucket.map(|bucket| bucket.slot_shares().to_vec()).unwrap_or_default(),
            Err(BucketError::Store(error)) => return Err(error),
            // Then its shares are not known either.
            Err(_) => Vec::new(),
        };
        let is_removed = self.remove_row(dimension).await?;
        for share in shares {
            self.remove_row(&share.row).await?;
        }
        Ok(is_removed)
    }

    async fn remove_row(&self, dimension: &Dimension) -> Result<bool, StoreError> {
        let removed = self.store.delete_row(dimension.as_str()).await?;
        self.observer.removed(dimension);
        if removed.is_none() {
            return Ok(false);
        }
        // Nothing depends on the load row, and a load is not reported without its bucket
        // ([`Survey::loads`](crate::Survey::loads)). The bucket is gone even if the load row cannot be
        // deleted, or if a sweep or a note that is under way writes the row again.
        if let Err(error) = self.store.delete_row(&Load::key(dimension)).await {
            tracing::debug!(event = "load.left", %dimension, %error);
        }
        Ok(true)
    }
}

fn parse(dimension: &Dimension, row: &Item) -> Result<Bucket, BucketError> {
    let corrupt = |source| BucketError::Corrupt { dimension: dimension.clone(), source };
    Bucket::read(dimension, &Attributes(row)).map_err(corrupt)
}
