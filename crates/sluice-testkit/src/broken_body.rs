//! Bodies of replies that arrive incomplete or slowly.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep};

/// How a body arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    /// Half of the body arrives, and then nothing.
    Stalls,
    /// Half of the body arrives, and then the connection breaks.
    Breaks,
    /// One byte arrives at a time, each after this pause.
    Trickles(Duration),
}

/// A body with the content of `whole` that arrives in this way.
pub(crate) fn broken_body(whole: Bytes, arrival: Arrival) -> SdkBody {
    let left = match arrival {
        Arrival::Stalls | Arrival::Breaks => whole.slice(..whole.len() / 2),
        Arrival::Trickles(_) => whole,
    };
    SdkBody::from_body_1_x(BrokenBody { left, arrival, pause: None })
}

struct BrokenBody {
    left: Bytes,
    arrival: Arrival,
    /// The pause before the next byte.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Body for BrokenBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.arrival {
            Arrival::Stalls | Arrival::Breaks if !self.left.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.left)))))
            }
            Arrival::Stalls => Poll::Pending,
            Arrival::Breaks => Poll::Ready(Some(Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the connection broke in the middle of the body",
            )))),
            Arrival::Trickles(_) if self.left.is_empty() => Poll::Ready(None),
            Arrival::Trickles(every) => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(every)));
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
                Poll::Ready(Some(Ok(Frame::data(self.left.split_to(1)))))
            }
        }
    }
}
