//! The start of a slot: waited for, for a closure, for a caller that holds the grant itself, or for a stream.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_core::TryStream;
use sluice_core::Dimension;
use sluice_table::LONGEST_SETTING;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span};

use crate::api::error::AcquireError;
use crate::call::counted;
use crate::call::error::LimitError;
use crate::call::slot::SlotBuilder;
use crate::call::slot::wait::StartWait;
use crate::call::stream::GrantedStream;
use crate::client::Client;
use crate::grant::{Grant, Holding};
use crate::lane::inner::Inner;
use crate::lane::terms::LeaseTerm;
use crate::telemetry::span;

/// A lease outlasts its slot's timeout by this much: the time of a release, and the error of clocks.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// A wait that ends by itself at the timeout gets this much longer to report why.
const GRACE: Duration = Duration::from_millis(250);

/// A grant whose start is reached.
pub(super) struct Start {
    pub(super) client: Client,
    pub(super) grant: Grant,
    /// The dimensions that were asked for.
    pub(super) asked: Vec<Dimension>,
    pub(super) timeout: Duration,
    /// When the call is cut off; `None` if it may take as long as it takes.
    pub(super) deadline: Option<Instant>,
    pub(super) lease_lost: Arc<AtomicBool>,
    pub(super) acquiring: Duration,
}

impl SlotBuilder {
    /// Waits for the start, and returns the grant: for a call whose end is in another function or task. The
    /// grant is as from [`Client::acquire`]: release it, and renew it if the call outlasts its lease. The
    /// timeout bounds the wait alone. Callers wait in one queue with those of [`run`](Self::run), so a loop
    /// over `acquire` is never needed.
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
        let start = self.start(&span, Holding::Renewed).instrument(span.clone()).await;
        span.record("sluice.outcome", start.as_ref().map_or_else(LimitError::as_str, |_| "granted"));
        start.map(|start| start.grant).map_err(|error| limited(&inner, &span, error))
    }

    /// Waits for the start, and requests a reply that comes in pieces: `open` sends the request. The grant is
    /// kept, and renewed, until the stream has ended or is dropped: see [`Grant::stream`]. If `open` fails, the
    /// grant is given back with its tokens, as by [`Grant::failed`]. The timeout bounds the wait alone.
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
    /// let reply = slot.stream(async || chat().await).await?;
    /// Ok(reply.used("openai#tpm", |piece| piece.usage))
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `open`, or a [`LimitError`]: no start within the wait, or an error of the table or the
    /// request.
    pub async fn stream<S: TryStream, E: From<LimitError>>(
        self,
        open: impl AsyncFnOnce() -> Result<S, E>,
    ) -> Result<GrantedStream<S>, E> {
        let mut grant = self.grant().await?;
        let lost = AtomicBool::new(false);
        let opened = tokio::select! {
            biased;
            opened = open() => opened,
            () = grant.keep_alive(Holding::Renewed, &lost) => unreachable!("a grant is kept alive for ever"),
        };
        match opened {
            Ok(reply) => Ok(grant.stream(reply)),
            Err(error) => {
                grant.charge_failure();
                grant.release_in_time().await;
                Err(error)
            }
        }
    }

    /// Waits for the start, and counts the grant. With [`Holding::WithinTimeout`], the timeout covers the call
    /// too.
    pub(super) async fn start(self, span: &Span, holding: Holding) -> Result<Start, LimitError> {
        let asked_at = Instant::now();
        let (client, timeout) = (self.client, self.timeout.min(LONGEST_SETTING));
        let deadline = asked_at + timeout;
        let until = asked_at + self.max_wait.unwrap_or(timeout).min(timeout);
        let asks = self.request.parse().map_err(AcquireError::from)?;
        let asked: Vec<Dimension> = asks.iter().map(|ask| ask.dimension.clone()).collect();
        let lease = LeaseTerm {
            at_least: client.inner.config.lease_ttl,
            until: (holding == Holding::WithinTimeout).then_some(deadline + LEASE_MARGIN),
        };
        let lease_lost = Arc::new(AtomicBool::new(false));
        let waiting = StartWait::new(&client.inner, until, lease, holding, &lease_lost);
        // The lane cuts no request off half way, so the wait may be dropped at its end.
        let Ok(start) = timeout_at(deadline + GRACE, waiting.for_start(asks)).await else {
            counted::slot_timed_out(&client.inner, &asked);
            return Err(LimitError::TimedOut(timeout));
        };
        let grant = start?;
        let acquiring = waiting.acquiring();
        let deadline = (holding == Holding::WithinTimeout).then_some(deadline);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // Too late to begin: the call would be cut off at once.
            grant.give_back_unused();
            counted::slot_timed_out(&client.inner, &asked);
            return Err(LimitError::TimedOut(timeout));
        }
        counted::granted(&client.inner, &grant, None);
        counted::waited(&grant, asked_at.elapsed());
        span.record("sluice.waited_ms", u64::try_from(asked_at.elapsed().as_millis()).unwrap_or(u64::MAX));
        Ok(Start { client, grant, asked, timeout, deadline, lease_lost, acquiring })
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
