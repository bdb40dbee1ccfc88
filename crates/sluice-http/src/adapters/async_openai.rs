//! The HTTP service of `async-openai`.

use std::task::{Context, Poll};

use async_openai::error::OpenAIError;
use async_openai::middleware::retry::{OpenAIRetry, OpenAIRetryLayer};
use async_openai::middleware::{HttpRequestFactory, ReqwestService};
use reqwest::Response;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::adapters::BoxFuture;
use crate::adapters::tower::Limited;
use crate::limiter::{Limiter, LimiterError};

impl Limiter {
    /// The service for `async_openai::Client::with_http_service`: the client's own retries, and below them the limiter.
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
        self.inner.poll_ready(context)
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let limiter = self.limiter.clone();
        // The clone is for the next call: this one was found ready.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let mut request = factory.build().await?;
            let url = request.url().clone();
            let read = limiter.read_reqwest(&mut request);
            // A body that is not in memory is built anew by the client.
            let factory = match request.try_clone() {
                Some(request) => HttpRequestFactory::new(move || {
                    let request = request.try_clone();
                    let built = request.ok_or_else(|| OpenAIError::InvalidArgument("the body is gone".to_owned()));
                    std::future::ready(built)
                }),
                None => factory,
            };
            limiter.call_reqwest(read, url, inner.call(factory)).await.map_err(|error| match error {
                LimiterError::Client(error) => error,
                error => OpenAIError::Boxed(Box::new(error)),
            })
        })
    }
}
