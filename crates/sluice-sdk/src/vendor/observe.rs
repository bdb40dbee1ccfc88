use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Change, Cost, Dimension, Limit, LimitType, Observation, RatePlanner, RateReceipt, Remaining,
    Timestamp, VendorLimit,
};
use sluice_table::{Resend, Written};
use sluice_vendors::{Headers, Quota, Reported, Vendor};
use tokio::time::timeout;

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::client::Client;
use crate::grant::Grant;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part};
use crate::lane::reading::{apply_read, known, refresh, unknown};
use crate::telemetry;

/// The reply to the latest call of a bucket. Locked while a vendor's reply is compared with the bucket.
#[derive(Debug, Default)]
struct LatestReply(tokio::sync::Mutex<Option<Remaining>>);

/// What a vendor's reply said about one bucket, and what it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// The effect of the remaining quota that the vendor reported.
    pub level: ObservedLevel,
    /// The effect of the limit that the vendor reported.
    pub limit: ObservedLimit,
    /// Number of headers that could not be read. They changed nothing.
    pub unreadable: usize,
}

/// What the vendor's count did to the bucket's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservedLevel {
    /// The reply did not say what is left, or the bucket is a concurrency bucket, whose slots leases count.
    NotSaid,
    /// No grant was named, or one made while DynamoDB was out, so it is unknown which calls the vendor had
    /// counted.
    NoGrant,
    /// The bucket is as low as the vendor says, or lower, to within one call. No request was needed.
    Agrees,
    /// The bucket was lowered by this amount.
    Lowered(Amount),
    /// The reply is older than what happened to the bucket since. Or the grant was taken in a transaction
    /// (`SLUICE_LEASES=all`, or a slot with its tokens) or carried as a ticket, so it is unknown which calls
    /// the vendor counted.
    Stale,
}

/// How the vendor's limit compares with the bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObservedLimit {
    /// The reply did not state a limit.
    NotSaid,
    /// The vendor's limit is the bucket's limit, or higher.
    NotLower,
    /// The vendor's limit is lower than the bucket's. It is noted in the bucket's row, for `sluice doctor`.
    Lower(Amount),
    /// The vendor's lower limit is the bucket's now, as the bucket asks for (`adopt_lower_limit`). If the
    /// bucket's floor (`adopt_at_least`) is higher, the floor is the bucket's limit.
    Adopted(Amount),
}

/// The position of a call among those that the bucket counts.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) dimension: Dimension,
    receipt: RateReceipt,
    pub(crate) start: Timestamp,
}

impl Mark {
    pub(crate) const fn cost(&self) -> Cost {
        self.receipt.cost()
    }

    pub(crate) fn of(part: &Part) -> Option<Self> {
        let Hold::Tokens { receipt, .. } = &part.hold else { return None };
        Some(Self { dimension: part.entry.dimension.clone(), receipt: receipt.clone(), start: part.start_at })
    }
}

/// The window of a limit for which the vendor states none.
const MINUTE: Duration = Duration::from_secs(60);
/// How long the lowest of several reported limits is kept. A longer time is more often out of date; a shorter
/// one writes more if the limits take turns.
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);

impl Client {
    /// Applies the rate-limit headers of a vendor's reply to a call made under `grant`. The first part of the
    /// dimension's name identifies the vendor: see [`Vendor::of`].
    ///
    /// If the vendor has less left than the bucket counts, a write lowers the bucket; it is never raised.
    /// Calls that the vendor has not counted yet stay counted once, whatever the order of replies. A lower
    /// limit is reported (event `vendor.limit_lower`, metric `sluice.vendor.limit_lower`, `sluice doctor`),
    /// and becomes the bucket's if the bucket says so. Missing or unreadable headers change nothing. If both
    /// agree, no request is made.
    ///
    /// Takes at most an attempt (1 s) and a request (4.2 s) while DynamoDB does not answer, and an attempt
    /// and seven requests while others conflict. In the second case, an unknown bucket takes one more of
    /// each.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, one of which the grant holds nothing
    /// ([`RequestError::NotHeld`]), a row that cannot be read, or a table that does not answer.
    pub async fn observe(
        &self,
        dimension: &str,
        headers: &impl Headers,
        grant: Option<&Grant>,
    ) -> Result<Observed, AcquireError> {
        let Some(grant) = grant.filter(|grant| grant.basis() == Basis::Table) else {
            return observe(&self.inner, dimension, headers, None).await;
        };
        let part = grant.parts().iter().find(|part| part.entry.dimension.as_str() == dimension);
        let part = part.ok_or_else(|| RequestError::NotHeld(dimension.to_owned()))?;
        observe(&self.inner, dimension, headers, Mark::of(part)).await
    }
}

