//! Streams: a reply that comes in pieces keeps its grant until its end.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_core::{Stream, TryStream};
use parking_lot::Mutex;
use sluice_table::LONGEST_SETTING;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::api::quantity::Quantity;
use crate::call::error::LimitError;
use crate::call::held::{Ending, HeldGrant};
use crate::grant::Grant;
use crate::grant::held_leases::HeldLeases;
use crate::lane::task::boxed;
use crate::vendor::reply::Usage;

/// A vendor's reply in pieces, and the grant under which it was requested: see [`Grant::stream`].
#[must_use = "a stream does nothing until it is read; if dropped, it gives back its grant"]
pub struct GrantedStream<S: TryStream> {
    running: Arc<Mutex<OpenReply<S>>>,
    /// The error of the reply, kept until the grant is given back.
    error: Option<S::Error>,
    /// Whether a piece arrived, so that the vendor has worked.
    has_begun: bool,
    leases: Vec<Arc<HeldLeases>>,
    /// Ends the call if no piece is read for too long.
    watching: Option<AbortHandle>,
    /// What the reader gets if it reads no piece for too long.
    idle_error: Option<IdleError<S::Error>>,
}

/// What ends by itself if the reader stalls.
struct OpenReply<S: TryStream> {
    /// `None` after the end.
    reply: Option<Pin<Box<S>>>,
    meters: Vec<Meter<S::Ok>>,
    grant: ReplyGrant,
    /// When the last piece was read.
    read_at: Instant,
    /// The idle time after which the stream was ended.
    was_idle_for: Option<Duration>,
    /// The reader that waits for a piece: the end by idleness wakes it.
    reader: Option<Waker>,
}

impl<S: TryStream> OpenReply<S> {
    /// Drops the reply, and tells the holder of the grant how the call ended and what it used.
    fn end(&mut self, call: Call) {
        // The connection first: a slot that is given back is not in use.
        self.reply = None;
        let stated = |meter: Meter<S::Ok>| Some((meter.dimension, meter.last?));
        let used = Usage(std::mem::take(&mut self.meters).into_iter().filter_map(stated).collect());
        self.grant = match (std::mem::replace(&mut self.grant, ReplyGrant::GivenBack), call) {
            (ReplyGrant::Held(grant), Call::Made) => ReplyGrant::Ending(grant.end(used)),
            (ReplyGrant::Held(grant), Call::Failed) => ReplyGrant::Ending(grant.failed()),
            (ended, _) => ended,
        };
    }
}

type IdleError<E> = Box<dyn FnOnce(Duration) -> E + Send>;

/// Reads what the call used of one dimension, and keeps the last value.
struct Meter<T> {
    dimension: String,
    read: Read<T>,
    last: Option<Quantity>,
}

type Read<T> = Box<dyn FnMut(&T) -> Option<Quantity> + Send>;

/// The grant of a stream.
enum ReplyGrant {
    Held(HeldGrant),
    Ending(Ending),
    GivenBack,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The reply is complete, its reader stopped reading, or the reply broke off in the middle.
    Made,
    /// The reply failed before its first piece.
    Failed,
}

impl Grant {
    /// Keeps the grant until `reply`, which the vendor sends in pieces, has ended. [`GrantedStream::used`]
    /// sets where in the pieces the vendor states what the call used.
    ///
    /// ```
    /// use futures_util::{Stream, TryStreamExt as _};
    /// use sluice_sdk::Grant;
    ///
    /// struct Piece { text: String, usage: Option<Usage> }
    /// struct Usage { total_tokens: u64 }
    ///
    /// async fn read(
    ///     grant: Grant,
    ///     reply: impl Stream<Item = Result<Piece, std::io::Error>>,
    /// ) -> Result<String, std::io::Error> {
    ///     let mut reply = grant
    ///         .stream(reply)
    ///         .used("openai#tpm", |piece| piece.usage.as_ref().map(|usage| usage.total_tokens));
    ///     let mut text = String::new();
    ///     while let Some(piece) = reply.try_next().await? {
    ///         text += &piece.text;
    ///     }
    ///     Ok(text)
    /// }
    /// ```
    ///
    /// Meanwhile the grant's leases are renewed at half of their time. However the stream ends, what the call
    /// used is settled and what the grant held is given back:
    ///
    /// - At the end of `reply`, before `None` is returned: at most 3 s, and then by itself.
    /// - At the first error, before it is returned. `reply` is dropped, and nothing follows: a slot that is
    ///   given back should not be in use. If no piece came before, the call ends as by [`Grant::failed`].
    ///   Otherwise the vendor has worked, and tokens of a dimension without a stated use stay taken.
    /// - When the stream is dropped, on a task. Slots come back; tokens without a stated use stay taken.
    ///
    /// A stream of plain pieces is turned into one of `Ok`: `reply.map(Ok::<_, Infallible>)`.
    ///
    /// # Panics
    /// Outside of tokio's runtime, which every grant comes from.
    pub fn stream<S: TryStream>(self, reply: S) -> GrantedStream<S> {
        let leases = self.leases().to_vec();
        let running = OpenReply {
            reply: Some(Box::pin(reply)),
            meters: Vec::new(),
            grant: ReplyGrant::Held(self.hold(None)),
            read_at: Instant::now(),
            was_idle_for: None,
            reader: None,
        };
        GrantedStream {
            running: Arc::new(Mutex::new(running)),
            error: None,
            has_begun: false,
            leases,
            watching: None,
            idle_error: None,
        }
    }
}

