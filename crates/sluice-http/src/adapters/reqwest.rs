//! Requests and replies of reqwest.

use http::Uri;
use http::header::CONTENT_LENGTH;
use reqwest::{Request, Response, ResponseBuilderExt as _};

use crate::limiter::call::LimitedRequest;
use crate::limiter::{Limiter, LimiterError};

impl Limiter {
    /// Reads a request, and puts another body into it if one is to be sent.
    pub(super) fn read_reqwest(&self, request: &mut Request) -> Option<LimitedRequest> {
        let uri: Uri = request.url().as_str().parse().ok()?;
        let body = request.body().and_then(reqwest::Body::as_bytes);
        let mut read = self.read(request.method(), &uri, body)?;
        // The client's own limit on the request begins when it is sent: the wait takes no longer than that
        // again.
        read.at_most = request.timeout().copied();
        if let Some(other) = read.other_body.take() {
            request.headers_mut().remove(CONTENT_LENGTH);
            *request.body_mut() = Some(other.into());
        }
        Some(read)
    }

    /// Makes a call under a grant.
    pub(super) async fn call_reqwest<E>(
        &self,
        read: Option<LimitedRequest>,
        url: reqwest::Url,
        send: impl Future<Output = Result<Response, E>>,
        was_sent: impl Fn(&E) -> bool,
    ) -> Result<Response, LimiterError<E>> {
        // Of a reply that passes by unread, nothing changes.
        if read.is_none() {
            return send.await.map_err(LimiterError::Client);
        }
        let mut of = url;
        let send = async {
            let reply = send.await?;
            of = reply.url().clone();
            Ok(http::Response::<reqwest::Body>::from(reply))
        };
        let (parts, body) = self.call(read, send, was_sent).await?.into_parts();
        let mut reply = http::Response::builder().url(of);
        if let Some(extensions) = reply.extensions_mut() {
            extensions.extend(parts.extensions);
        }
        let mut reply =
            reply.body(reqwest::Body::wrap(body)).map_err(|error| LimiterError::Body(error.into()))?;
        (*reply.status_mut(), *reply.version_mut(), *reply.headers_mut()) =
            (parts.status, parts.version, parts.headers);
        Ok(Response::from(reply))
    }
}

/// Whether the vendor may have had a request that failed so.
pub(super) fn was_sent(error: &reqwest::Error) -> bool {
    !error.is_connect() && !error.is_builder()
}
