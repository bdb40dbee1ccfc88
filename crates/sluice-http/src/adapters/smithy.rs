//! An HTTP client for the SDKs of AWS, as for `aws-sdk-bedrockruntime`.

use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::{RuntimeComponents, RuntimeComponentsBuilder};
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use http::{Method, Uri};
use http_body_util::BodyExt as _;

use crate::api::Route;
use crate::limiter::call::LimitedRequest;
use crate::limiter::never_sent::never_sent;
use crate::limiter::{Limiter, LimiterError};

/// The longest wait: a request is signed before it, and AWS takes a signature for five minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(4 * 60);

/// An HTTP client for an SDK of AWS whose calls are limited: see [`Limiter::http_client`].
#[derive(Debug)]
struct LimitedHttpClient {
    inner: SharedHttpClient,
    limiter: Limiter,
}

#[derive(Debug)]
struct LimitedConnector {
    inner: SharedHttpConnector,
    limiter: Limiter,
}

impl Limiter {
    /// An HTTP client for the configuration of `aws-sdk-bedrockruntime`, over `inner`. The SDK's own retries
    /// stand above it. Only calls of Bedrock's runtime are limited (`Converse`, `InvokeModel`), whatever
    /// their host; name the vendor ([`vendor`](Self::vendor)), as in `bedrock`.
    #[must_use]
    pub fn http_client(&self, inner: impl HttpClient + 'static) -> SharedHttpClient {
        let inner = SharedHttpClient::new(inner);
        SharedHttpClient::new(LimitedHttpClient { inner, limiter: self.clone() })
    }
}

impl HttpClient for LimitedHttpClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(LimitedConnector { inner, limiter: self.limiter.clone() })
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.inner.connector_metadata()
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.inner.validate_base_client_config(components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.inner.validate_final_config(components, config)
    }
}

impl HttpConnector for LimitedConnector {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let Some(mut read) = self.read(&request) else { return self.inner.call(request) };
        read.at_most = Some(LONGEST_WAIT);
        let (inner, limiter) = (self.inner.clone(), self.limiter.clone());
        HttpConnectorFuture::new(async move {
            // The SDK gives up a body that nobody reads for some seconds, as it takes the connection to be
            // stalled. So the body, which is in memory, is read before the wait.
            let body = std::mem::replace(request.body_mut(), SdkBody::taken());
            let body = body.collect().await.map_err(ConnectorError::user)?;
            *request.body_mut() = SdkBody::from(body.to_bytes());
            let send = async {
                let reply = inner.call(request).await?;
                reply.try_into_http1x().map_err(|error| ConnectorError::other(error.into(), None))
            };
            let was_sent = |error: &ConnectorError| !error.is_user() && !never_sent(error);
            let reply = limiter.call(Some(read), send, was_sent).await.map_err(|error| match error {
                LimiterError::Client(error) => error,
                // The call was not made, and no second try at once will be granted.
                error => ConnectorError::user(error.into()),
            })?;
            let reply = Response::try_from(reply.map(SdkBody::from_body_1_x));
            reply.map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

impl LimitedConnector {
    fn read(&self, request: &HttpRequest) -> Option<LimitedRequest> {
        let (method, uri): (Method, Uri) = (request.method().parse().ok()?, request.uri().parse().ok()?);
        // The same client may serve other services of AWS, the limiter's own table among them.
        Route::of(&method, uri.path()).filter(|route| route.api.is_of_bedrock())?;
        self.limiter.read(&method, &uri, request.body().bytes())
    }
}
