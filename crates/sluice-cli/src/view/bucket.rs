//! One bucket of a picture.

use std::time::Duration;

use serde::Serialize;
use sluice_sdk::core::{Amount, Bucket, CLOCK_ERROR, Lease, Limit, Load, NOTE_EVERY, SlotLine, Timestamp};

use super::number::{per_second, seconds, tokens};
use super::share::ShareView;
use super::used::UseBounds;

/// A bucket in a picture, in JSON with the words of `buckets list` and `leases`. Amounts are tokens or slots;
/// instants are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BucketView {
    #[serde(rename = "dimension")]
    pub(crate) name: String,
    /// `requests`, `tokens` or `concurrent`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) capacity: f64,
    /// Tokens a second; 0 for concurrency.
    pub(crate) refill_rate: f64,
    pub(crate) cost_per_call: f64,
    /// Below zero if starts are booked ahead. For concurrency, the free slots: above the capacity if slots
    /// were minted.
    pub(crate) level: f64,
    /// Seconds until the level reaches the default cost: how long a call that comes now waits behind the
    /// booked ones. 0 if not at all, and for concurrency, where it is unknown.
    pub(crate) wait_secs: f64,
    /// Tokens or slots taken per second since the previous survey, less returns; `None` if unknown.
    pub(crate) used_per_sec: Option<f64>,
    /// Whether the real figure may be higher, because the bucket was full in between.
    pub(crate) used_is_least: bool,
    /// The highest possible value of that figure.
    #[serde(skip)]
    pub(crate) most_per_sec: Option<f64>,
    /// The time since the previous survey, which those figures cover; 0 if there was none.
    #[serde(skip)]
    pub(crate) since_before_secs: f64,
    /// Writes per second since the previous survey.
    pub(crate) writes_per_sec: Option<f64>,
    /// The readable leases, those that end first in front; at most [`MOST_HOLDERS`].
    pub(crate) holders: Vec<Holder>,
    /// Number of all leases.
    pub(crate) leases: usize,
    /// The total that the leases hold.
    pub(crate) held: f64,
    /// Number of leases that have ended by every clock and are not given back yet; includes the overdue ones.
    pub(crate) ended: usize,
    /// Number of overdue leases: they ended over two sweeps ago.
    pub(crate) overdue: usize,
    /// The measurement of a sweep; only for concurrency.
    pub(crate) load: Option<LoadView>,
    /// Refusals per second for want of a slot, as callers reported them in the last 16 s; `None` for a rate
    /// bucket, whose refusals are not in the table.
    pub(crate) refused_per_sec: Option<f64>,
    /// Nothing is granted before this instant; `None` without a cool-down.
    #[serde(rename = "blocked_until")]
    pub(crate) cooling_until: Option<f64>,
    /// Slots that the last sweep found lost, or minted (below zero).
    pub(crate) drift: Option<f64>,
    pub(crate) vendor_limit: Option<VendorLimitView>,
    #[serde(rename = "adopt_lower_limit")]
    pub(crate) adopts_limit: bool,
    /// Number of writes so far.
    pub(crate) version: i64,
    /// Its shares, and the part that no share has; none of a bucket without shares.
    pub(crate) shares: Vec<ShareView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Holder {
    pub(crate) id: String,
    /// The caller's name. An inline lease does not state it, nor when it began.
    pub(crate) caller: Option<String>,
    /// The share whose caller borrowed the slots; `common` for the part that no share has.
    pub(crate) borrowed_by: Option<String>,
    pub(crate) cost: f64,
    pub(crate) created_at: Option<f64>,
    pub(crate) ends: f64,
    /// The lease has ended by every clock, and is not given back yet.
    pub(crate) ended: bool,
    /// Two sweeps of the five-minute rule missed the lease.
    pub(crate) overdue: bool,
    pub(crate) inline: bool,
}

