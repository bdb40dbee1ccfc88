//! A limited call in steps, for HTTP clients that are not written in Rust: they send the request and read the
//! reply themselves.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri};
use sluice_sdk::LimitError;

use crate::limiter::Limiter;
use crate::limiter::body::Call;
use crate::limiter::call::{Begun, LimitedCall};
use crate::limiter::readable::is_readable;

/// Whether a call may be made: the answer of [`Limiter::start`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Started {
    /// Nothing limits it.
    Free,
    /// It may be made now.
    Granted(Box<StartedCall>),
    /// It would have to wait beyond the patience: the reply that says so. The call must not be made.
    Refused(Response<Bytes>),
}

/// A call that may be made. One that is dropped gives its slots back, and its tokens stay taken.
#[derive(Debug)]
#[must_use = "a call that is dropped gives its slots back"]
pub struct StartedCall {
    call: LimitedCall,
    other_body: Option<Vec<u8>>,
}

/// A reply of which the body is read. If it is dropped, the call ends, as at the end of the body.
#[derive(Debug)]
#[must_use = "a reply that is dropped ends its call"]
pub struct OpenReply(Call);

impl Limiter {
    /// Waits until a call may start. `body` is `None` if it is not in memory; its tokens are not known then.
    ///
    /// Then send the request, and report its end: [`StartedCall::answered`], [`StartedCall::failed`] or
    /// [`StartedCall::unanswered`].
    ///
    /// # Errors
    /// [`LimitError`]: the limiter could not decide. The call must not be made.
    pub async fn start(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Option<&[u8]>,
    ) -> Result<Started, LimitError> {
        let length = |body: &[u8]| u64::try_from(body.len()).unwrap_or(u64::MAX);
        let body = body.filter(|body| is_readable(method, uri, headers, Some(length(body))));
        let mut request = self.read(method, uri, body);
        let other_body = request.as_mut().and_then(|request| request.other_body.take());
        Ok(match self.begin(request).await? {
            Begun::Free => Started::Free,
            Begun::Refused(reply) => Started::Refused(reply),
            Begun::Granted(call) => Started::Granted(Box::new(StartedCall { call: *call, other_body })),
        })
    }
}

impl StartedCall {
    /// The body to send in place of the client's ([`Limiter::ask_usage`]); `None` to send that.
    #[must_use]
    pub fn other_body(&self) -> Option<&[u8]> {
        self.other_body.as_deref()
    }

    /// There is no reply. `was_sent` says whether the vendor may have had the request, and works on it: then
    /// the tokens stay taken. Waits until what was held is back, 3 s at most.
    pub async fn unanswered(self, was_sent: bool) {
        self.call.ended(was_sent).await;
    }

    /// The head of a reply with a status of success. Its body is to be read.
    ///
    /// # Panics
    /// Outside of tokio's runtime.
    pub fn answered(self, head: Response<()>) -> OpenReply {
        OpenReply(Call::open(self.call.answered(&head.into_parts().0)))
    }

    /// A reply with any other status, and the beginning of its body: as much as came, up to
    /// [`MAX_ERROR_LEN`](crate::MAX_ERROR_LEN). Returns when the fleet has reacted to a refusal, 3 s later at
    /// most.
    pub async fn failed(self, reply: Response<Vec<u8>>) {
        let (head, body) = reply.into_parts();
        self.call.failed(&head, body).await;
    }
}

impl OpenReply {
    /// Reads the next piece of the body, which may be cut anywhere. It must be decoded: without
    /// `Content-Encoding`.
    pub fn feed(&mut self, piece: &[u8]) {
        self.0.feed(piece);
    }

    /// The body has ended, or broken off: settles what the reply stated and gives back what the call held. If
    /// it held slots, waits until they are back, 3 s at most.
    pub async fn end(mut self) {
        self.0.end_in_time().await;
    }
}
