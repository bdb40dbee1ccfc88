//! The start of a slot: waited for, for a closure, for a caller that holds the grant itself, or for a stream.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_core::TryStream;
use sluice_core::Dimension;
use sluice_table::LONGEST_SETTING;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span};

use crate::api::error::AcquireError;
use crate::api::request::RequestError;
use crate::call::counted;
use crate::call::error::LimitError;
use crate::call::slot::wait::StartWait;
use crate::call::slot::{SlotBuilder, concurrency_of, nested};
use crate::call::stream::GrantedStream;
use crate::client::Client;
use crate::grant::Grant;
use crate::lane::inner::Inner;
use crate::lane::shadow;
use crate::telemetry::span;

/// A call ends so long before the deadline of its surroundings: a release takes at most 3 s. If less than
/// twice as much is left, the call gets half of it.
const RELEASE_MARGIN: Duration = Duration::from_secs(4);

/// A wait that ends by itself at its end gets this much longer to report why.
const GRACE: Duration = Duration::from_millis(250);

/// A grant whose start is reached.
pub(super) struct Start {
    pub(super) client: Client,
    pub(super) grant: Grant,
    /// The dimensions that were asked for.
    pub(super) asked: Vec<Dimension>,
    pub(super) asked_at: Instant,
    /// When the call is cut off; `None` if it may take as long as it takes.
    pub(super) deadline: Option<Instant>,
    pub(super) acquiring: Duration,
}

impl SlotBuilder {
    /// When the wait ends, and when waiting and running together end.
    fn ends(&self, asked_at: Instant) -> (Instant, Option<Instant>) {
        let timeout = self.timeout.map(|timeout| asked_at + timeout.min(LONGEST_SETTING));
        let until = self.until.map(|deadline| {
            let left = deadline.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST_SETTING);
            asked_at + left.saturating_sub(RELEASE_MARGIN.min(left / 2))
        });
        let total = timeout.into_iter().chain(until).chain(self.ends_at).min();
        let wait = self.max_wait.or_else(|| total.is_none().then_some(self.client.inner.config.max_wait));
        let wait_ends = wait.map(|wait| asked_at + wait.min(LONGEST_SETTING));
        (wait_ends.into_iter().chain(total).min().unwrap_or(asked_at), total)
    }

    /// Fixes the end of waiting and running, for several tries.
    pub(super) fn fix_end(&mut self) {
        self.ends_at = self.ends(Instant::now()).1;
        (self.timeout, self.until) = (None, None);
    }

    /// Whether waiting and running end before `pause` is over.
    pub(super) fn ends_within(&self, pause: Duration) -> bool {
        self.ends_at.is_some_and(|ends_at| Instant::now() + pause >= ends_at)
    }
}

impl SlotBuilder {
    /// Waits for the start, and returns the grant: for a call whose end is in another function or task. The
    /// grant is as from [`Client::acquire`]: release it when the call is over. Times limit the wait alone,
    /// and [`max_call`](Self::max_call) is an error. Callers wait in one queue with those of
    /// [`run`](Self::run), so a loop over `acquire` is never needed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use sluice_sdk::{Client, Grant, LimitError};
    /// # async fn wait(sluice: Client, tokens: u64) -> Result<Grant, LimitError> {
    /// let request = sluice.slot(["openai#rpm", "openai#tpm"]).cost("openai#tpm", tokens);
    /// request.max_wait(Duration::from_secs(10)).grant().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LimitError`]: no start within the wait, or an error of the table or the request.
    pub async fn grant(self) -> Result<Grant, LimitError> {
        let span = span::slot(self.request.dimensions());
        let inner = Arc::clone(&self.client.inner);
        let start = match self.max_call {
            None => self.start(&span).instrument(span.clone()).await,
            Some(_) => Err(AcquireError::from(RequestError::MaxCallForGrant).into()),
        };
        span.record("sluice.outcome", start.as_ref().map_or_else(LimitError::as_str, |_| "granted"));
        let Start { grant, .. } = start.map_err(|error| limited(&inner, &span, error))?;
        grant.renew_as_set();
        Ok(grant)
    }

