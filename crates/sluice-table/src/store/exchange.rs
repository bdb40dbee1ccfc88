//! One attempt on the wire, bounded from the moment when the request is sent to the last byte of its reply.
//!
//! The AWS SDK has a timeout for the head of a reply, which does not cover the body, and one for the attempt,
//! which includes fetching credentials: seconds, at the first request. So this module wraps the HTTP client
//! under the SDK, also one that the product supplies: one timeout covers connection, head and body, and the
//! SDK gets the reply whole. Credentials have a limit of their own. The SDK's other timeouts are off, and so
//! is its stalled-stream protection: no body arrives in pieces.

use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Builder, ConfigBag, IdentityCache, RuntimeComponents, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
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

use crate::dates::DateReader;
#[cfg(feature = "aws-config")]
use crate::http::http_client;

/// How long credentials may take. A machine's metadata service answers in milliseconds, an assumed role takes
/// tenths of a second, and a login helper takes seconds. The AWS SDK allows each of its attempts 6.2 s.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(5);

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
pub(super) fn bounded(dynamo: &Dynamo, attempt: AttemptTimeout, dates: &DateReader) -> Builder {
    let config = dynamo.config();
    let http = config.http_client().unwrap_or_else(http_client);
    let credentials = config.identity_cache().unwrap_or_else(|| IdentityCache::lazy().build());
    config
        .to_builder()
        .http_client(BoundedClient { http, attempt, dates: dates.clone() })
        .identity_cache(BoundedIdentity(credentials))
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
}

impl HttpClient for BoundedClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let connector = self.http.http_connector(settings, components);
        SharedHttpConnector::new(BoundedConnector { connector, attempt: self.attempt, dates: self.dates.clone() })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.http.validate_base_client_config(components, config)
    }

    fn validate_final_config(&self, components: &RuntimeComponents, config: &ConfigBag) -> Result<(), BoxError> {
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
}

impl HttpConnector for BoundedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let allowed = self.attempt.of(&request);
        let (dates, sent) = (self.dates.clone(), self.dates.sent(&request));
        let reply = self.connector.call(request);
        HttpConnectorFuture::new(async move {
            let until = Instant::now() + allowed;
            let Ok(reply) = timeout_at(until, reply).await else {
                return Err(ConnectorError::timeout(TooSlow::Head(allowed).into()));
            };
            let reply = whole(reply?, until, allowed).await?;
            dates.replied(&reply, sent);
            Ok(reply)
        })
    }
}

/// The reply with its whole body in memory.
async fn whole(mut reply: HttpResponse, until: Instant, allowed: Duration) -> Result<HttpResponse, ConnectorError> {
    if reply.body().bytes().is_some() {
        return Ok(reply);
    }
    let status = reply.status().as_u16();
    let body = std::mem::replace(reply.body_mut(), SdkBody::taken());
    match timeout_at(until, Limited::new(body, MOST_BYTES).collect()).await {
        Ok(Ok(body)) => {
            *reply.body_mut() = SdkBody::from(body.to_bytes());
            Ok(reply)
        }
        Ok(Err(source)) => Err(ConnectorError::io(BrokenBody { status, source }.into())),
        Err(_) => Err(ConnectorError::timeout(TooSlow::Body { status, allowed }.into())),
    }
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
struct BoundedIdentity(SharedIdentityCache);

impl ResolveCachedIdentity for BoundedIdentity {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        let identity = self.0.resolve_cached_identity(resolver, components, config);
        IdentityFuture::new(async move {
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
        self.0.validate_base_client_config(components, config)
    }

    fn validate_final_config(&self, components: &RuntimeComponents, config: &ConfigBag) -> Result<(), BoxError> {
        self.0.validate_final_config(components, config)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the credentials provider did not answer within {} s", CREDENTIALS_TIMEOUT.as_secs())]
struct NoCredentials;
