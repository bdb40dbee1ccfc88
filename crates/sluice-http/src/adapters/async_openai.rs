//! The HTTP service of `async-openai`.

use std::future::poll_fn;
use std::task::{Context, Poll};

use async_openai::error::OpenAIError;
use async_openai::middleware::retry::{OpenAIRetry, OpenAIRetryLayer};
use async_openai::middleware::{HttpRequestFactory, ReqwestService};
use http::header::RETRY_AFTER;
use reqwest::Response;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::adapters::BoxFuture;
use crate::adapters::reqwest::was_sent;
use crate::adapters::tower::Limited;
use crate::limiter::{Limiter, LimiterError, REFUSED_BY};

impl Limiter {
    /// The service for `async_openai::Client::with_http_service`: the client's own retries, and below them
    /// the limiter.
    #[must_use]
    pub fn async_openai(&self) -> OpenAIRetry<Limited<ReqwestService>> {
        self.async_openai_over(reqwest::Client::new())
    }

    /// The same, over an HTTP client with settings of your own.
    #[must_use]
    pub fn async_openai_over(&self, http: reqwest::Client) -> OpenAIRetry<Limited<ReqwestService>> {
        OpenAIRetryLayer::default().layer(self.layer(ReqwestService::new(http)))
    }
}

impl<S> Service<HttpRequestFactory> for Limited<S>
where
    S: Service<HttpRequestFactory, Response = Response, Error = OpenAIError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = OpenAIError;
    type Future = BoxFuture<Result<Response, OpenAIError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        // The wait for a start comes first: readiness that is held meanwhile would stop others.
        let _ = context;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let limiter = self.limiter.clone();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let mut request = factory.build().await?;
            let url = request.url().clone();
            let read = limiter.read_reqwest(&mut request);
            // A body that is not in memory is built anew by the client.
            let factory = match request.try_clone() {
                Some(request) => HttpRequestFactory::new(move || {
                    let request = request.try_clone();
                    let built =
                        request.ok_or_else(|| OpenAIError::InvalidArgument("the body is gone".to_owned()));
                    std::future::ready(built)
                }),
                None => factory,
            };
            let send = async {
                poll_fn(|context| inner.poll_ready(context)).await?;
                inner.call(factory).await
            };
            let was_sent = |error: &OpenAIError| match error {
                OpenAIError::Reqwest(error) => was_sent(error),
                _ => true,
            };
            let reply = limiter.call_reqwest(read, url, send, was_sent).await;
            reply.map(without_long_wait).map_err(|error| match error {
                LimiterError::Client(error) => error,
                error => OpenAIError::Boxed(Box::new(error)),
            })
        })
    }
}

/// The longest wait of the limiter's own refusals that the client's retries sleep for. They sleep for any
/// `Retry-After`, three times; without one they pause for less than a second.
const LONGEST_RETRY_AFTER: u64 = 60;

fn without_long_wait(mut reply: Response) -> Response {
    let is_own = reply.headers().contains_key(REFUSED_BY);
    let seconds = reply.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if is_own && seconds.is_some_and(|seconds| seconds > LONGEST_RETRY_AFTER) {
        reply.headers_mut().remove(RETRY_AFTER);
    }
    reply
}
