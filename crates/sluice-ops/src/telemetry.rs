//! What a sweep measures of itself.

use std::time::Duration;

use sluice_table::metric as names;
use tracing::Span;
use tracing::field::Empty;

/// The span around a sweep.
pub(crate) fn sweep(table: &str) -> Span {
    tracing::info_span!(
        "sluice.sweep",
        db.collection.name = table,
        sluice.restored = Empty,
        sluice.outcome = Empty
    )
}

/// A sweep of this process ended.
pub(crate) fn swept(took: Duration, outcome: &'static str) {
    names::SWEEP_DURATION.histogram([outcome.into()]).record(took);
}

/// An amount or a rate as the double that a gauge takes. No decision rests on it.
pub(crate) fn number(exact: impl ToString) -> f64 {
    exact.to_string().parse().unwrap_or(f64::NAN)
}
