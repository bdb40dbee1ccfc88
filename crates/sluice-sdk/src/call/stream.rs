//! Streams: a reply that comes in pieces keeps its grant until its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures_core::{Stream, TryStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::api::request::Quantity;
use crate::grant::{Grant, Holding};
use crate::lane::settle;

/// A vendor's reply in pieces, and the grant under which it was requested: see [`Grant::stream`].
#[must_use = "a stream does nothing until it is read; if dropped, it gives back its grant"]
pub struct GrantedStream<S: TryStream> {
    /// `None` after the end.
    reply: Option<Pin<Box<S>>>,
    meters: Vec<Meter<S::Ok>>,
    /// Holds the grant, renews it, and gives it back when it receives the end: a task of its own, for readers
    /// that take long over a piece and for readers that go away. `None` when that is done.
    holding: Option<JoinHandle<()>>,
    end_sender: Option<oneshot::Sender<End>>,
    /// The error of the reply, kept until the grant is given back.
    error: Option<S::Error>,
    /// Whether a piece arrived, so that the vendor has worked.
    has_begun: bool,
    lease_lost: Arc<AtomicBool>,
}

/// Reads what the call used of one dimension, and keeps the last value.
struct Meter<T> {
    dimension: String,
    read: Read<T>,
    last: Option<Quantity>,
}

type Read<T> = Box<dyn FnMut(&T) -> Option<Quantity> + Send>;

/// How a stream ended.
struct End {
    call: Call,
    used: Vec<(String, Quantity)>,
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
        let lease_lost = Arc::new(AtomicBool::new(false));
        let (end_sender, end_receiver) = oneshot::channel();
        GrantedStream {
            reply: Some(Box::pin(reply)),
            meters: Vec::new(),
            holding: Some(tokio::spawn(hold(self, end_receiver, Arc::clone(&lease_lost)))),
            end_sender: Some(end_sender),
            error: None,
            has_begun: false,
            lease_lost,
        }
    }
}

impl<S: TryStream> GrantedStream<S> {
    /// Settles `dimension` by what `read` finds in the pieces: `None` for a piece that states no use. The
    /// last value counts, so running totals work too. If the call used less than was taken, at most the
    /// difference goes back; if it used more, the difference is taken. A number below zero, or a dimension
    /// without tokens in the grant, is logged at the end.
    pub fn used<Q: Into<Quantity>>(
        mut self,
        dimension: impl Into<String>,
        mut read: impl FnMut(&S::Ok) -> Option<Q> + Send + 'static,
    ) -> Self {
        let read = Box::new(move |piece: &S::Ok| read(piece).map(Into::into));
        self.meters.push(Meter { dimension: dimension.into(), read, last: None });
        self
    }

    /// Whether a lease ended while the stream ran, so that its slot may be in use twice. The stream goes on:
    /// a failure of the limiter must not kill healthy work.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.lease_lost.load(Ordering::Relaxed)
    }

    fn end(&mut self, call: Call) {
        // The connection first: a slot that is given back is not in use.
        self.reply = None;
        let stated = |meter: Meter<S::Ok>| Some((meter.dimension, meter.last?));
        let used = std::mem::take(&mut self.meters).into_iter().filter_map(stated).collect();
        if let Some(end_sender) = self.end_sender.take() {
            // The task that holds the grant listens until it receives the end.
            let _ = end_sender.send(End { call, used });
        }
    }

    fn poll_given_back(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(holding) = &mut self.holding {
            // If the runtime shuts down first, the grant goes with it.
            let _ = ready!(Pin::new(holding).poll(context));
            self.holding = None;
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
        if let Some(reply) = &mut this.reply {
            match ready!(reply.as_mut().try_poll_next(context)) {
                Some(Ok(piece)) => {
                    this.has_begun = true;
                    for meter in &mut this.meters {
                        meter.last = (meter.read)(&piece).or_else(|| meter.last.take());
                    }
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(error)) => {
                    this.error = Some(error);
                    this.end(if this.has_begun { Call::Made } else { Call::Failed });
                }
                None => this.end(Call::Made),
            }
        }
        ready!(this.poll_given_back(context));
        Poll::Ready(this.error.take().map(Err))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let error = usize::from(self.error.is_some());
        self.reply.as_ref().map_or((error, Some(error)), |reply| reply.size_hint())
    }
}

impl<S: TryStream> Drop for GrantedStream<S> {
    fn drop(&mut self) {
        self.end(Call::Made);
    }
}

impl<S: TryStream> std::fmt::Debug for GrantedStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantedStream")
            .field("has_ended", &self.reply.is_none())
            .field("lease_lost", &self.is_lease_lost())
            .finish_non_exhaustive()
    }
}

/// Holds the grant until it receives the end, then settles and gives back.
async fn hold(mut grant: Grant, ended: oneshot::Receiver<End>, lost: Arc<AtomicBool>) {
    let end = tokio::select! {
        biased;
        end = ended => end,
        () = grant.keep_alive(Holding::Renewed, &lost) => return,
    };
    // If the stream goes away without an end, the grant's own drop gives back.
    let Ok(End { call, used }) = end else { return };
    for (dimension, used) in used {
        match settle::parse(&dimension, &used) {
            Ok(amount) if grant.cost(&dimension).is_some() => grant.charge(&dimension, amount),
            Ok(_) => tracing::warn!(event = "settle.not_held", dimension, %used),
            Err(error) => tracing::warn!(event = "settle.failed", dimension, %error),
        }
    }
    if call == Call::Failed {
        grant.charge_failure();
    }
    grant.release_in_time().await;
}
