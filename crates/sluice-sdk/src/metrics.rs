//! What the client counts and measures, through the `metrics` facade: who installs no recorder pays for next to nothing.
//!
//! Each function here is one thing that happened. The names stand in one table ([`METRICS`]), and nothing else names a metric.

use std::time::Duration;

use sluice_core::{Amount, Dimension, Rate, Timestamp};
use tokio::time::Instant;

use crate::acquire::AcquireError;
use crate::cache::Entry;
use crate::client::Inner;
use crate::give_back::Released;
use crate::grant::{Grant, Hold, Part};
use crate::outcome::{Outcome, RetryIn};
use crate::settle::Settled;
use crate::sweep::SweepReport;
use crate::tracker::{StaleReport, Totals};

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a measurement tells its figure")]
mod cost;
mod fleet;
mod label;
mod meters;

pub(crate) use label::{BucketLabel, Named, OTHER};
pub(crate) use meters::Meters;
use sluice_table::metric as names;

/// Where the tokens or slots of a grant came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A write of the table.
    Table,
    /// Stock: no request.
    Stock,
    /// A ticket, whose start was booked before.
    Ticket,
    /// The process's own share, while DynamoDB is out.
    Local,
}

impl Source {
    const ALL: [Self; 4] = [Self::Table, Self::Stock, Self::Ticket, Self::Local];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Stock => "stock",
            Self::Ticket => "ticket",
            Self::Local => "local",
        }
    }

    const fn of(part: &Part) -> Self {
        match part.hold {
            Hold::Local => Self::Local,
            _ => Self::Table,
        }
    }
}

/// One call was granted out of stock. Nothing is registered and nothing allocated: this is most of what a busy process does.
pub(crate) fn granted_from_stock(entry: &Entry, began: Instant, now: Timestamp) {
    granted_in(entry, Source::Stock, (began, Instant::now()), || now);
}

fn granted_in(entry: &Entry, source: Source, (began, at): (Instant, Instant), now: impl FnOnce() -> Timestamp) {
    let handles = Meters::of(entry, at, now);
    handles.granted(source).increment(1);
    handles.acquired_granted().record(at - began);
}

/// An acquire was answered: what was asked for, when, and the answer.
pub(crate) fn acquired(inner: &Inner, began: Instant, answer: &Result<Outcome, AcquireError>) {
    let at = Instant::now();
    match answer {
        Ok(Outcome::Granted(grant)) => {
            let parts = grant.parts().iter();
            parts.for_each(|part| granted_in(&part.entry, Source::of(part), (began, at), || inner.now()));
        }
        Ok(Outcome::RetryIn(retry)) => {
            refused(inner, retry);
            let record = |entry: &Entry| Meters::of(entry, at, || inner.now()).acquired_refused().record(at - began);
            with_entry(inner, &retry.dimension, record);
        }
        Err(_) => names::ACQUIRE_DURATION.histogram([OTHER.into(), "error".into()]).record(at - began),
    }
}

/// A call may be made: counted for each bucket that it took from.
pub(crate) fn granted(inner: &Inner, grant: &Grant, source: Option<Source>) {
    let at = Instant::now();
    for part in grant.parts() {
        Meters::of(&part.entry, at, || inner.now()).granted(source.unwrap_or_else(|| Source::of(part))).increment(1);
    }
}

/// A caller was told to come back later.
pub(crate) fn refused(inner: &Inner, retry: &RetryIn) {
    let count = |entry: &Entry| Meters::of(entry, Instant::now(), || inner.now()).refused(retry.reason).increment(1);
    with_entry(inner, &retry.dimension, count);
}

/// A slot's closure began, so long after it was asked for.
pub(crate) fn waited(grant: &Grant, waited: Duration) {
    for part in grant.parts() {
        names::WAIT.histogram([part.entry.label()]).record(waited);
    }
}

/// A slot ended by its timeout, its closure begun or not.
pub(crate) fn slot_timed_out(inner: &Inner, dimensions: &[Dimension]) {
    for dimension in dimensions {
        with_entry(inner, dimension, |entry| names::SLOT_TIMEOUTS.counter([entry.label()]).increment(1));
    }
}

/// DynamoDB was out: whether a local answer was given.
pub(crate) fn unavailable(outcome: &'static str) {
    names::UNAVAILABLE.counter([outcome.into()]).increment(1);
}

/// A part of a grant was given back, or not.
pub(crate) fn released<E>(part: &Part, released: &Result<Released, E>) {
    released_of(&part.entry, released);
}

fn released_of<E>(entry: &Entry, released: &Result<Released, E>) {
    names::RELEASES.counter([entry.label(), name_of(released).into()]).increment(1);
}

/// The end of a release as metrics and spans name it.
pub(crate) const fn name_of<E>(released: &Result<Released, E>) -> &'static str {
    match released {
        Ok(Released::GivenBack) => "given_back",
        Ok(Released::AlreadyCapped) => "already_capped",
        Ok(Released::LeaseGone) => "lease_gone",
        Err(_) => "failed",
    }
}

/// A holder that is alive found its lease gone.
pub(crate) fn expired_but_alive(entry: &Entry) {
    names::EXPIRED_BUT_ALIVE.counter([entry.label()]).increment(1);
}

/// What became of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    /// The lease had ended and was given back.
    Gone,
    /// The table did not answer.
    Failed,
}

pub(crate) fn renewal(entry: &Entry, renewal: Renewal) {
    let outcome = match renewal {
        Renewal::Renewed => "renewed",
        Renewal::Gone => "gone",
        Renewal::Failed => "failed",
    };
    names::RENEWALS.counter([entry.label(), outcome.into()]).increment(1);
}

