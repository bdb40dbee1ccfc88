//! Clients of DynamoDB: from the credentials of the environment, or from a configuration that the program has.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::config::{Builder, SharedHttpClient};

pub use aws_config::SdkConfig;
pub use aws_sdk_dynamodb::Client as DynamoClient;

/// Pooled connections idle for longer are closed: a Lambda that thaws must not write to a socket that died while it was frozen.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// The AWS configuration of the environment, for a Region, and for another endpoint than AWS's if one is named. Makes no request.
pub async fn environment(region: String, endpoint: Option<&str>) -> SdkConfig {
    let loader = aws_config::defaults(BehaviorVersion::latest()).region(Region::new(region)).http_client(http_client());
    match endpoint {
        Some(url) => loader.endpoint_url(url).load().await,
        None => loader.load().await,
    }
}

/// A client with this configuration, and with another endpoint if one is named.
#[must_use]
pub fn client_of(shared: &SdkConfig, endpoint: Option<&str>) -> DynamoClient {
    let config = Builder::from(shared);
    let config = match endpoint {
        Some(url) => config.endpoint_url(url),
        None => config,
    };
    DynamoClient::from_conf(config.build())
}

/// HTTP over the TLS that the workspace builds: rustls with ring.
pub(crate) fn http_client() -> SharedHttpClient {
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
    aws_smithy_http_client::Builder::new()
        .pool_idle_timeout(IDLE_CONNECTION)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}
