//! Spans, in the conventions of OpenTelemetry; `docs/metrics.md` has them in a table. A span that no subscriber wants costs one
//! comparison: its fields are not looked at.

use std::fmt::Display;

use tracing::Span;
use tracing::field::Empty;

/// Around an acquire, to its answer.
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

/// Around a slot: the wait, the closure, the release.
pub(crate) fn slot(dimensions: impl Display) -> Span {
    tracing::info_span!(
        "sluice.slot",
        sluice.dimensions = %dimensions,
        sluice.outcome = Empty,
        sluice.refused_by = Empty,
        sluice.waited_ms = Empty,
    )
}

/// Around a release, which goes on without its caller.
pub(crate) fn release(dimensions: impl Display) -> Span {
    tracing::debug_span!("sluice.release", sluice.dimensions = %dimensions, sluice.outcome = Empty)
}
