//! A tower layer over requests of the `http` crate.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Request, Response, Uri};
use http_body::Body;
use http_body_util::BodyExt as _;
use tower_layer::Layer;
use tower_service::Service;

use crate::adapters::BoxFuture;
use crate::limiter::never_sent::was_sent;
use crate::limiter::readable::is_readable;
use crate::limiter::{LimitedBody, Limiter, LimiterError};

/// A client whose calls are limited: see [`Limiter`].
#[derive(Clone, Debug)]
pub struct Limited<S> {
    pub(super) inner: S,
    pub(super) limiter: Limiter,
}

impl<S> Layer<S> for Limiter {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, limiter: self.clone() }
    }
}

/// The JSON body of a known API is read as a whole before it is sent. Other bodies pass by unread.
impl<S, B, R> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send,
    R::Error: Send,
{
    type Response = Response<LimitedBody<R>>;
    type Error = LimiterError<S::Error>;
    type Future = BoxFuture<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The wait for a start comes first: readiness that is held meanwhile would stop others.
        let _ = context;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limiter = self.limiter.clone();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let mut send = async |request| {
                poll_fn(|context| inner.poll_ready(context)).await?;
                inner.call(request).await
            };
            let (mut parts, body) = request.into_parts();
            let at_most = body.size_hint().upper();
            let uri = with_host(&parts.uri, &parts.headers);
            let is_read = is_readable(&parts.method, &uri, &parts.headers, at_most);
            if limiter.vendor_of(&parts.method, &uri).is_none() || !is_read {
                let read = limiter.read(&parts.method, &uri, None);
                return limiter.call(read, send(Request::from_parts(parts, body)), was_sent).await;
            }
            let body = body.collect().await.map_err(|error| LimiterError::Body(error.into()))?.to_bytes();
            let mut read = limiter.read(&parts.method, &uri, Some(&body));
            let other = read.as_mut().and_then(|read| read.other_body.take());
            let body = other.map_or(body, |other| {
                parts.headers.remove(http::header::CONTENT_LENGTH);
                Bytes::from(other)
            });
            limiter.call(read, send(Request::from_parts(parts, B::from(body))), was_sent).await
        })
    }
}

/// The address with its host: a request in origin form names it in a header alone.
fn with_host(uri: &Uri, headers: &HeaderMap) -> Uri {
    let host = headers.get(HOST).filter(|_| uri.host().is_none()).and_then(|host| host.to_str().ok());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let whole = host
        .and_then(|host| Uri::builder().scheme("https").authority(host).path_and_query(path).build().ok());
    whole.unwrap_or_else(|| uri.clone())
}
