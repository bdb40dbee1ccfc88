//! What is counted, measured and traced, through the `metrics` facade, nearly free without a recorder.
//! Imports no feature. Each function is one event; only `sluice_table::metric` names metrics.

use std::time::Duration;

use ::metrics::SharedString;
use sluice_core::{Amount, COMMON, Rate, ShareName};
use sluice_table::metric as names;

use crate::telemetry::label::OTHER;
use crate::telemetry::meters::Meters;

pub(crate) mod emf;
pub(crate) mod label;
pub(crate) mod meters;
pub(crate) mod span;

/// Where the tokens or slots of a grant came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A write of the table.
    Table,
    /// Stock: no request.
    Stock,
    /// A ticket, whose start was booked earlier.
    Ticket,
    /// The process's own share, while DynamoDB is unavailable.
    Local,
    /// Nowhere: shadow mode let the call through.
    Shadow,
}

impl Source {
    const ALL: [Self; 5] = [Self::Table, Self::Stock, Self::Ticket, Self::Local, Self::Shadow];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Stock => "stock",
            Self::Ticket => "ticket",
            Self::Local => "local",
            Self::Shadow => "shadow",
        }
    }
}

/// Registers the counters of a client that have no bucket, at zero. A collector that first sees a counter
/// with its first event does not see that event.
pub(crate) fn begin() {
    for outcome in ["local", "error"] {
        names::UNAVAILABLE.counter([outcome.into()]).increment(0);
    }
    for outcome in ["restored", "nothing", "left", "denied", "failed"] {
        names::HEALS.counter([outcome.into()]).increment(0);
    }
    names::ESTIMATES_CUT.counter([]).increment(0);
}

/// As [`begin`], the counters of a bucket that this process meets: those that alerts look at.
pub(crate) fn meet(bucket: &SharedString) {
    let of_bucket = [
        &names::EXPIRED_BUT_ALIVE,
        &names::COOL_DOWNS,
        &names::LIMIT_NEAR,
        &names::VENDOR_LOWERED,
        &names::VENDOR_LIMIT_LOWER,
        &names::SLOT_TIMEOUTS,
    ];
    of_bucket.into_iter().for_each(|metric| metric.counter([bucket.clone()]).increment(0));
    let of_reason = [
        (&names::GRANTS, &["table"][..]),
        (&names::REFUSALS, &["exhausted", "no_free_slot", "cooling_down", "contended"]),
        (&names::VENDOR_REFUSALS, &["rate", "concurrency", "busy", "quota"]),
        (&names::RELEASES, &["given_back", "failed"]),
    ];
    for (metric, reasons) in of_reason {
        reasons.iter().for_each(|reason| metric.counter([bucket.clone(), (*reason).into()]).increment(0));
    }
    for decision in ["over_slo", "upstream_down"] {
        names::ADMISSION.counter([bucket.clone(), decision.into(), "enforce".into()]).increment(0);
    }
}

pub(crate) fn acquire_failed(took: Duration) {
    names::ACQUIRE_DURATION.histogram([OTHER.into(), "error".into()]).record(took);
}

/// The closure of a slot began, this long after the caller asked for the slot.
pub(crate) fn waited(bucket: SharedString, waited: Duration) {
    names::WAIT.histogram([bucket]).record(waited);
}

pub(crate) fn slot_timed_out(bucket: SharedString) {
    names::SLOT_TIMEOUTS.counter([bucket]).increment(1);
}

/// A call took this from another share's line; `None` is the common line. A part of a token counts as a whole
/// one.
pub(crate) fn borrowed(
    bucket: SharedString,
    share: Option<&ShareName>,
    lender: Option<&ShareName>,
    amount: Amount,
) {
    let labels = [bucket, share_label(share), share_label(lender)];
    names::SHARE_BORROWED.counter(labels).increment(whole_tokens(amount));
}

fn share_label(share: Option<&ShareName>) -> SharedString {
    share.map_or(COMMON.into(), |name| SharedString::from_owned(name.to_string()))
}

fn whole_tokens(amount: Amount) -> u64 {
    u64::try_from(amount.micros()).unwrap_or(0).div_ceil(1_000_000)
}

pub(crate) fn unavailable(outcome: &'static str) {
    names::UNAVAILABLE.counter([outcome.into()]).increment(1);
}

/// Shadow mode let a call through that the bucket would have refused.
pub(crate) fn shadow_refused(bucket: SharedString, reason: &'static str) {
    names::SHADOW_REFUSALS.counter([bucket, reason.into()]).increment(1);
}

/// Shadow mode let a call through that would have waited this long.
pub(crate) fn shadow_wait(bucket: SharedString, wait: Duration) {
    names::SHADOW_WAIT.histogram([bucket]).record(wait);
}

/// The part of the bucket is used at which the process warns.
pub(crate) fn limit_near(bucket: SharedString) {
    names::LIMIT_NEAR.counter([bucket]).increment(1);
}

/// Shadow mode let a call go on although its limiter failed.
pub(crate) fn shadow_error(reason: &'static str) {
    names::SHADOW_ERRORS.counter([reason.into()]).increment(1);
}

/// The release of a part of a grant ended: the part was given back, or not.
pub(crate) fn released(bucket: SharedString, outcome: &'static str) {
    names::RELEASES.counter([bucket, outcome.into()]).increment(1);
}

/// An expired holder found its lease gone.
pub(crate) fn expired_but_alive(bucket: SharedString) {
    names::EXPIRED_BUT_ALIVE.counter([bucket]).increment(1);
}