/// The contents of a load row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LoadView {
    /// The cost of the live leases, when it was measured.
    pub(crate) pending: f64,
    /// Slots that are held although nobody has been active for a quarter of an hour.
    pub(crate) leaked: f64,
    /// Slots that come free per second; `None` if none has come free yet.
    pub(crate) drain_rate: Option<f64>,
    /// `None` if no sweep has measured it yet.
    pub(crate) measured_at: Option<f64>,
    pub(crate) sequence: i64,
    pub(crate) pending_since: Option<f64>,
    pub(crate) departed_at: Option<f64>,
    /// Since when slots are held, but none is granted or given back.
    pub(crate) still_since: Option<f64>,
    /// Processes that want slots, as they counted themselves.
    pub(crate) crowd: usize,
    pub(crate) refused: i64,
    /// Holders that were found alive after their lease had ended.
    #[serde(rename = "outlived")]
    pub(crate) expired_holders: i64,
}

/// The limit that a vendor reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct VendorLimitView {
    pub(crate) limit: f64,
    /// 0 for concurrency.
    pub(crate) window_secs: f64,
    pub(crate) at: f64,
    /// Whether the bucket's limit is above the vendor's.
    pub(crate) is_lower: bool,
}

/// Two sweeps of the five-minute rule missed a lease that ended this long ago. `sluice.bucket.leases_overdue`
/// counts the same.
pub(crate) const OVERDUE: Duration = Duration::from_secs(11 * 60);

/// The most holders of a bucket that a picture names.
pub(crate) const MOST_HOLDERS: usize = 200;

/// What the other rows say of a bucket.
#[derive(Debug, Default)]
pub(super) struct OtherRows<'a> {
    pub(super) leases: Vec<(&'a Lease, bool)>,
    pub(super) load: Option<&'a Load>,
    /// Of a concurrency bucket with shares.
    pub(super) slot_lines: Vec<SlotLine>,
    pub(super) before: Option<Before>,
}

/// The previous survey.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) at: Timestamp,
    pub(super) bucket: Bucket,
    /// The refusals that callers had reported at each survey of the last [`REFUSED_OVER`], oldest first.
    pub(super) refused: Vec<(Timestamp, i64)>,
}

/// The time over which refusals are counted. A caller reports them every [`NOTE_EVERY`]: in a shorter time,
/// there would be none between two reports.
pub(super) const REFUSED_OVER: Duration = NOTE_EVERY.saturating_mul(2);

impl BucketView {
    pub(super) fn new(bucket: &Bucket, at: Timestamp, other_rows: OtherRows<'_>) -> Self {
        let OtherRows { mut leases, load, slot_lines, before } = other_rows;
        let limit = &bucket.whole_limit();
        // Of a rate bucket, the row has what each caller used; no sweep measures it, and nobody notes its
        // refusals.
        let load = load.filter(|_| limit.is_concurrent());
        let shares = match slot_lines.is_empty() {
            true => ShareView::all(bucket, before.as_ref().map(|before| (&before.bucket, before.at)), at),
            false => slot_lines.iter().map(ShareView::of_slots).collect(),
        };
        // For concurrency the level as stored: the reader should see it if there are more free slots than the
        // capacity.
        let level = if limit.is_concurrent() { bucket.tokens() } else { bucket.whole_level(at) };
        let rates = before.map(|before| Rates::between(&before, bucket, load, at)).unwrap_or_default();
        leases.sort_by(|(a, _), (b, _)| {
            (a.ends(), a.created_at(), a.key()).cmp(&(b.ends(), b.created_at(), b.key()))
        });
        let held = leases.iter().fold(Amount::ZERO, |sum, (lease, _)| sum.plus(lease.cost().amount()));
        Self {
            name: bucket.dimension().to_string(),
            kind: limit.limit_type().as_str(),
            capacity: tokens(limit.capacity()),
            refill_rate: per_second(limit.refill_rate()),
            cost_per_call: tokens(limit.cost_per_call().amount()),
            level: tokens(level),
            wait_secs: if limit.is_concurrent() { 0.0 } else { wait(bucket, at).as_secs_f64() },
            used_per_sec: rates.used,
            used_is_least: rates.most > rates.used,
            most_per_sec: rates.most,
            since_before_secs: rates.secs,
            writes_per_sec: rates.writes,
            holders: leases
                .iter()
                .take(MOST_HOLDERS)
                .map(|(lease, inline)| Holder::new(lease, *inline, at))
                .collect(),
            leases: leases.len(),
            held: tokens(held),
            ended: leases.iter().filter(|(lease, _)| has_ended(lease, at)).count(),
            overdue: leases.iter().filter(|(lease, _)| is_overdue(lease, at)).count(),
            load: load.map(|load| LoadView::new(load, at)),
            refused_per_sec: rates.refused,
            cooling_until: bucket.blocked_until().filter(|until| *until > at).map(seconds),
            drift: bucket.noted_drift().map(tokens),
            vendor_limit: vendor_limit(bucket, limit),
            adopts_limit: bucket.adopts_limit(),
            version: bucket.version(),
            shares,
        }
    }

