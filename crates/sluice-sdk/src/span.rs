//! Spans, in the conventions of OpenTelemetry; `docs/metrics.md` has them in a table. A span that no subscriber wants costs one
//! comparison: its fields are not looked at.

use std::fmt::{self, Display};

use tracing::Span;
use tracing::field::Empty;

use crate::acquire::AcquireError;
use crate::grant::Grant;
use crate::outcome::Outcome;
use crate::request::Request;

/// Around an acquire, to its answer.
pub(crate) fn acquire(request: &Request<'_>) -> Span {
    tracing::debug_span!(
        "sluice.acquire",
        sluice.dimensions = %Names(request),
        sluice.outcome = Empty,
        sluice.refused_by = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    )
}

/// Around a slot: the wait, the closure, the release.
pub(crate) fn slot(request: &Request<'_>) -> Span {
    tracing::info_span!(
        "sluice.slot",
        sluice.dimensions = %Names(request),
        sluice.outcome = Empty,
        sluice.refused_by = Empty,
        sluice.waited_ms = Empty,
    )
}

/// Around a release, which goes on without its caller.
pub(crate) fn release(grant: &Grant) -> Span {
    tracing::debug_span!("sluice.release", sluice.dimensions = %grant.names(), sluice.outcome = Empty)
}

/// Around a sweep.
pub(crate) fn sweep(table: &str) -> Span {
    tracing::info_span!("sluice.sweep", db.collection.name = table, sluice.restored = Empty, sluice.outcome = Empty)
}

/// Notes the answer to an acquire.
pub(crate) fn answered(span: &Span, answer: &Result<Outcome, AcquireError>) {
    if span.is_disabled() {
        return;
    }
    match answer {
        Ok(Outcome::Granted(_)) => span.record("sluice.outcome", "granted"),
        Ok(Outcome::RetryIn(retry)) => span
            .record("sluice.outcome", retry.reason().as_str())
            .record("sluice.refused_by", retry.dimension().as_str()),
        Err(error) => span
            .record("sluice.outcome", "error")
            .record("error.type", error.as_str())
            .record("otel.status_code", "ERROR"),
    };
}

/// The dimensions of a request, as its caller named them.
struct Names<'a>(&'a Request<'a>);

impl Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.names().iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
