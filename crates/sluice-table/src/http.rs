//! The HTTP client for callers that bring none.

use std::time::Duration;

use aws_sdk_dynamodb::config::SharedHttpClient;

/// Pooled connections that are idle for longer are closed: a Lambda that thaws must not write to a socket
/// that died while the Lambda was frozen.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// HTTP over the TLS that the workspace builds: rustls with ring.
pub(crate) fn http_client() -> SharedHttpClient {
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
    aws_smithy_http_client::Builder::new()
        .pool_idle_timeout(IDLE_CONNECTION)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}