    pub(crate) fn is_concurrent(&self) -> bool {
        self.kind == "concurrent"
    }
}

/// Rates per second since the previous survey.
#[derive(Debug, Default)]
struct Rates {
    secs: f64,
    used: Option<f64>,
    /// The highest possible use.
    most: Option<f64>,
    writes: Option<f64>,
    refused: Option<f64>,
}

impl Rates {
    #[allow(clippy::cast_precision_loss)]
    fn between(before: &Before, bucket: &Bucket, load: Option<&Load>, at: Timestamp) -> Self {
        let secs = at.since(before.at).as_secs_f64();
        if secs <= 0.0 {
            return Self::default();
        }
        let each = |count: i64| count.max(0) as f64 / secs;
        let used = UseBounds::between(&before.bucket, before.at, bucket);
        Self {
            secs,
            used: used.map(|used| used.least / secs),
            most: used.map(|used| used.most / secs),
            writes: Some(each(bucket.version().saturating_sub(before.bucket.version()))),
            refused: load.zip(before.refused.first()).map(|(load, (since, count))| {
                load.refused().saturating_sub(*count).max(0) as f64 / at.since(*since).as_secs_f64()
            }),
        }
    }
}

/// With shares, each has a next start of its own.
fn wait(bucket: &Bucket, at: Timestamp) -> Duration {
    if bucket.has_shares() {
        return Duration::ZERO;
    }
    bucket.reaches(bucket.limit().cost_per_call().amount()).map_or(Duration::ZERO, |there| there.since(at))
}

/// The holder's clock may be behind.
pub(crate) fn has_ended(lease: &Lease, at: Timestamp) -> bool {
    lease.ends().after(CLOCK_ERROR) < at
}

pub(crate) fn is_overdue(lease: &Lease, at: Timestamp) -> bool {
    at.since(lease.ends()) > OVERDUE
}

fn vendor_limit(bucket: &Bucket, limit: &Limit) -> Option<VendorLimitView> {
    bucket.vendor_limit().map(|reported| VendorLimitView {
        limit: tokens(reported.limit),
        window_secs: reported.window.as_secs_f64(),
        at: seconds(reported.at),
        is_lower: limit.lowered_to(reported.limit, reported.window).is_some(),
    })
}

impl Holder {
    fn new(lease: &Lease, is_inline: bool, at: Timestamp) -> Self {
        Self {
            id: lease.id().to_owned(),
            caller: lease.caller().map(str::to_owned),
            borrowed_by: lease.borrowed_by().map(str::to_owned),
            cost: tokens(lease.cost().amount()),
            created_at: lease.created_at().map(seconds),
            ends: seconds(lease.ends()),
            ended: has_ended(lease, at),
            overdue: is_overdue(lease, at),
            inline: is_inline,
        }
    }
}

impl LoadView {
    fn new(load: &Load, at: Timestamp) -> Self {
        Self {
            pending: tokens(load.pending()),
            leaked: tokens(load.leaked()),
            drain_rate: load.drain_rate().map(per_second),
            measured_at: load.measured_at().map(seconds),
            sequence: load.sequence(),
            pending_since: load.pending_since().map(seconds),
            departed_at: load.departed_at().map(seconds),
            still_since: load.still_since().map(seconds),
            crowd: usize::try_from(load.crowd(at)).unwrap_or(usize::MAX),
            refused: load.refused(),
            expired_holders: load.expired_holders(),
        }
    }
}
