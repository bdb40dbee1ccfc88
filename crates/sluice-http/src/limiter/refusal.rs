//! The reply that stands for a wait beyond the patience: what the vendor would have sent.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;
use sluice_sdk::RetryIn;

use crate::api::Api;
use crate::limiter::error::REFUSED_BY;

/// The wait in milliseconds, which the clients of OpenAI and Anthropic read before `Retry-After`.
const RETRY_AFTER_MS: &str = "retry-after-ms";

/// A reply with status 429 in the form of the vendor's API, so that each client makes its own error of it.
pub(super) fn reply(api: Option<Api>, retry: &RetryIn) -> Response<Bytes> {
    let wait = retry.wait();
    let message = format!("Sluice: {retry}; the call was not made");
    let body = match api {
        Some(Api::Messages) => json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}}),
        Some(Api::GenerateContent | Api::StreamGenerateContent) => {
            json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}})
        }
        Some(Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream) => json!({"message": message}),
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
    set(HeaderName::from_static(REFUSED_BY), retry.dimension().to_string());
    if matches!(api, Some(Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream)) {
        // Amazon's clients read the kind of an error here.
        set(HeaderName::from_static("x-amzn-errortype"), "ThrottlingException".to_owned());
    }
    reply
}