/// The outcome of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalOutcome {
    Renewed,
    /// The lease had ended and was given back.
    Gone,
    /// The table did not answer.
    Failed,
}

pub(crate) fn renewal(bucket: SharedString, outcome: RenewalOutcome) {
    let outcome = match outcome {
        RenewalOutcome::Renewed => "renewed",
        RenewalOutcome::Gone => "gone",
        RenewalOutcome::Failed => "failed",
    };
    names::RENEWALS.counter([bucket, outcome.into()]).increment(1);
}

/// A call was settled: it was charged what it used.
pub(crate) fn settled(bucket: SharedString, outcome: &'static str) {
    names::SETTLES.counter([bucket, outcome.into()]).increment(1);
}

/// Calls that are over kept these tokens, because nobody said what they used.
pub(crate) fn tokens_unsettled(bucket: SharedString, tokens: u64) {
    names::TOKENS_UNSETTLED.counter([bucket]).increment(tokens);
}

/// A reply was longer than its estimate, and its call is made again.
pub(crate) fn estimate_cut() {
    names::ESTIMATES_CUT.counter([]).increment(1);
}

/// A tracker released this many grants that nobody took.
pub(crate) fn tracker_released(outcome: &'static str, grants: u64) {
    if grants > 0 {
        names::TRACKER_RELEASES.counter([outcome.into()]).increment(grants);
    }
}

/// What a client's trackers hold and may hold, and the share of their age entries that are stale.
pub(crate) fn trackers(reservations: usize, capacity: usize, stale: (usize, usize)) {
    names::TRACKER_RESERVATIONS.gauge([]).set(number(reservations));
    names::TRACKER_CAPACITY.gauge([]).set(number(capacity));
    let (stale, entries) = stale;
    let ratio = if entries == 0 { 0.0 } else { number(stale) / number(entries) };
    names::TRACKER_STALE_RATIO.gauge([]).set(ratio);
}

/// A sweep, or a healing scan, gave back leases of a bucket.
pub(crate) fn restored(bucket: SharedString, leases: usize) {
    names::SWEEP_RESTORED.counter([bucket]).increment(u64::try_from(leases).unwrap_or(u64::MAX));
}

pub(crate) fn cool_down_seen(bucket: SharedString) {
    names::COOL_DOWNS.counter([bucket]).increment(1);
}

pub(crate) fn vendor_refused(bucket: SharedString, reason: &'static str) {
    names::VENDOR_REFUSALS.counter([bucket, reason.into()]).increment(1);
}

/// The vendor reported less than the bucket counts.
pub(crate) fn vendor_lowered(bucket: SharedString) {
    names::VENDOR_LOWERED.counter([bucket]).increment(1);
}

pub(crate) fn vendor_limit_lower(bucket: SharedString) {
    names::VENDOR_LIMIT_LOWER.counter([bucket]).increment(1);
}

/// A header of the vendor could not be read.
pub(crate) fn vendor_unreadable(bucket: SharedString) {
    names::VENDOR_UNREADABLE.counter([bucket]).increment(1);
}

/// A reply reports limits in headers that are not known.
pub(crate) fn vendor_unknown(bucket: SharedString) {
    names::VENDOR_UNKNOWN.counter([bucket]).increment(1);
}

/// Admission decided, in `mode`: `admitted`, the reason for which the request was shed, or `unknown` if the
/// table did not answer.
pub(crate) fn admitted(bucket: SharedString, decision: &'static str, mode: &'static str) {
    names::ADMISSION.counter([bucket, decision.into(), mode.into()]).increment(1);
}

/// This process scanned the table for ended leases (`restored`, `nothing`), left the scan to another process
/// (`left`), or could not scan (`denied`, `failed`).
pub(crate) fn healed(outcome: &'static str) {
    names::HEALS.counter([outcome.into()]).increment(1);
}

/// The load row of a bucket. A bucket without a drain rate yet gets no gauge of it.
pub(crate) fn load(bucket: SharedString, meters: &Meters, pending: Amount, drain_rate: Option<Rate>) {
    meters.mark_load_published();
    names::LOAD_PENDING.gauge([bucket.clone()]).set(number(pending));
    if let Some(rate) = drain_rate {
        names::LOAD_DRAIN_RATE.gauge([bucket]).set(number(rate));
    }
}

/// The level of a bucket, as last seen and refilled since, and its capacity.
pub(crate) fn level(bucket: SharedString, meters: &Meters, level: Amount, capacity: Amount) {
    meters.mark_level_published();
    names::BUCKET_LEVEL.gauge([bucket.clone()]).set(number(level));
    names::BUCKET_CAPACITY.gauge([bucket]).set(number(capacity));
}

/// A bucket is gone: its gauges are set to zero once, if set before: a recorder may then forget them.
pub(crate) fn gone(bucket: SharedString, meters: &Meters) {
    let (level, load) = meters.take_published();
    if level {
        names::BUCKET_LEVEL.gauge([bucket.clone()]).set(0.0);
        names::BUCKET_CAPACITY.gauge([bucket.clone()]).set(0.0);
    }
    if load {
        names::LOAD_PENDING.gauge([bucket.clone()]).set(0.0);
        names::LOAD_DRAIN_RATE.gauge([bucket]).set(0.0);
    }
}

/// An amount or a rate as the double that a gauge takes. No decision rests on it.
pub(crate) fn number(exact: impl ToString) -> f64 {
    exact.to_string().parse().unwrap_or(f64::NAN)
}
