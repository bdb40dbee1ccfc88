//! Counts grants and refusals, each for its buckets.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, Timestamp};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::refusal::RetryIn;
use crate::grant::Grant;
use crate::grant::outcome::Outcome;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part};
use crate::telemetry;
use crate::telemetry::Source;
use crate::telemetry::meters::Handles;

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a measurement tells its figure")]
mod cost;

const fn source_of(part: &Part) -> Source {
    match part.hold {
        Hold::Local => Source::Local,
        _ => Source::Table,
    }
}

/// The metric handles of a bucket. When they are recreated, the level is reported too: a bucket in use needs
/// no task for that.
fn handles(entry: &Entry, at: Instant, now: impl FnOnce() -> Timestamp) -> Arc<Handles> {
    let (handles, are_new) = entry.meters.handles(at, || entry.label());
    if are_new {
        entry.tell_level(now());
    }
    handles
}

/// Counts a call that was granted from stock. Registers and allocates nothing: this is most of what a busy
/// process does.
pub(crate) fn granted_from_stock(entry: &Entry, began: Instant, now: Timestamp) {
    granted_in(entry, Source::Stock, (began, Instant::now()), || now);
}

fn granted_in(entry: &Entry, source: Source, (began, at): (Instant, Instant), now: impl FnOnce() -> Timestamp) {
    let handles = handles(entry, at, now);
    handles.granted(source).increment(1);
    handles.acquired_granted().record(at - began);
}

/// Counts the answer to an acquire that began at `began`.
pub(crate) fn acquired(inner: &Inner, began: Instant, answer: &Result<Outcome, AcquireError>) {
    let at = Instant::now();
    match answer {
        Ok(Outcome::Granted(grant)) => {
            let parts = grant.parts().iter();
            parts.for_each(|part| granted_in(&part.entry, source_of(part), (began, at), || inner.now()));
        }
        Ok(Outcome::RetryIn(retry)) => {
            refused(inner, retry);
            let record = |entry: &Entry| handles(entry, at, || inner.now()).acquired_refused().record(at - began);
            with_entry(inner, &retry.dimension, record);
        }
        Err(_) => telemetry::acquire_failed(at - began),
    }
}

/// Counts a call that may be made, for each bucket that it took from.
pub(crate) fn granted(inner: &Inner, grant: &Grant, source: Option<Source>) {
    let at = Instant::now();
    for part in grant.parts() {
        handles(&part.entry, at, || inner.now()).granted(source.unwrap_or_else(|| source_of(part))).increment(1);
    }
}

/// Counts a refusal.
pub(crate) fn refused(inner: &Inner, retry: &RetryIn) {
    let count = |entry: &Entry| handles(entry, Instant::now(), || inner.now()).refused(retry.reason).increment(1);
    with_entry(inner, &retry.dimension, count);
}

/// Records how long after the request a slot's closure began.
pub(crate) fn waited(grant: &Grant, waited: Duration) {
    grant.parts().iter().for_each(|part| telemetry::waited(part.entry.label(), waited));
}

/// Counts a slot that ended by its timeout, whether or not its closure began.
pub(crate) fn slot_timed_out(inner: &Inner, dimensions: &[Dimension]) {
    for dimension in dimensions {
        with_entry(inner, dimension, |entry| telemetry::slot_timed_out(entry.label()));
    }
}

/// Passes the bucket of `dimension` to `then`, if this process has met the bucket.
fn with_entry(inner: &Inner, dimension: &Dimension, then: impl FnOnce(&Entry)) {
    if let Some(entry) = inner.cache.get(dimension.as_str()) {
        then(&entry);
    }
}
