//! One bucket of a picture.

use std::time::Duration;

use serde::Serialize;
use sluice_sdk::core::{Amount, Bucket, CLOCK_ERROR, Lease, Limit, Load, Timestamp};

use super::number::{per_second, seconds, tokens};
use super::used::Used;

/// A bucket as a picture shows it. Amounts are tokens (slots, for concurrency), instants seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BucketView {
    pub(crate) name: String,
    /// `requests`, `tokens` or `concurrent`.
    pub(crate) kind: &'static str,
    pub(crate) capacity: f64,
    /// Tokens a second; 0 for concurrency.
    pub(crate) refill_rate: f64,
    pub(crate) cost_per_call: f64,
    /// Below zero where starts are booked ahead; of concurrency the free slots, above the capacity where slots were minted.
    pub(crate) level: f64,
    /// Seconds until the level reaches what a call takes that names no cost: how long one that comes now waits, behind those who are
    /// booked. 0 where it need not, and for concurrency, where nobody can tell.
    pub(crate) wait_secs: f64,
    /// Tokens, or slots, taken a second since the survey before, less what was given back unused; `None` where two surveys do not say
    /// so.
    pub(crate) used_per_sec: Option<f64>,
    /// Whether it may be more: the bucket was full meanwhile.
    pub(crate) used_is_least: bool,
    /// What it may be at the most.
    #[serde(skip)]
    pub(crate) most_per_sec: Option<f64>,
    /// Time since the survey before, which those figures are of; 0 where there was none.
    #[serde(skip)]
    pub(crate) since_before_secs: f64,
    /// Writes a second since then.
    pub(crate) writes_per_sec: Option<f64>,
    /// The leases that can be read, those that end first in front; at most [`MOST_HOLDERS`].
    pub(crate) holders: Vec<Holder>,
    /// Number of them all.
    pub(crate) leases: usize,
    /// What they hold.
    pub(crate) held: f64,
    /// Number of those that have ended by every clock and are not given back yet; overdue ones are among them.
    pub(crate) ended: usize,
    /// Number of those that are overdue: they ended over two sweeps ago.
    pub(crate) overdue: usize,
    /// What a sweep measured; concurrency alone has it.
    pub(crate) load: Option<LoadView>,
    /// Refusals a second that callers reported since the survey before.
    pub(crate) refused_per_sec: Option<f64>,
    /// Nothing is granted before this; `None` where no cool-down holds.
    pub(crate) cooling_until: Option<f64>,
    /// Slots that the last sweep found lost, or minted (below zero).
    pub(crate) drift: Option<f64>,
    pub(crate) vendor_limit: Option<VendorLimitView>,
    pub(crate) adopts_limit: bool,
    /// Number of writes so far.
    pub(crate) version: i64,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Holder {
    pub(crate) id: String,
    /// Who holds it; an inline lease does not say, nor since when.
    pub(crate) caller: Option<String>,
    pub(crate) cost: f64,
    pub(crate) since: Option<f64>,
    pub(crate) until: f64,
    /// It has ended by every clock, and is not given back yet.
    pub(crate) has_ended: bool,
    /// It was missed by two sweeps of the five-minute rule.
    pub(crate) is_overdue: bool,
    pub(crate) is_inline: bool,
}

/// Of a load row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LoadView {
    /// Cost of the live leases when it was measured.
    pub(crate) pending: f64,
    /// Slots that are taken while nobody has been active for a quarter of an hour.
    pub(crate) leaked: f64,
    /// Slots that come free a second; `None` where none came yet.
    pub(crate) drain_rate: Option<f64>,
    /// `None` where no sweep measured it yet.
    pub(crate) measured_at: Option<f64>,
    pub(crate) sequence: i64,
    pub(crate) pending_since: Option<f64>,
    pub(crate) departed_at: Option<f64>,
    /// Since when slots are taken and neither granted nor given back.
    pub(crate) still_since: Option<f64>,
    /// Processes that want slots, as they counted themselves.
    pub(crate) crowd: usize,
    pub(crate) refused: i64,
    /// Holders found alive after their lease had ended.
    pub(crate) outlived: i64,
}

/// What a vendor reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct VendorLimitView {
    pub(crate) limit: f64,
    /// 0 for concurrency.
    pub(crate) window_secs: f64,
    pub(crate) at: f64,
    /// Whether the bucket gives more than that.
    pub(crate) is_lower: bool,
}

/// A lease that ended so long ago was missed by two sweeps of the five-minute rule; `sluice.bucket.leases_overdue` counts the same.
pub(crate) const OVERDUE: Duration = Duration::from_secs(11 * 60);

/// Most holders of a bucket that a picture names.
pub(crate) const MOST_HOLDERS: usize = 200;

/// What is known of a bucket besides its row.
#[derive(Debug, Default)]
pub(super) struct Beside<'a> {
    pub(super) leases: Vec<(&'a Lease, bool)>,
    pub(super) load: Option<&'a Load>,
    pub(super) before: Option<Before>,
}

/// The survey before.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) at: Timestamp,
    pub(super) bucket: Bucket,
    pub(super) refused: Option<i64>,
}

impl BucketView {
    pub(super) fn new(bucket: &Bucket, at: Timestamp, beside: Beside<'_>) -> Self {
        let Beside { mut leases, load, before } = beside;
        let limit = bucket.limit();
        // Of concurrency as it stands: more free slots than the capacity are worth seeing.
        let level = if limit.is_concurrent() { bucket.tokens() } else { bucket.level(at) };
        let rates = before.map(|before| Rates::between(&before, bucket, load, at)).unwrap_or_default();
        leases.sort_by(|(a, _), (b, _)| (a.ends(), a.created_at(), a.key()).cmp(&(b.ends(), b.created_at(), b.key())));
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
            holders: leases.iter().take(MOST_HOLDERS).map(|(lease, inline)| Holder::new(lease, *inline, at)).collect(),
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
        }
    }

    pub(crate) fn is_concurrent(&self) -> bool {
        self.kind == "concurrent"
    }
}

/// What happened in a second since the survey before.
#[derive(Debug, Default)]
struct Rates {
    secs: f64,
    used: Option<f64>,
    /// As much may have been used.
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
        let used = Used::between(&before.bucket, before.at, bucket);
        Self {
            secs,
            used: used.map(|used| used.least / secs),
            most: used.map(|used| used.most / secs),
            writes: Some(each(bucket.version().saturating_sub(before.bucket.version()))),
            // A bucket whose first refusals made its load row was not refused anything before.
            refused: load.map(|load| each(load.refused().saturating_sub(before.refused.unwrap_or(0)))),
        }
    }
}

fn wait(bucket: &Bucket, at: Timestamp) -> Duration {
    bucket.reaches(bucket.limit().cost_per_call().amount()).map_or(Duration::ZERO, |there| there.since(at))
}

/// The clock of its holder may be behind.
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
            cost: tokens(lease.cost().amount()),
            since: lease.created_at().map(seconds),
            until: seconds(lease.ends()),
            has_ended: has_ended(lease, at),
            is_overdue: is_overdue(lease, at),
            is_inline,
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
            outlived: load.outlived(),
        }
    }
}
