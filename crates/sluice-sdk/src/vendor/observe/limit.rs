//! The limit that a reply states, beside the bucket's own.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Change, Limit, VendorLimit};
use sluice_table::{Resend, Written};
use sluice_vendors::Reported;

use super::ObservedLimit;
use crate::api::error::AcquireError;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, known, refresh, unknown};
use crate::telemetry;

/// The window of a limit for which the vendor states none.
const MINUTE: Duration = Duration::from_secs(60);
/// A quota of an untold window is compared with buckets that fill within this time.
const UNTOLD_FITS: Duration = Duration::from_secs(5 * 60);
/// A quota that is whole again only after this time is not one of a minute.
const LONGEST_UNTOLD_RESET: Duration = Duration::from_secs(2 * 60);
/// How long the lowest of several reported limits is kept. A longer time is more often out of date; a shorter
/// one writes more if the limits take turns.
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);

/// What the reply says of the bucket's own window: of several families of headers that do, the least that is
/// left and the lowest limit.
pub(crate) fn strictest(limit: &Limit, reported: &[Reported]) -> Reported {
    let fitting = reported.iter().filter(|reported| limit.is_concurrent() || is_same_window(limit, reported));
    let stricter = |all: Reported, one: &Reported| {
        let is_lower = match (all.limit, one.limit) {
            (Some(all_limit), Some(limit)) => {
                per_minute(limit, one.window) < per_minute(all_limit, all.window)
            }
            (all_limit, limit) => all_limit.is_none() && limit.is_some(),
        };
        let is_less_left =
            all.remaining.is_none() || one.remaining.is_some_and(|left| Some(left) < all.remaining);
        let (of_limit, of_level) = (if is_lower { one } else { &all }, if is_less_left { one } else { &all });
        Reported {
            limit: of_limit.limit,
            window: of_limit.window,
            remaining: of_level.remaining,
            rounded_to: of_level.rounded_to,
            in_use: all.in_use.max(one.in_use),
            reset: all.reset.max(one.reset),
        }
    };
    fitting.fold(Reported::default(), stricter)
}

fn per_minute(limit: Amount, window: Option<Duration>) -> i128 {
    let window = i128::try_from(window.unwrap_or(MINUTE).as_micros()).unwrap_or(i128::MAX).max(1);
    i128::from(limit.micros()).saturating_mul(60_000_000) / window
}

/// Whether the reported quota is counted over the bucket's own window, or a similar one: what is left of a
/// day's quota says nothing about a bucket of one minute, and vice versa. A bucket may hold much less than a
/// window allows, to keep bursts small, but hardly more than twelve times as much.
///
/// A quota without a stated window may be one of a minute or of a day. It counts as one of a minute, for
/// buckets that fill within minutes, unless its reset says that it is longer.
fn is_same_window(limit: &Limit, reported: &Reported) -> bool {
    let Some(filled_in) = limit.refill_rate().time_for(limit.capacity()) else { return true };
    match reported.window {
        Some(window) => {
            window <= filled_in.saturating_mul(2).max(MINUTE) && filled_in <= window.saturating_mul(12)
        }
        None => filled_in <= UNTOLD_FITS && reported.reset.is_none_or(|reset| reset <= LONGEST_UNTOLD_RESET),
    }
}

/// Compares the limit that the reply states with the bucket's. The reply was read for a bucket of this
/// `limit`: one that was recreated since may be of another kind, and the window tells them apart.
pub(super) async fn observe_limit(
    inner: &Inner,
    entry: &Entry,
    limit: &Limit,
    reported: &Reported,
) -> Result<ObservedLimit, AcquireError> {
    let Some(vendors) = reported.limit else { return Ok(ObservedLimit::NotSaid) };
    let window = if limit.is_concurrent() { Duration::ZERO } else { reported.window.unwrap_or(MINUTE) };
    let mut bucket = known(inner, entry).await?.bucket;
    if bucket.limit_at_vendor().lowered_to(vendors, window).is_none() {
        return Ok(ObservedLimit::NotLower);
    }
    let now = inner.time().await?;
    // If limits take turns, as of several models behind one bucket, the lowest is kept for a while.
    // A note of slots says nothing about a quota of a window, nor the other way round.
    let is_noted = |noted: VendorLimit| {
        noted.window.is_zero() == window.is_zero()
            && noted.limit <= vendors
            && now.since(noted.at) < NOTED_AGAIN_AFTER
    };
    if !bucket.vendor_limit().is_some_and(is_noted) {
        let ours = bucket.limit_at_vendor().capacity();
        telemetry::vendor_limit_lower(entry.label());
        tracing::warn!(event = "vendor.limit_lower", dimension = %entry.dimension, reported = %vendors, capacity = %ours);
        bucket = note(inner, entry, VendorLimit { limit: vendors, window, at: now }).await?;
    }
    // Shares of slots have rows of their own, and only an operator says how many. At its floor, the bucket
    // costs no request for the replies that follow.
    if bucket.adopted(vendors, window).is_none() || bucket.has_slot_shares() {
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
        if bucket.has_slot_shares() {
            return Ok(false);
        }
        let states_floor = bucket.states_floor();
        let update = match states_floor {
            true => {
                let now = inner.time().await?;
                bucket.split().scaled_to(lower).and_then(|split| Change::split(&bucket, &split, now))
            }
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
