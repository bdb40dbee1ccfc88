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
use crate::lane::noted_use;
use crate::lane::part::{Hold, Part};
use crate::telemetry;
use crate::telemetry::Source;
use crate::telemetry::meters::Handles;

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figure")]
mod cost;

const fn source_of(part: &Part) -> Source {
    match part.hold {
        Hold::Local | Hold::LocalSlots(_) => Source::Local,
        Hold::LetThrough { .. } => Source::Shadow,
        _ => Source::Table,
    }
}

/// Counts with the metric handles of a bucket. When the handles are recreated, the level is reported too, and
/// what calls kept: a bucket in use needs no task for that.
fn count(entry: &Entry, at: Timestamp, count: impl FnOnce(&Handles)) {
    if entry.meters.count(at, || entry.label(), count) {
        entry.publish_level(at);
        entry.unsettled.publish(entry);
    }
}

/// Counts a call that was granted from stock `at` this time. Registers and allocates nothing, and reads no
/// clock: this is most of what a busy process does. The grant took less than a microsecond, and counts as no
/// time.
pub(crate) fn granted_from_stock(part: &Part, at: Timestamp) {
    granted_in(part, Source::Stock, Some(Duration::ZERO), at);
}

/// `took`: how long an acquire took.
fn granted_in(part: &Part, source: Source, took: Option<Duration>, at: Timestamp) {
    let is_of_share = match &part.hold {
        // The receipt of a ticket does not know whether the bucket has shares.
        Hold::Tokens { .. } if source == Source::Ticket => part.entry.line().is_some(),
        Hold::Tokens { receipt, .. } => receipt.has_shares(),
        _ => false,
    };
    count(&part.entry, at, |handles| {
        handles.granted(source).increment(1);
        took.into_iter().for_each(|took| handles.acquired_granted().record(took));
        if is_of_share && part.borrower.is_none() {
            handles.share_used(part.entry.share.as_ref(), part.cost);
        }
    });
    if let Some(borrower) = &part.borrower {
        count(borrower, at, |handles| handles.share_used(borrower.share.as_ref(), part.cost));
    }
}

/// Counts the answer to an acquire that began at `began`.
pub(crate) fn acquired(inner: &Arc<Inner>, began: Instant, answer: &Result<Outcome, AcquireError>) {
    let took = began.elapsed();
    match answer {
        Ok(Outcome::Granted(grant)) => {
            let at = inner.now();
            grant.parts().iter().for_each(|part| granted_in(part, source_of(part), Some(took), at));
            grant.parts().iter().for_each(|part| noted_use::granted(inner, part));
        }
        Ok(Outcome::RetryIn(retry)) => {
            refused(inner, retry);
            let record =
                |entry: &Entry| count(entry, inner.now(), |handles| handles.acquired_refused().record(took));
            with_entry(inner, &retry.dimension, record);
        }
        Err(_) => telemetry::acquire_failed(took),
    }
}

/// Counts a call that may be made, for each bucket that it took from.
pub(crate) fn granted(inner: &Arc<Inner>, grant: &Grant, source: Option<Source>) {
    let at = inner.now();
    for part in grant.parts() {
        granted_in(part, source.unwrap_or_else(|| source_of(part)), None, at);
        noted_use::granted(inner, part);
    }
}

pub(crate) fn refused(inner: &Inner, retry: &RetryIn) {
    let refused =
        |entry: &Entry| count(entry, inner.now(), |handles| handles.refused(retry.reason).increment(1));
    with_entry(inner, &retry.dimension, refused);
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
    if let Some(entry) = inner.any_entry(dimension) {
        then(&entry);
    }
}
