//! A middleware of `reqwest-middleware`, which rig uses too.

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::adapters::reqwest::was_sent;
use crate::limiter::{Limiter, LimiterError};

/// Add it last, below the client's retries.
#[async_trait]
impl Middleware for Limiter {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let url = request.url().clone();
        let read = self.read_reqwest(&mut request);
        let was_sent = |error: &Error| match error {
            Error::Reqwest(error) => was_sent(error),
            Error::Middleware(_) => true,
        };
        self.call_reqwest(read, url, next.run(request, extensions), was_sent).await.map_err(|error| {
            match error {
                LimiterError::Client(error) => error,
                error => Error::middleware(error),
            }
        })
    }
}
