//! A tower layer over requests of the `http` crate.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tower_layer::Layer;
use tower_service::Service;

use crate::adapters::BoxFuture;
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

/// A JSON body is read as a whole before it is sent. Other bodies pass by unread.
impl<S, B, R> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send,
{
    type Response = Response<LimitedBody<R>>;
    type Error = LimiterError<S::Error>;
    type Future = BoxFuture<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(LimiterError::Client)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limiter = self.limiter.clone();
        // The clone is for the next call: this one was found ready.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            if limiter.vendor_of(&parts.method, &parts.uri).is_none() || !is_json(parts.headers.get(CONTENT_TYPE)) {
                let read = limiter.read(&parts.method, &parts.uri, None);
                return limiter.call(read, inner.call(Request::from_parts(parts, body))).await;
            }
            let body = body.collect().await.map_err(|error| LimiterError::Body(error.into()))?.to_bytes();
            let mut read = limiter.read(&parts.method, &parts.uri, Some(&body));
            let other = read.as_mut().and_then(|read| read.other_body.take());
            let body = other.map_or(body, |other| {
                parts.headers.remove(http::header::CONTENT_LENGTH);
                Bytes::from(other)
            });
            limiter.call(read, inner.call(Request::from_parts(parts, B::from(body)))).await
        })
    }
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let text = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().is_some_and(|kind| kind.trim().to_ascii_lowercase().ends_with("json"))
}
