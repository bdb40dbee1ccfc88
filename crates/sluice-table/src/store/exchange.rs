//! One attempt on the wire, bounded from the moment when the request is sent to the last byte of its reply.
//!
//! The AWS SDK has a timeout for the head of a reply, which does not cover the body, and one for the attempt,
//! which includes fetching credentials: seconds, at the first request. So this module wraps the HTTP client
//! under the SDK, also one that the product supplies: one timeout covers connection, head and body, and the
//! SDK gets the reply whole. Credentials have a limit of their own. The SDK's other timeouts are off, and so
//! is its stalled-stream protection: no body arrives in pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    Builder, ConfigBag, IdentityCache, RuntimeComponents, StalledStreamProtectionConfig,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::identity::{
    IdentityFuture, ResolveCachedIdentity, SharedIdentityCache, SharedIdentityResolver,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{Instant, timeout, timeout_at};

use super::breaker::Breaker;
use super::error::no_answer;
use crate::dates::DateReader;
#[cfg(feature = "aws-config")]
use crate::http::http_client;

/// How long credentials may take. A machine's metadata service answers in milliseconds, an assumed role takes
/// tenths of a second, and a login helper takes seconds. The AWS SDK allows each of its attempts 6.2 s.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of a page of a scan or a batch of rows is so many times that of a row. A page or a batch has
/// up to some megabytes of JSON, which takes seconds over a line of 10 Mbit/s; a row takes milliseconds.
const TIMES_FOR_MANY: u32 = 5;

/// The largest reply that is read: DynamoDB sends at most 16 MB of items, up to twice that as JSON.
const MOST_BYTES: usize = 32 * 1_024 * 1_024;

/// How long one attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTimeout(pub(crate) Duration);

impl AttemptTimeout {
    /// The timeout of a request that reads or writes rows by name.
    #[must_use]
    pub const fn of_rows(self) -> Duration {
        self.0
    }

    /// The timeout of a page of a scan, or of a batch.
    #[must_use]
    pub const fn of_many(self) -> Duration {
        self.0.saturating_mul(TIMES_FOR_MANY)
    }

    fn of(self, request: &HttpRequest) -> Duration {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        match target.rsplit('.').next() {
            Some("Scan" | "BatchGetItem") => self.of_many(),
            _ => self.of_rows(),
        }
    }
}

/// The configuration of `dynamo` with bounded attempts, which the SDK does not repeat. If `dynamo` has no
/// HTTP client of its own, one is created; without the feature `aws-config` its requests fail, and say why.
///
/// The AWS SDK's own default client is never used: nothing would bound its attempts.
pub(super) fn bounded(
    dynamo: &Dynamo,
    attempt: AttemptTimeout,
    dates: &DateReader,
    breaker: &Arc<Breaker>,
) -> Builder {
    let config = dynamo.config();
    let http = config.http_client().unwrap_or_else(http_client);
    let credentials = config.identity_cache().unwrap_or_else(|| IdentityCache::lazy().build());
    config
        .to_builder()
        .http_client(BoundedClient { http, attempt, dates: dates.clone(), breaker: Arc::clone(breaker) })
        .identity_cache(BoundedIdentity { cache: credentials, breaker: Arc::clone(breaker) })
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(timeouts(attempt))
}

/// A client without a connection.
#[cfg(not(feature = "aws-config"))]
fn http_client() -> SharedHttpClient {
    aws_smithy_runtime_api::client::http::http_client_fn(|_, _| SharedHttpConnector::new(NoHttpClient))
}

/// The program brought no HTTP client, and none is built in.
#[cfg(not(feature = "aws-config"))]
#[derive(Debug, thiserror::Error)]
#[error(
    "the DynamoDB client has no HTTP client: set `http_client` in its configuration, or build sluice-sdk with its feature aws-config"
)]
struct NoHttpClient;

#[cfg(not(feature = "aws-config"))]
impl HttpConnector for NoHttpClient {
    fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(Err(ConnectorError::user(Self.into())))
    }
}

/// The connect timeout is for connections made in the background, for which no caller waits any more.
fn timeouts(attempt: AttemptTimeout) -> TimeoutConfig {
    TimeoutConfig::disabled().to_builder().connect_timeout(attempt.of_rows()).build()
}

/// An HTTP client that bounds each exchange, and reads the time from its reply.
#[derive(Debug)]
struct BoundedClient {
    http: SharedHttpClient,
    attempt: AttemptTimeout,
    dates: DateReader,
    breaker: Arc<Breaker>,
}

impl HttpClient for BoundedClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let connector = self.http.http_connector(settings, components);
        let (attempt, dates, breaker) = (self.attempt, self.dates.clone(), Arc::clone(&self.breaker));
        SharedHttpConnector::new(BoundedConnector { connector, attempt, dates, breaker })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.http.validate_base_client_config(components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.http.validate_final_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.http.connector_metadata()
    }
}

#[derive(Debug)]
struct BoundedConnector {
    connector: SharedHttpConnector,
    attempt: AttemptTimeout,
    dates: DateReader,
    breaker: Arc<Breaker>,
}