pub(crate) async fn observe(
    inner: &Inner,
    dimension: &str,
    headers: &impl Headers,
    mark: Option<Mark>,
) -> Result<Observed, AcquireError> {
    let dimension = Dimension::new(dimension).map_err(RequestError::from)?;
    let entry = inner.entry(&dimension);
    let limit = *known(inner, &entry).await?.bucket.limit();
    entry.unsettled.heard();
    let quota = Quota::of(&dimension, limit.limit_type());
    let reading = sluice_vendors::read(Vendor::of(&dimension), quota, headers, inner.now());
    for unreadable in &reading.unreadable {
        telemetry::vendor_unreadable(entry.label());
        tracing::warn!(event = "vendor.unreadable_header", %dimension, %unreadable);
    }
    // Of many replies, the first lowers the bucket. One that hangs delays the others by one attempt at most.
    let latest = entry.extensions.of::<LatestReply>();
    let mut in_turn = timeout(inner.store.attempt().of_rows(), latest.0.lock()).await.ok();
    let level = observe_level(inner, &entry, &limit, &reading.reported, mark, in_turn.as_deref_mut()).await?;
    let limit = observe_limit(inner, &entry, &reading.reported).await?;
    Ok(Observed { level, limit, unreadable: reading.unreadable.len() })
}

async fn observe_level(
    inner: &Inner,
    entry: &Entry,
    limit: &Limit,
    reported: &Reported,
    mark: Option<Mark>,
    newest: Option<&mut Option<Remaining>>,
) -> Result<ObservedLevel, AcquireError> {
    let Some(left) = reported.remaining.filter(|_| !limit.is_concurrent() && is_same_window(limit, reported)) else {
        return Ok(ObservedLevel::NotSaid);
    };
    let Some(mark) = mark else { return Ok(ObservedLevel::NoGrant) };
    // Up to half of the unit to which the vendor rounds may be left in addition.
    let rounded_to = Vendor::of(&entry.dimension).profile().remaining_rounded_to.map(|to| to.value);
    let rounded_to = rounded_to.filter(|_| limit.limit_type() == LimitType::Tokens).unwrap_or_default();
    let left = left.plus(rounded_to.half());
    let remaining = Remaining { receipt: mark.receipt, start: mark.start, left };
    if let Some(newest) = newest {
        // The row knows the newest reply that lowered it; only the process knows the replies that agreed.
        if newest.as_ref().is_some_and(|newest| remaining.is_older_than(newest)) {
            return Ok(ObservedLevel::Stale);
        }
        if remaining.receipt.is_shown() {
            *newest = Some(remaining.clone());
        }
    }
    let mut tries = inner.store.tries();
    while tries.another() {
        let bucket = known(inner, entry).await?.bucket;
        let (by, update) = match RatePlanner::new(&bucket).observe(&remaining, inner.time().await?) {
            Observation::Agrees => return Ok(ObservedLevel::Agrees),
            Observation::Stale => return Ok(ObservedLevel::Stale),
            Observation::Lower(by, update) => (by, update),
        };
        // If the write is sent again after a lost reply, it fails on its own condition.
        match inner.store.update(&update, Resend::Always).await? {
            Written::Applied(row) => {
                let after = crate::lane::reading::parse(&entry.dimension, &row)?;
                entry.apply_write(Arc::new(after), inner.now());
                telemetry::vendor_lowered(entry.label());
                tracing::info!(event = "vendor.lowered", dimension = %entry.dimension, %by, vendor_left = %left);
                return Ok(ObservedLevel::Lowered(by));
            }
            Written::ConditionFailed(Some(row)) => drop(apply_read(inner, entry, &row)?),
            Written::ConditionFailed(None) => return Err(unknown(inner, entry)),
        }
    }
    Ok(ObservedLevel::Stale)
}

