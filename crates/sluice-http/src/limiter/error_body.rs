//! The body of an error, whose beginning the limiter reads before the client does.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::reply::MAX_ERROR_LEN;

/// How long the limiter waits for the body of an error.
const LONGEST_ERROR: Duration = Duration::from_secs(2);

/// The beginning of a body, and what follows.
#[derive(Debug)]
pub(crate) struct ErrorBody<B: Body> {
    /// The data that was read. Empty once the client has it.
    pub(crate) read: Bytes,
    /// What came after the data: trailers, or an error.
    next: Option<Result<Frame<Bytes>, B::Error>>,
    /// The rest. `None` after the end.
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body<Data = Bytes>> ErrorBody<B> {
    /// Reads as far as the body comes in time and may matter.
    pub(super) async fn read(body: B) -> Self {
        let until = Instant::now() + LONGEST_ERROR;
        let (mut read, mut next, mut rest) = (BytesMut::new(), None, Some(Box::pin(body)));
        while let Some(body) = &mut rest
            && read.len() < MAX_ERROR_LEN
        {
            match timeout_at(until, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => read.extend_from_slice(&data),
                    Err(trailers) => {
                        next = Some(Ok(trailers));
                        break;
                    }
                },
                Ok(Some(Err(error))) => {
                    next = Some(Err(error));
                    rest = None;
                }
                Ok(None) => rest = None,
                Err(_) => break,
            }
        }
        Self { read: read.freeze(), next, rest }
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))));
        }
        match (self.next.take(), &mut self.rest) {
            (Some(next), _) => Poll::Ready(Some(next)),
            (None, Some(rest)) => rest.as_mut().poll_frame(context),
            (None, None) => Poll::Ready(None),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && self.next.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let read = u64::try_from(self.read.len()).unwrap_or(u64::MAX);
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