impl<S: TryStream> GrantedStream<S> {
    /// Settles `dimension` by what `read` finds in the pieces: `None` for a piece that states no use. The
    /// last value counts, so running totals work too. If the call used less than was taken, at most the
    /// difference goes back; if it used more, the difference is taken. A number below zero, or a dimension
    /// without tokens in the grant, is logged at the end.
    pub fn used<Q: Into<Quantity>>(
        self,
        dimension: impl Into<String>,
        mut read: impl FnMut(&S::Ok) -> Option<Q> + Send + 'static,
    ) -> Self {
        let read = Box::new(move |piece: &S::Ok| read(piece).map(Into::into));
        self.running.lock().meters.push(Meter { dimension: dimension.into(), read, last: None });
        self
    }

    /// Ends the call if no piece is read for `idle`: because the vendor sends none, or because the reader has
    /// stalled and would keep its slot for ever. The reply is dropped, the slots come back, and tokens
    /// without a stated use stay taken. The reader then gets one error, [`LimitError::Idle`], and the end.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use futures_util::{Stream, TryStreamExt as _};
    /// # use sluice_sdk::{Grant, LimitError};
    /// # #[derive(Debug, thiserror::Error)]
    /// # enum AppError {
    /// #     #[error(transparent)] Vendor(#[from] std::io::Error),
    /// #     #[error(transparent)] Limit(#[from] LimitError),
    /// # }
    /// # fn read(grant: Grant, reply: impl Stream<Item = Result<String, std::io::Error>> + Send + 'static) {
    /// let reply = grant.stream(reply.map_err(AppError::from)).idle_timeout(Duration::from_secs(30));
    /// # }
    /// ```
    pub fn idle_timeout(mut self, idle: Duration) -> Self
    where
        S: Send + 'static,
        S::Error: From<LimitError>,
    {
        self.idle_error = Some(Box::new(|idle| LimitError::Idle(idle).into()));
        let watching =
            tokio::spawn(boxed(end_idle(Arc::downgrade(&self.running), idle.min(LONGEST_SETTING))));
        self.watching = Some(watching.abort_handle());
        self
    }

    /// Whether a lease ended while the stream ran, so that its slot may be in use twice. The stream goes on:
    /// a failure of the limiter must not kill healthy work.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.leases.iter().any(|leases| leases.is_lost())
    }

    fn end(&self, call: Call) {
        self.running.lock().end(call);
    }

    fn poll_given_back(&self, context: &mut Context<'_>) -> Poll<()> {
        let grant = &mut self.running.lock().grant;
        if let ReplyGrant::Ending(ending) = grant {
            ready!(Pin::new(ending).poll(context));
            *grant = ReplyGrant::GivenBack;
        }
        Poll::Ready(())
    }
}

/// No field is pinned in place.
impl<S: TryStream> Unpin for GrantedStream<S> {}

impl<S: TryStream> Stream for GrantedStream<S> {
    type Item = Result<S::Ok, S::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let running = Arc::clone(&this.running);
        let mut running = running.lock();
        if let Some(reply) = &mut running.reply {
            let Poll::Ready(read) = reply.as_mut().try_poll_next(context) else {
                if this.idle_error.is_some() {
                    running.reader = Some(context.waker().clone());
                }
                return Poll::Pending;
            };
            running.read_at = Instant::now();
            if let Some(Ok(piece)) = &read {
                for meter in &mut running.meters {
                    meter.last = (meter.read)(piece).or_else(|| meter.last.take());
                }
            }
            drop(running);
            match read {
                Some(Ok(piece)) => {
                    this.has_begun = true;
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(error)) => {
                    this.error = Some(error);
                    this.end(if this.has_begun { Call::Made } else { Call::Failed });
                }
                None => this.end(Call::Made),
            }
        } else {
            let was_idle_for = running.was_idle_for.take();
            drop(running);
            if let Some(idle) = was_idle_for {
                this.error = this.idle_error.take().map(|error| error(idle));
            }
        }
        // Not under the lock, which this takes.
        ready!(this.poll_given_back(context));
        Poll::Ready(this.error.take().map(Err))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let error = usize::from(self.error.is_some());
        self.running.lock().reply.as_ref().map_or((error, None), |reply| reply.size_hint())
    }
}

impl<S: TryStream> Drop for GrantedStream<S> {
    fn drop(&mut self) {
        self.watching.iter().for_each(AbortHandle::abort);
        self.end(Call::Made);
    }
}

impl<S: TryStream> std::fmt::Debug for GrantedStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantedStream")
            .field("has_ended", &self.running.lock().reply.is_none())
            .field("lease_lost", &self.is_lease_lost())
            .finish_non_exhaustive()
    }
}

/// Ends the call once no piece was read for `idle`.
async fn end_idle<S: TryStream>(running: Weak<Mutex<OpenReply<S>>>, idle: Duration) {
    let mut until = Instant::now() + idle;
    loop {
        sleep_until(until).await;
        let Some(running) = running.upgrade() else { return };
        let mut running = running.lock();
        if running.reply.is_none() {
            return;
        }
        until = running.read_at + idle;
        if Instant::now() >= until {
            running.was_idle_for = Some(idle);
            tracing::warn!(
                event = "stream.idle",
                idle_ms = idle.as_millis(),
                "nothing was read; the slot is given back"
            );
            running.end(Call::Made);
            let reader = running.reader.take();
            drop(running);
            reader.into_iter().for_each(Waker::wake);
            return;
        }
    }
}