/// Whether the reported quota is counted over the bucket's own window, or a similar one: what is left of a
/// day's quota says nothing about a bucket of one minute, and vice versa. A bucket may hold much less than a
/// window allows, to keep bursts small, but hardly more than twelve times as much. A quota without a stated
/// window counts as one of a minute, and also fits a longer window.
pub(crate) fn is_same_window(limit: &Limit, reported: &Reported) -> bool {
    let window = reported.window.unwrap_or(MINUTE);
    let Some(filled_in) = limit.refill_rate().time_for(limit.capacity()) else { return true };
    let is_long_enough = reported.window.is_none() || filled_in <= window.saturating_mul(12);
    window <= filled_in.saturating_mul(2).max(MINUTE) && is_long_enough
}

async fn observe_limit(inner: &Inner, entry: &Entry, reported: &Reported) -> Result<ObservedLimit, AcquireError> {
    let mut bucket = known(inner, entry).await?.bucket;
    let is_concurrent = bucket.limit().is_concurrent();
    let Some(vendors) = reported.limit.filter(|_| is_concurrent || is_same_window(bucket.limit(), reported)) else {
        return Ok(ObservedLimit::NotSaid);
    };
    let window = if is_concurrent { Duration::ZERO } else { reported.window.unwrap_or(MINUTE) };
    if bucket.limit().lowered_to(vendors, window).is_none() {
        return Ok(ObservedLimit::NotLower);
    }
    let now = inner.time().await?;
    // If limits take turns, as of several models behind one bucket, the lowest is kept for a while.
    let is_noted = |noted: VendorLimit| noted.limit <= vendors && now.since(noted.at) < NOTED_AGAIN_AFTER;
    if !bucket.vendor_limit().is_some_and(is_noted) {
        let ours = bucket.limit().capacity();
        telemetry::vendor_limit_lower(entry.label());
        tracing::warn!(event = "vendor.limit_lower", dimension = %entry.dimension, reported = %vendors, capacity = %ours);
        bucket = note(inner, entry, VendorLimit { limit: vendors, window, at: now }).await?;
    }
    // At its floor, the bucket costs no request for the replies that follow.
    if bucket.adopted(vendors, window).is_none() {
        return Ok(ObservedLimit::Lower(vendors));
    }
    // An operator may have switched adoption off, or another process was faster.
    bucket = refresh(inner, entry).await?.bucket;
    Ok(match adopt(inner, entry, bucket, vendors, window).await? {
        true => ObservedLimit::Adopted(vendors),
        false => ObservedLimit::Lower(vendors),
    })
}

async fn note(inner: &Inner, entry: &Entry, reported: VendorLimit) -> Result<Arc<Bucket>, AcquireError> {
    let update = sluice_core::note_limit(&entry.dimension, reported);
    match inner.store.update(&update, Resend::Always).await? {
        Written::Applied(row) => apply_read(inner, entry, &row),
        Written::ConditionFailed(_) => Err(unknown(inner, entry)),
    }
}

/// Whether the bucket's limit is now what the vendor reports, or the bucket's floor.
async fn adopt(
    inner: &Inner,
    entry: &Entry,
    mut bucket: Arc<Bucket>,
    vendors: Amount,
    window: Duration,
) -> Result<bool, AcquireError> {
    let mut tries = inner.store.tries();
    while tries.another() {
        let Some(lower) = bucket.adopted(vendors, window) else { return Ok(bucket.adopts_limit()) };
        let states_floor = bucket.states_floor();
        let update = match states_floor {
            true => Change::plan(&bucket, &lower, inner.time().await?),
            false => Ok(sluice_core::state_floor(&bucket)),
        };
        let Ok(update) = update else { return Ok(false) };
        match inner.store.update(&update, Resend::Always).await? {
            Written::Applied(row) => {
                bucket = apply_read(inner, entry, &row)?;
                if states_floor {
                    tracing::warn!(event = "vendor.limit_adopted", dimension = %entry.dimension, capacity = %lower.capacity());
                    return Ok(true);
                }
            }
            // Another process was faster, or an operator changed the limit.
            Written::ConditionFailed(Some(row)) => bucket = apply_read(inner, entry, &row)?,
            Written::ConditionFailed(None) => return Err(unknown(inner, entry)),
        }
    }
    Ok(false)
}
