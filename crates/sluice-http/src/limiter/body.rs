//! The body of a limited call: the client reads it, and the grant lives as long.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluice_sdk::{Ending, HeldGrant};
use tokio::time::{Instant, Sleep, timeout};

use crate::limiter::counted::CountedCall;
use crate::limiter::error_body::ErrorBody;
use crate::reply::ReplyReader;

/// How long the end of a body waits for its slots to be back; they then come back by themselves.
pub(crate) const LONGEST_END: Duration = Duration::from_secs(3);

pin_project! {
    /// The body of a reply, with the grant of its call. At its end, or when it is dropped, what the call used
    /// is settled and what it held is given back. The end of a call that holds slots is told when they are
    /// back, at most 3 s later.
    #[must_use = "a body that is dropped ends its call"]
    pub struct LimitedBody<B>
    where
        B: Body,
    {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindParts]
    enum Kind<B>
    where
        B: Body,
    {
        // Of a call that nothing limits.
        Free { #[pin] body: B },
        // Of a call that the vendor accepted.
        Open { #[pin] body: Option<B>, call: Call },
        // Of an error, whose beginning was read.
        Begun { body: ErrorBody<B> },
        // Of a reply that the limiter made.
        Own { read: Option<Bytes> },
    }
}

/// A call, ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Call(CallState);

#[derive(Debug)]
enum CallState {
    Open(Box<OpenCall>),
    /// The slots are given back. The client waits for that, and no longer than this.
    Ending(Ending, Pin<Box<Sleep>>),
    Ended,
}

/// A call whose reply is read.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) reader: ReplyReader,
    pub(crate) held: HeldGrant,
    pub(crate) counted: CountedCall,
    /// Begins with the end. It is made here, since a body may be read outside of tokio's runtime.
    pub(crate) longest_end: Pin<Box<Sleep>>,
}

impl OpenCall {
    /// Settles the call and gives back what it held. Returns what is worth waiting for.
    fn end(self) -> Option<(Ending, Pin<Box<Sleep>>)> {
        let Self { reader, held, counted, mut longest_end } = self;
        let replied = reader.finish();
        let used = counted.used(&replied);
        let has_slots = held.has_slots();
        let ending = match replied.error {
            Some(event) => held.broke_off(event, used),
            None => held.end(used),
        };
        longest_end.as_mut().reset(Instant::now() + LONGEST_END);
        has_slots.then_some((ending, longest_end))
    }
}

impl Call {
    pub(crate) fn open(call: OpenCall) -> Self {
        Self(CallState::Open(Box::new(call)))
    }

    /// Reads a piece of the body.
    pub(crate) fn feed(&mut self, data: &[u8]) {
        if let CallState::Open(open) = &mut self.0 {
            open.reader.feed(data);
        }
    }

    /// Ends the call, and waits until its slots are back.
    pub(crate) async fn end_in_time(&mut self) {
        if let Some((ending, _)) = self.end() {
            let _ = timeout(LONGEST_END, ending).await;
        }
    }

    /// Ends the call if it is open. Returns what is worth waiting for.
    fn end(&mut self) -> Option<(Ending, Pin<Box<Sleep>>)> {
        match std::mem::replace(&mut self.0, CallState::Ended) {
            CallState::Open(call) => call.end(),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// Ends the call, and waits for its end with the next poll.
    fn end_and_wait(&mut self) {
        if let Some((ending, longest)) = self.end() {
            self.0 = CallState::Ending(ending, longest);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // There may be no runtime here, so nothing waits.
        drop(self.end());
    }
}

impl<B: Body> LimitedBody<B> {
    pub(crate) fn free(body: B) -> Self {
        Self { kind: Kind::Free { body } }
    }

    pub(crate) fn open(body: B, call: OpenCall) -> Self {
        Self { kind: Kind::Open { body: Some(body), call: Call::open(call) } }
    }

    pub(crate) fn begun(body: ErrorBody<B>) -> Self {
        Self { kind: Kind::Begun { body } }
    }

    pub(crate) fn own(read: Bytes) -> Self {
        Self { kind: Kind::Own { read: Some(read) } }
    }
}

impl<B: Body<Data = Bytes>> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindParts::Free { body } => body.poll_frame(context),
            KindParts::Own { read } => Poll::Ready(read.take().map(|read| Ok(Frame::data(read)))),
            KindParts::Begun { body } => body.poll_frame(context),
            KindParts::Open { body, call } => poll_open(body, call, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Free { body } => body.is_end_stream(),
            // The client must ask for the end, so that the slots are back when it goes on.
            Kind::Open { call, .. } => matches!(call.0, CallState::Ended),
            Kind::Begun { body } => body.is_end_stream(),
            Kind::Own { read } => read.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Free { body } => body.size_hint(),
            Kind::Open { body, .. } => body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
            Kind::Begun { body } => body.size_hint(),
            Kind::Own { read } => SizeHint::with_exact(
                read.as_ref().map_or(0, |read| u64::try_from(read.len()).unwrap_or(u64::MAX)),
            ),
        }
    }
}

fn poll_open<B: Body<Data = Bytes>>(
    mut body: Pin<&mut Option<B>>,
    call: &mut Call,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    if let (CallState::Open(open), Some(reading)) = (&mut call.0, body.as_mut().as_pin_mut()) {
        let error = match ready!(reading.poll_frame(context)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    open.reader.feed(data);
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        // The connection first: the next caller's call must not meet it at the vendor.
        body.set(None);
        call.end_and_wait();
        if let Some(error) = error {
            return Poll::Ready(Some(Err(error)));
        }
    }
    if let CallState::Ending(ending, longest) = &mut call.0 {
        if Pin::new(ending).poll(context).is_pending() {
            ready!(longest.as_mut().poll(context));
        }
        call.0 = CallState::Ended;
    }
    Poll::Ready(None)
}

impl<B: Body> std::fmt::Debug for LimitedBody<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_ended = !matches!(&self.kind, Kind::Open { call, .. } if !matches!(call.0, CallState::Ended));
        formatter.debug_struct("LimitedBody").field("has_ended", &has_ended).finish_non_exhaustive()
    }
}
