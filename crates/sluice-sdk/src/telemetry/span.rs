//! Spans, as OpenTelemetry names them (`docs/metrics.md`). Without a subscriber, one costs a comparison.

use std::fmt::Display;

use tracing::Span;
use tracing::field::Empty;

/// The span around an acquire, until its answer.
pub(crate) fn acquire(dimensions: impl Display) -> Span {
    tracing::debug_span!(
        "sluice.acquire",
        sluice.dimensions = %dimensions,
        sluice.outcome = Empty,
        sluice.refused_by = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}

/// The span around a slot: the wait, the closure, the release.
pub(crate) fn slot(dimensions: impl Display) -> Span {
    tracing::info_span!(
        "sluice.slot",
        sluice.dimensions = %dimensions,
        sluice.outcome = Empty,
        sluice.refused_by = Empty,
        sluice.waited_ms = Empty,
    )
}

/// The span around a release, which continues without its caller.
pub(crate) fn release(dimensions: impl Display) -> Span {
    tracing::debug_span!("sluice.release", sluice.dimensions = %dimensions, sluice.outcome = Empty)
}
