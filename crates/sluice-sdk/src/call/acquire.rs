//! Acquire: takes what a call needs, or says when to come back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::api::error::AcquireError;
use crate::api::request::Request;
use crate::call::{counted, ticket};
use crate::client::Client;
use crate::grant::Grant;
use crate::grant::outcome::Outcome;
use crate::lane::round::longest_attempt;
use crate::lane::terms::Terms;
use crate::lane::{attempt, prefetch};
use crate::telemetry::span;

impl Client {
    /// Takes what `request` names from all of its buckets or from none; never waits for quota.
    ///
    /// One rate dimension takes one conditional write, shared by all callers of the process that ask
    /// meanwhile. Several dimensions are written in parallel; if one refuses, what the others granted is
    /// given back. With a concurrency limit among them, they take one transaction, unless leases are inline
    /// (`SLUICE_LEASES`). A refusal that the process remembers costs no request.
    ///
    /// While DynamoDB does not answer, takes at most the time of two requests (4.2 s each): writes under way,
    /// and its own. One second more if one of several dimensions answers, to give back; two requests more
    /// with [`ticket_within`](Request::ticket_within) and a start to book. If every try is answered late and
    /// with a conflict, at most [`longest_acquire`](Self::longest_acquire): 35.2 s by default. For a
    /// ticket over several dimensions, twice that and 2 s.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, a cost that can never be granted, a row that
    /// cannot be read, or a table that does not answer. A refusal is not an error but [`Outcome::RetryIn`].
    pub async fn acquire<'a>(&self, request: impl Into<Request<'a>>) -> Result<Outcome, AcquireError> {
        let (inner, request) = (&self.inner, request.into());
        let span = span::acquire(request.dimensions());
        let known = request.only().filter(|_| request.ticket_within.is_none());
        let known = known.and_then(|(name, cost)| Some((inner.cache.get(name)?, cost)));
        if let Some((entry, cost)) = &known
            && !inner.background.is_closing()
            && let Some(part) = prefetch::take(inner, entry, *cost)
        {
            counted::granted_from_stock(entry, part.start_at);
            let answer = Ok(Outcome::Granted(Grant::from_stock(Arc::clone(inner), part)));
            answered(&span, &answer);
            return answer;
        }
        inner.background.begin()?;
        let began = Instant::now();
        let terms = Terms::at_once(inner.config.lease_ttl);
        let answer = match (known, request.ticket_within) {
            (Some((entry, cost)), _) => {
                let taken = attempt::submit_one(inner, entry, cost, terms).instrument(span.clone()).await;
                taken.map(|taken| Outcome::of(inner, taken, terms.lease, inner.config.renew_leases))
            }
            (None, None) => {
                let taken = attempt::submit(inner, &request.parse()?, terms).instrument(span.clone()).await;
                taken.map(|taken| Outcome::of(inner, taken, terms.lease, inner.config.renew_leases))
            }
            // On the heap: a request without a ticket pays nothing for it.
            (None, Some(within)) => {
                Box::pin(ticket::book(inner, request.parse()?, within)).instrument(span.clone()).await
            }
        };
        counted::acquired(inner, began, &answer);
        answered(&span, &answer);
        answer
    }
}

impl Client {
    /// The longest time that [`acquire`](Self::acquire) takes, whatever hangs: 35.2 s with three retries. It
    /// usually takes one request. With `request = (retries + 1) * attempt + 25 ms + 50 ms + 100 ms + ...`
    /// (attempts of 1 s, and the pauses between them), the longest time is the sum of:
    ///
    /// - `attempt + request`, for buckets that are not known yet;
    /// - twice `1 s + attempt + 3 * request`, for a write of callers that came before, and for its own tries;
    /// - 1 s, to give back what other dimensions had granted.
    ///
    /// Each write of the same process that succeeds for callers that came before comes on top, and a request
    /// each time that this machine's clock is set meanwhile.
    #[must_use]
    pub fn longest_acquire(&self) -> Duration {
        longest_attempt(&self.inner)
    }
}

fn answered(span: &Span, answer: &Result<Outcome, AcquireError>) {
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
