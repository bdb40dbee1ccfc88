//! Replies as the tests state them.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sluice_http::{Exchange, Replied, Used};

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream; charset=utf-8";
pub(crate) const FRAMES: &str = "application/vnd.amazon.eventstream";

pub(crate) fn exchange(path: &str, request: &str) -> Exchange {
    Exchange::of(&Method::POST, path, request.as_bytes())
}

pub(crate) fn of_type(content_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
}

/// Reads a body in one piece and in pieces of 1, 2, 3 and 7 bytes: what it says must be the same.
pub(crate) fn read(exchange: &Exchange, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Replied {
    let pieces = |size: usize| {
        let mut reader = exchange.reply(status, headers);
        for chunk in body.chunks(size) {
            reader.feed(chunk);
            reader.feed(b"");
        }
        reader.finish()
    };
    let whole = pieces(body.len().max(1));
    for size in [1, 2, 3, 7] {
        assert_eq!(pieces(size), whole, "in pieces of {size}");
    }
    whole
}

/// A reply with status 200 to a request of `path`.
pub(crate) fn replied(path: &str, content_type: &'static str, body: &[u8]) -> Replied {
    read(&exchange(path, "{}"), StatusCode::OK, &of_type(content_type), body)
}

/// Input, cached input, cache writes, output, reasoning.
pub(crate) fn counts(used: Option<Used>) -> (Option<u64>, u64, u64, Option<u64>, u64) {
    let used = used.expect("usage is known");
    (used.input, used.cached, used.cache_writes, used.output, used.reasoning)
}

/// The value at `place` of the error.
pub(crate) fn error(replied: &Replied, place: &str) -> String {
    let error = replied.error.as_deref().expect("there is an error");
    let error: serde_json::Value = serde_json::from_slice(error).expect("the error is JSON");
    error.pointer(place).and_then(serde_json::Value::as_str).expect("the error has the place").to_owned()
}
