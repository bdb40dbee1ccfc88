//! DynamoDB clients of the AWS SDK for an engine that is served on a socket.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region, SharedHttpClient};

use crate::faults::Faults;
use crate::link::metered;
use crate::meter::Meter;

/// Hundreds of callers on two cores wait for the processor, not for DynamoDB.
const PATIENCE: Duration = Duration::from_secs(10);

/// A DynamoDB client of the AWS SDK for the engine at `endpoint`, over plain HTTP. Its requests are metered
/// and meet the faults, and none is sent again.
#[must_use]
pub fn dynamodb_at(endpoint: &str, meter: Meter, faults: Faults) -> Client {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let timeouts = TimeoutConfig::builder().connect_timeout(PATIENCE).read_timeout(PATIENCE).build();
    let config = config(metered(http, meter, faults)).endpoint_url(endpoint).timeout_config(timeouts);
    Client::from_conf(config.build())
}

/// The configuration of every client of an engine. The engine accepts any credentials.
pub(crate) fn config(http_client: SharedHttpClient) -> Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "sluice-testkit"))
        .retry_config(RetryConfig::disabled())
        .http_client(http_client)
}