    /// Waits for the start, and requests a reply that comes in pieces: `open` sends the request, and may
    /// report the head of its reply ([`Grant::reply`]). The grant is kept, and renewed, until the stream has
    /// ended or is dropped: see [`Grant::stream`]. If `open` fails, the grant is given back with its tokens,
    /// as by [`Grant::failed`]. Times limit the wait alone: [`GrantedStream::idle_timeout`] ends a stream
    /// that nobody reads.
    ///
    /// ```
    /// # use futures_util::Stream;
    /// # use sluice_sdk::{Client, LimitError};
    /// # struct Piece { usage: Option<u64> }
    /// # #[derive(Debug, thiserror::Error)]
    /// # enum AppError {
    /// #     #[error(transparent)] Vendor(#[from] std::io::Error),
    /// #     #[error(transparent)] Limit(#[from] LimitError),
    /// # }
    /// # async fn chat() -> Result<futures_util::stream::Empty<Result<Piece, std::io::Error>>, AppError> {
    /// #     Ok(futures_util::stream::empty())
    /// # }
    /// # async fn reply(sluice: Client) -> Result<impl Stream<Item = Result<Piece, std::io::Error>>, AppError> {
    /// let slot = sluice.slot(["openai#rpm", "openai#tpm"]).cost("openai#tpm", 1_200);
    /// let reply = slot.stream(async |_grant| chat().await).await?;
    /// Ok(reply.used("openai#tpm", |piece| piece.usage))
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `open`, or a [`LimitError`]: no start within the wait, or an error of the table or the
    /// request.
    pub async fn stream<S: TryStream, E: From<LimitError>>(
        self,
        open: impl AsyncFnOnce(&mut Grant) -> Result<S, E>,
    ) -> Result<GrantedStream<S>, E> {
        let mut grant = self.grant().await?;
        grant.renew_until(i64::MAX);
        let (inner, slots) = (Arc::clone(grant.inner()), concurrency_of(&grant));
        match nested::within(&inner, &slots, open(&mut grant)).await {
            Ok(reply) => Ok(grant.stream(reply)),
            Err(error) => {
                grant.charge_failure();
                grant.release_in_time().await;
                Err(error)
            }
        }
    }

    /// Waits for the start, and counts the grant.
    pub(super) async fn start(self, span: &Span) -> Result<Start, LimitError> {
        let _asking = self.client.inner.background.begin()?;
        let asked_at = Instant::now();
        let (wait_ends, total) = self.ends(asked_at);
        let client = self.client;
        let inner = &client.inner;
        if self.request.ticket.is_some() {
            return Err(AcquireError::from(RequestError::TicketForSlot).into());
        }
        let asks = shadow::readable(inner, self.request.parse()).map_err(AcquireError::from)?;
        let asked: Vec<Dimension> = asks.iter().map(|ask| ask.dimension.clone()).collect();
        let waiting = StartWait::new(inner, wait_ends, total);
        let late = || {
            counted::slot_timed_out(inner, &asked);
            LimitError::TimedOut(asked_at.elapsed())
        };
        let gives_up_at = waiting.answered_by() + GRACE;
        // The lane cuts no request off half way, so the wait may be dropped at its end.
        let grant = tokio::select! {
            biased;
            start = timeout_at(gives_up_at, waiting.for_start(asks)) => start.map_err(|_| late())??,
            () = inner.background.closing() => return Err(AcquireError::Closed.into()),
        };
        if total.is_some_and(|total| Instant::now() >= total) {
            // Too late to begin: the call would be cut off at once.
            grant.give_back_unused();
            return Err(late());
        }
        if let Err(closed) = inner.background.check_open() {
            grant.give_back_unused();
            return Err(closed.into());
        }
        counted::granted(inner, &grant, None);
        counted::waited(&grant, asked_at.elapsed());
        span.record("sluice.waited_ms", u64::try_from(asked_at.elapsed().as_millis()).unwrap_or(u64::MAX));
        let call_ends = self.max_call.map(|longest| Instant::now() + longest.min(LONGEST_SETTING));
        let deadline = total.into_iter().chain(call_ends).min();
        let acquiring = waiting.acquiring();
        Ok(Start { client, grant, asked, asked_at, deadline, acquiring })
    }
}

/// Counts a slot that was refused, and returns the error.
pub(super) fn limited(inner: &Inner, span: &Span, error: LimitError) -> LimitError {
    if let LimitError::Refused(retry) = &error {
        span.record("sluice.refused_by", retry.dimension().as_str());
        counted::refused(inner, retry);
    }
    error
}
