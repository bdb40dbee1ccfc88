//! The reply that stands for a wait beyond the patience: what the vendor would have sent.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;
use sluice_sdk::RetryIn;

use crate::api::Api;
use crate::limiter::error::REFUSED_BY;

/// The wait in milliseconds, which the clients of OpenAI and Anthropic read before `Retry-After`.
const RETRY_AFTER_MS: &str = "retry-after-ms";

/// The wait that is named if none is known.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// The wait for a start would be beyond the patience.
pub(super) fn reply(api: Option<Api>, retry: &RetryIn) -> Response<Bytes> {
    let message = format!("Sluice: {retry}; the call was not made");
    refusal(api, retry.wait(), retry.dimension().as_str(), &message)
}

/// No start came within the patience, and the table was too slow to say how long it would take.
pub(super) fn timed_out(api: Option<Api>, vendor: &str) -> Response<Bytes> {
    refusal(api, UNKNOWN_WAIT, vendor, "Sluice: no start within the patience; the call was not made")
}

/// A reply with status 429 in the form of the vendor's API, so that each client makes its own error of it.
fn refusal(api: Option<Api>, wait: Duration, refused_by: &str, message: &str) -> Response<Bytes> {
    let body = match api {
        Some(Api::Messages) => {
            json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}})
        }
        Some(Api::GenerateContent | Api::StreamGenerateContent) => {
            json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}})
        }
        Some(Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream) => {
            json!({"message": message})
        }
        _ => json!({"error": {
            "message": message, "type": "rate_limit_exceeded", "code": "rate_limit_exceeded", "param": null,
        }}),
    };
    let mut reply = Response::new(Bytes::from(body.to_string()));
    *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            reply.headers_mut().insert(name, value);
        }
    };
    set(CONTENT_TYPE, "application/json".to_owned());
    // Rounded up: a client that came a moment early would wait again.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    set(RETRY_AFTER, seconds.to_string());
    set(HeaderName::from_static(RETRY_AFTER_MS), wait.as_millis().max(1).to_string());
    set(HeaderName::from_static(REFUSED_BY), refused_by.to_owned());
    if matches!(api, Some(Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream)) {
        // Amazon's clients read the kind of an error here.
        set(HeaderName::from_static("x-amzn-errortype"), "ThrottlingException".to_owned());
    }
    reply
}
