//! Passes the `Date` of DynamoDB's replies to the table's clock. No extra request is made for it.

use std::sync::{Arc, OnceLock};

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use sluice_core::Timestamp;

use crate::table_clock::{SentAt, TableClock};

/// Reads the `Date` of each reply.
#[derive(Clone, Debug)]
pub(crate) struct DateReader {
    clock: Arc<TableClock>,
    /// Scheme, host and port that requests go to.
    endpoint: Arc<OnceLock<String>>,
}

impl DateReader {
    pub(crate) fn new(clock: Arc<TableClock>) -> Self {
        Self { clock, endpoint: Arc::default() }
    }

    /// The host that requests go to; `None` before the first request.
    pub(crate) fn server(&self) -> Option<&str> {
        self.endpoint.get().map(|endpoint| host(endpoint))
    }

    /// Scheme, host and port that requests go to, for messages.
    pub(crate) fn endpoint(&self) -> &str {
        self.endpoint.get().map_or("the endpoint", String::as_str)
    }

    /// Notes when `request` is sent: now.
    pub(crate) fn sent(&self, request: &HttpRequest) -> SentAt {
        self.endpoint.get_or_init(|| endpoint(request.uri()).to_owned());
        self.clock.sent()
    }

    /// Reads the reply to the request that was sent at `sent`. Ignores a missing or unreadable `Date`: no
    /// request fails because of it.
    pub(crate) fn replied(&self, reply: &HttpResponse, sent: SentAt) {
        // The reply of a proxy has another clock. Engines for development may leave out the id; DynamoDB does
        // not.
        if reply.headers().get("x-amzn-requestid").is_some() || reply.status().is_success() {
            self.clock.replied(reply.headers().get("date").and_then(date_of), sent);
        }
    }
}

fn date_of(text: &str) -> Option<Timestamp> {
    let date = DateTime::from_str(text, DateTimeFormat::HttpDate).ok()?;
    Some(Timestamp::from_micros(date.secs().checked_mul(1_000_000)?))
}

/// A URL without its path.
fn endpoint(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |at| begin + at);
    &url[..end]
}

/// The host of a URL.
fn host(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_without_its_port() {
        let hosts =
            ["http://127.0.0.1:8000/", "https://dynamodb.eu-central-1.amazonaws.com/", "http://[::1]:8000"];
        assert_eq!(hosts.map(host), ["127.0.0.1", "dynamodb.eu-central-1.amazonaws.com", "::1"]);
    }

    #[test]
    fn an_endpoint_is_told_with_its_scheme_and_port() {
        let urls = [
            "http://127.0.0.1:8000/",
            "https://dynamodb.eu-central-1.amazonaws.com",
            "http://[::1]:8000/?a=/",
        ];
        let endpoints =
            ["http://127.0.0.1:8000", "https://dynamodb.eu-central-1.amazonaws.com", "http://[::1]:8000"];
        assert_eq!(urls.map(endpoint), endpoints);
    }

    #[test]
    fn a_date_is_read_as_http_writes_it_and_nothing_else() {
        assert_eq!(date_of("Mon, 04 Mar 2024 11:00:02 GMT"), Some(Timestamp::from_secs(1_709_550_002)));
        assert_eq!(date_of("yesterday"), None);
        assert_eq!(date_of(""), None);
    }
}
