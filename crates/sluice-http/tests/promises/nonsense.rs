//! Nothing panics, and where a body is split does not matter.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use proptest::prelude::*;
use sluice_http::{Exchange, Replied};

use crate::frames::event;
use crate::said::{EVENTS, FRAMES, JSON};

const PATHS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/model/m/converse",
    "/model/m/converse-stream",
    "/model/m/invoke",
    "/model/m/invoke-with-response-stream",
    "/v1beta/models/m:generateContent",
    "/v1beta/models/m:streamGenerateContent",
    "/v1/models",
];

const TYPES: &[&str] = &[JSON, EVENTS, FRAMES, "text/html", ""];

/// Parts that mean something to some API, so that what is made of them comes far.
const PARTS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\\"",
    " ",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "data: ",
    "data:",
    "event: error",
    ": comment",
    "\u{feff}",
    "[DONE]",
    "null",
    "true",
    "-1",
    "1e9",
    "18446744073709551616",
    "12",
    "ü",
    "👋",
    "\"usage\":",
    "\"usageMetadata\":",
    "\"error\":",
    "\"type\":",
    "\"error\"",
    "\"message\":",
    "\"response\":",
    "\"choices\":",
    "\"finish_reason\":",
    "\"length\"",
    "\"code\":",
    "\"prompt_tokens\":5",
    "\"input_tokens\":5",
    "\"output_tokens\":6",
    "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}",
    "\"message_stop\"",
    "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
    "\"candidates\":",
    "\"*\":",
];

fn body() -> impl Strategy<Value = Vec<u8>> {
    let parts = || prop::collection::vec(prop::sample::select(PARTS), 0..40).prop_map(|parts| parts.concat());
    let frames = prop::collection::vec(parts(), 0..4)
        .prop_map(|payloads| payloads.iter().flat_map(|payload| event("chunk", payload)).collect());
    prop_oneof![
        parts().prop_map(String::into_bytes),
        frames,
        prop::collection::vec(any::<u8>(), 0..300),
        (parts(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(text, bytes)| [
            text.into_bytes(),
            bytes
        ]
        .concat()),
    ]
}

fn read<'a>(
    path: &str,
    status: u16,
    content_type: &'static str,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Replied {
    let exchange = Exchange::of(&Method::POST, path, b"{\"stream\": true}");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
    let mut reader = exchange.reply(StatusCode::from_u16(status).expect("a status"), &headers);
    chunks.for_each(|chunk| reader.feed(chunk));
    reader.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn where_a_body_is_split_does_not_matter(
        body in body(),
        sizes in prop::collection::vec(0_usize..20, 1..60),
        path in prop::sample::select(PATHS),
        content_type in prop::sample::select(TYPES),
        status in prop::sample::select(&[200_u16, 201, 429, 500][..]),
    ) {
        let mut rest = &body[..];
        let mut chunks: Vec<&[u8]> = sizes.iter().map(|size| rest.split_off(..(*size).min(rest.len())).unwrap_or_default()).collect();
        chunks.push(rest);
        let whole = read(path, status, content_type, std::iter::once(&body[..]));
        prop_assert_eq!(read(path, status, content_type, chunks.into_iter()), whole.clone());
        prop_assert_eq!(read(path, status, content_type, body.chunks(1)), whole);
    }

    #[test]
    fn any_request_is_read(body in body(), path in "(/[a-z0-9%:.-]{0,12}){0,5}", known in prop::sample::select(PATHS)) {
        for path in [&path, known] {
            let exchange = Exchange::of(&Method::POST, path, &body);
            prop_assert_eq!(exchange.asked().clone(), Exchange::of(&Method::POST, path, &body).asked().clone());
            let _ = exchange.with_usage_asked(&body);
        }
    }

    #[test]
    fn an_estimate_is_at_most_a_token_for_each_byte_without_media(text in "[a-z \"\\\\\n]{0,400}") {
        let body = serde_json::json!({"messages": [{"content": text}]}).to_string();
        let exchange = Exchange::of(&Method::POST, "/v1/chat/completions", body.as_bytes());
        prop_assert_eq!(exchange.asked().input, 2 + text.len().div_ceil(4) as u64);
    }
}
