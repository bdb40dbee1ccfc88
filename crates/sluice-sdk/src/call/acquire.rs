//! Acquire: takes what a call needs, or says when to come back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::Ticket;
use sluice_table::StoreError;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason, contended};
use crate::api::request::{Request, RequestError};
use crate::call::ticket::redeem::{RedeemError, Redeemed};
use crate::call::{counted, ticket};
use crate::client::Client;
use crate::grant::Grant;
use crate::grant::outcome::Outcome;
use crate::lane::answer_by::AnswerBy;
use crate::lane::inner::Inner;
use crate::lane::terms::Terms;
use crate::lane::{attempt, look_first, noted_use, prefetch, shadow};
use crate::telemetry::span;

impl Client {
    /// Takes what `request` names from all of its buckets or from none; never waits for quota.
    ///
    /// One rate dimension takes one conditional write, shared by all callers of the process that ask
    /// meanwhile. Several dimensions are written in parallel; if one refuses, what the others granted is
    /// given back. With a concurrency limit among them, they take one transaction, unless leases are inline
    /// (`SLUICE_LEASES`). A refusal that the process remembers costs no request.
    ///
    /// Has its answer within [`longest_acquire`](Self::longest_acquire), whatever hangs: 3 s by default. If
    /// DynamoDB has answered nothing for nearly as long, it is out: then every caller has its answer at once,
    /// the error or that of `SLUICE_ON_UNAVAILABLE`, until DynamoDB answers again. If DynamoDB answers others
    /// and not this caller, the answer is a refusal (`Contended`). What is granted afterwards goes to the
    /// next caller, or back.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, a cost that can never be granted, a row that
    /// cannot be read, a table that does not answer, a bucket of tokens without a cost, a client that is
    /// closed, or no runtime. A refusal is not an error but [`Outcome::RetryIn`].
    pub async fn acquire<'a>(&self, request: impl Into<Request<'a>>) -> Result<Outcome, AcquireError> {
        let (inner, request) = (&self.inner, request.into());
        // In shadow mode nothing is booked: the call goes on now.
        let ticket_within = request.ticket_within.filter(|_| !inner.config.mode.is_shadow());
        let span = span::acquire(request.dimensions());
        if let Some(ticket) = &request.ticket {
            let answer = Box::pin(self.redeem_carried(&request, ticket)).instrument(span.clone()).await;
            if let Some(answer) = answer.transpose() {
                answered(&span, &answer);
                return answer;
            }
        }
        let known = request.only().filter(|_| ticket_within.is_none());
        let known =
            known.and_then(|(name, cost)| Some((inner.known_entry(name, request.named_share())?, cost)));
        if let Some((entry, cost)) = &known
            && !inner.background.is_closing()
            && let Some(part) = prefetch::take(inner, entry, *cost)
        {
            counted::granted_from_stock(&part, part.start_at);
            noted_use::granted(inner, &part);
            let answer = Ok(Outcome::Granted(Grant::from_stock(Arc::clone(inner), part)));
            answered(&span, &answer);
            return answer;
        }
        let _asking = inner.background.begin()?;
        let began = Instant::now();
        let terms = Terms::at_once(inner.config.lease_ttl);
        let answer = match (known, ticket_within) {
            (Some((entry, cost)), _) => {
                let taken = attempt::submit_one(inner, entry, cost, terms).instrument(span.clone()).await;
                taken.map(|taken| Outcome::of(inner, taken, terms.lease, inner.config.renew_leases))
            }
            (None, None) => {
                let asks = shadow::readable(inner, request.parse())?;
                let taken = attempt::submit(inner, &asks, terms).instrument(span.clone()).await;
                taken.map(|taken| Outcome::of(inner, taken, terms.lease, inner.config.renew_leases))
            }
            // On the heap: a request without a ticket pays nothing for it.
            (None, Some(within)) => {
                Box::pin(ticket::book(inner, request.parse()?, within)).instrument(span.clone()).await
            }
        };
        let answer = match (answer, inner.background.check_open()) {
            (Ok(Outcome::Granted(grant)), Err(closed)) => {
                grant.give_back_unused();
                Err(closed)
            }
            (answer, _) => answer,
        };
        let answer = match answer {
            Ok(Outcome::RetryIn(retry)) if ticket_within.is_none() => {
                Ok(Outcome::RetryIn(spread(inner, &request, retry)))
            }
            answer => answer,
        };
        counted::acquired(inner, began, &answer);
        answered(&span, &answer);
        answer
    }
}

/// The refusal with the wait that its caller is told: callers of several processes that share a line come back
/// at different times.
fn spread(inner: &Inner, request: &Request<'_>, mut retry: RetryIn) -> RetryIn {
    let more = || {
        let line = inner.known_entry(retry.dimension.as_str(), request.named_share())?.reading()?.bucket;
        let asks = line.has_shares().then(|| request.parse().ok())??;
        let cost = asks.iter().find(|ask| ask.dimension == retry.dimension)?.cost_in(line.limit()).ok()?;
        Some(look_first::spread(&line, cost))
    };
    if retry.reason == RetryReason::Exhausted {
        retry.wait = retry.wait.saturating_add(more().unwrap_or_default());
    }
    retry
}

impl Client {
    /// Redeems the ticket that a request carries. `None` if the caller acquires anew.
    async fn redeem_carried(
        &self,
        request: &Request<'_>,
        ticket: &Ticket,
    ) -> Result<Option<Outcome>, AcquireError> {
        let carried = self.redeem_as_booked(request, ticket).await;
        // In shadow mode, a caller that would have to come back acquires anew, now.
        let is_over =
            |outcome: &Outcome| !self.inner.config.mode.is_shadow() || matches!(outcome, Outcome::Granted(_));
        shadow::or_in_shadow(&self.inner, carried, || None).map(|carried| carried.filter(is_over))
    }

    async fn redeem_as_booked(
        &self,
        request: &Request<'_>,
        ticket: &Ticket,
    ) -> Result<Option<Outcome>, AcquireError> {
        let names = request.names();
        if let Some(other) =
            ticket.dimensions().iter().find(|dimension| names.iter().all(|name| name != dimension.as_str()))
        {
            return Err(RequestError::OtherTicket(other.clone()).into());
        }
        let answer = AnswerBy::new(&self.inner).wait(pin!(self.redeem(ticket))).await;
        match answer {
            Ok(Ok(Redeemed::Granted(grant))) => Ok(Some(Outcome::Granted(grant))),
            Ok(Ok(Redeemed::RetryIn(retry))) => Ok(Some(Outcome::RetryIn(retry))),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(RedeemError::Acquire(error))) => Err(error),
            Ok(Err(error)) => {
                tracing::warn!(event = "ticket.unreadable", key = ticket.key(), %error);
                Ok(None)
            }
            Err(StoreError::Contended { .. }) => {
                let retry = contended(&ticket.dimensions()[0]).with_ticket(Ok(ticket.clone()));
                Ok(Some(Outcome::RetryIn(retry)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The longest time until [`acquire`](Self::acquire) has its answer, whatever hangs: the setting
    /// `answer_within`, 3 s by default; twice that for a request with a ticket that has lapsed. A caller that
    /// comes while credentials are fetched waits up to 5 s more.
    #[must_use]
    pub fn longest_acquire(&self) -> Duration {
        self.inner.store.answer_within()
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