impl HttpConnector for BoundedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let allowed = self.attempt.of(&request);
        // A page may be on its way for so long that its silence says nothing.
        let counts = allowed == self.attempt.of_rows();
        let (dates, sent) = (self.dates.clone(), self.dates.sent(&request));
        let (breaker, sent_at) = (Arc::clone(&self.breaker), Instant::now());
        if counts {
            breaker.sent(sent_at);
        }
        let reply = self.connector.call(request);
        HttpConnectorFuture::new(async move {
            let attempt = Attempt { breaker: &breaker, endpoint: dates.endpoint(), sent_at, allowed, counts };
            let reply = attempt.reply(reply).await;
            match &reply {
                Ok(reply) if reply.status().as_u16() < SERVER_ERROR => breaker.answered(),
                Ok(reply) if counts => {
                    let cause = format!("{}: HTTP status {}", dates.endpoint(), reply.status().as_u16());
                    breaker.failed(sent_at, allowed, cause);
                }
                Err(error) if counts && error.is_timeout() => {
                    breaker.unanswered(sent_at, allowed, || no_answer(dates.endpoint(), error));
                }
                // A request that is wrong was not sent.
                Err(error) if counts && !error.is_user() => {
                    breaker.failed(sent_at, allowed, no_answer(dates.endpoint(), error));
                }
                Ok(_) | Err(_) => {}
            }
            let reply = reply?;
            dates.replied(&reply, sent);
            Ok(reply)
        })
    }
}

/// From this HTTP status on, a reply does not show that DynamoDB works.
const SERVER_ERROR: u16 = 500;

/// No head of a reply has come.
const NO_HEAD: u16 = 0;

/// An attempt under way.
struct Attempt<'a> {
    breaker: &'a Breaker,
    endpoint: &'a str,
    sent_at: Instant,
    allowed: Duration,
    /// Whether its silence counts as DynamoDB's.
    counts: bool,
}

impl Attempt<'_> {
    /// The reply, with its whole body in memory. Ends at the timeout of the attempt, or when DynamoDB is out.
    async fn reply(&self, reply: HttpConnectorFuture) -> Result<HttpResponse, ConnectorError> {
        let head = AtomicU16::new(NO_HEAD);
        let mut reply = std::pin::pin!(async {
            let reply = reply.await?;
            head.store(reply.status().as_u16(), Ordering::Relaxed);
            whole(reply).await
        });
        let until = self.sent_at + self.allowed;
        loop {
            let at = if self.counts { self.breaker.waits_until(until) } else { until };
            if let Ok(reply) = timeout_at(at, &mut reply).await {
                return reply;
            }
            let is_over = at >= until;
            let too_slow = match head.load(Ordering::Relaxed) {
                NO_HEAD if is_over => TooSlow::Head(self.allowed),
                NO_HEAD => match self.breaker.failure() {
                    Some(cause) => TooSlow::Failing(cause),
                    None => TooSlow::Silent(self.breaker.silence()),
                },
                status => TooSlow::Body { status, allowed: at - self.sent_at },
            };
            let error = ConnectorError::timeout(too_slow.into());
            if is_over || self.breaker.is_given_up(Instant::now(), || no_answer(self.endpoint, &error)) {
                return Err(error);
            }
        }
    }
}

/// The reply with its whole body in memory.
async fn whole(mut reply: HttpResponse) -> Result<HttpResponse, ConnectorError> {
    if reply.body().bytes().is_some() {
        return Ok(reply);
    }
    let status = reply.status().as_u16();
    let body = std::mem::replace(reply.body_mut(), SdkBody::taken());
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|source| ConnectorError::io(BrokenBody { status, source }.into()))?;
    *reply.body_mut() = SdkBody::from(body.to_bytes());
    Ok(reply)
}

/// An attempt that was given up.
#[derive(Debug, thiserror::Error)]
enum TooSlow {
    #[error(
        "no answer within {} s, including the time to connect (SLUICE_ATTEMPT_TIMEOUT): the server does not answer, or a network or proxy \
         on the way delays the reply", .0.as_secs_f64()
    )]
    Head(Duration),
    #[error(
        "no answer to any request within {} s (SLUICE_ANSWER_WITHIN): the server does not answer, or a network or proxy on the way \
         delays the reply", .0.as_secs_f64()
    )]
    Silent(Duration),
    /// What was tried meanwhile failed at once.
    #[error("{0}")]
    Failing(String),
    #[error(
        "HTTP status {status}, but the body was not complete within {} s (SLUICE_ATTEMPT_TIMEOUT): a network or proxy on the way \
         delays the reply", .allowed.as_secs_f64()
    )]
    Body { status: u16, allowed: Duration },
}

#[derive(Debug, thiserror::Error)]
#[error("HTTP status {status}, but the body broke off or is not a reply of DynamoDB's: {source}")]
struct BrokenBody {
    status: u16,
    source: BoxError,
}

/// A product's cache of credentials, with a limit to the time it takes.
#[derive(Debug)]
struct BoundedIdentity {
    cache: SharedIdentityCache,
    breaker: Arc<Breaker>,
}

impl ResolveCachedIdentity for BoundedIdentity {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        let mut identity = self.cache.resolve_cached_identity(resolver, components, config);
        IdentityFuture::new(async move {
            // Cached credentials are there at once.
            if let Poll::Ready(identity) =
                std::future::poll_fn(|c| Poll::Ready(Pin::new(&mut identity).poll(c))).await
            {
                return identity;
            }
            let _fetching = self.breaker.fetches_credentials();
            match timeout(CREDENTIALS_TIMEOUT, identity).await {
                Ok(identity) => identity,
                Err(_) => Err(NoCredentials.into()),
            }
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.cache.validate_base_client_config(components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.cache.validate_final_config(components, config)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the credentials provider did not answer within {} s", CREDENTIALS_TIMEOUT.as_secs())]
struct NoCredentials;