/// A call was charged what it used.
pub(crate) fn settled<E>(entry: &Entry, settled: &Result<Settled, E>) {
    let outcome = match settled {
        Ok(Settled::AsTaken) => "as_taken",
        Ok(Settled::Returned(_)) => "returned",
        Ok(Settled::Owed(_)) => "owed",
        Err(_) => "failed",
    };
    names::SETTLES.counter([entry.label(), outcome.into()]).increment(1);
}

/// A tracker released a grant that nobody took.
pub(crate) fn tracker_released(report: StaleReport) {
    for (outcome, count) in [("given_back", report.given_back), ("late", report.late), ("failed", report.failed)] {
        if count > 0 {
            names::TRACKER_RELEASES.counter([outcome.into()]).increment(count);
        }
    }
}

/// What the trackers of a client hold together, where it has any.
pub(crate) fn trackers(totals: Totals) {
    if totals.trackers == 0 {
        return;
    }
    names::TRACKER_RESERVATIONS.gauge([]).set(number(totals.reservations));
    names::TRACKER_CAPACITY.gauge([]).set(number(totals.capacity));
    let ratio = if totals.entries == 0 { 0.0 } else { number(totals.stale_entries) / number(totals.entries) };
    names::TRACKER_STALE_RATIO.gauge([]).set(ratio);
}

/// A sweep of this process came to its end.
pub(crate) fn swept(report: &SweepReport, outcome: &'static str) {
    names::SWEEP_DURATION.histogram([outcome.into()]).record(report.duration);
}

/// A sweep, or a healing scan, gave back leases of a bucket.
pub(crate) fn restored(label: ::metrics::SharedString, leases: usize) {
    names::SWEEP_RESTORED.counter([label]).increment(u64::try_from(leases).unwrap_or(u64::MAX));
}

/// A cool-down that this process did not know of.
pub(crate) fn cool_down_heard(entry: &Entry) {
    names::COOL_DOWNS.counter([entry.label()]).increment(1);
}

/// The vendor refused a call.
pub(crate) fn vendor_refused(entry: &Entry, reason: &'static str) {
    names::VENDOR_REFUSALS.counter([entry.label(), reason.into()]).increment(1);
}

/// The vendor said less than the bucket counts.
pub(crate) fn vendor_lowered(entry: &Entry) {
    names::VENDOR_LOWERED.counter([entry.label()]).increment(1);
}

/// The vendor's limit is below the bucket's.
pub(crate) fn vendor_limit_lower(entry: &Entry) {
    names::VENDOR_LIMIT_LOWER.counter([entry.label()]).increment(1);
}

/// A header of the vendor's could not be read.
pub(crate) fn vendor_unreadable(inner: &Inner, dimension: &Dimension) {
    names::VENDOR_UNREADABLE.counter([inner.entry(dimension).label()]).increment(1);
}

/// Admission decided: `admitted`, why it was shed, or `unknown` where the table did not answer; in which mode.
pub(crate) fn admitted(entry: &Entry, decision: &'static str, mode: &'static str) {
    names::ADMISSION.counter([entry.label(), decision.into(), mode.into()]).increment(1);
}

/// This process scanned the table for ended leases (`restored`, `nothing`), or left it to another (`left`); or could not (`denied`,
/// `failed`).
pub(crate) fn healed(outcome: &'static str) {
    names::HEALS.counter([outcome.into()]).increment(1);
}

/// What the load row says of the bucket. A bucket without a rate yet has none.
pub(crate) fn load(entry: &Entry, pending: Amount, drain_rate: Option<Rate>) {
    // A bucket that was measured is there, though this process may never have read its row.
    let label = entry.swept_label();
    if *label == *OTHER {
        return;
    }
    entry.meters.told_load();
    names::LOAD_PENDING.gauge([label.clone()]).set(number(pending));
    if let Some(rate) = drain_rate {
        names::LOAD_DRAIN_RATE.gauge([label]).set(number(rate));
    }
}

/// What the bucket holds, as last seen and refilled since.
pub(crate) fn level(entry: &Entry, level: Amount, capacity: Amount) {
    let Some(label) = entry.own_label() else { return };
    entry.meters.told_level();
    names::BUCKET_LEVEL.gauge([label.clone()]).set(number(level));
    names::BUCKET_CAPACITY.gauge([label]).set(number(capacity));
}

/// The bucket is not there any more: it holds nothing, of nothing. Told once where it was told before, and then no more, so that a recorder
/// which forgets idle metrics may forget it.
pub(crate) fn gone(entry: &Entry) {
    let Some(label) = entry.own_label() else { return };
    let (level, load) = entry.meters.take_told();
    if level {
        names::BUCKET_LEVEL.gauge([label.clone()]).set(0.0);
        names::BUCKET_CAPACITY.gauge([label.clone()]).set(0.0);
    }
    if load {
        names::LOAD_PENDING.gauge([label.clone()]).set(0.0);
        names::LOAD_DRAIN_RATE.gauge([label]).set(0.0);
    }
}

/// The bucket of a dimension that was met; nothing where it never was.
fn with_entry(inner: &Inner, dimension: &Dimension, then: impl FnOnce(&Entry)) {
    if let Some(entry) = inner.cache.get(dimension.as_str()) {
        then(&entry);
    }
}

/// An amount or a rate as a gauge has it: a double. No decision rests on it.
pub(crate) fn number(exact: impl ToString) -> f64 {
    exact.to_string().parse().unwrap_or(f64::NAN)
}
