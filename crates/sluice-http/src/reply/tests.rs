//! What a reader keeps in memory.

use super::{Body, CONTENT_TYPE, HeaderMap, ReplyReader, StatusCode};
use crate::exchange::Exchange;

const BOUND: usize = 2 * 1_024 * 1_024;

fn reader(path: &str, content_type: &'static str, status: u16) -> ReplyReader {
    let exchange = Exchange::of(&http::Method::POST, path, b"{}");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(content_type))]);
    exchange.reply(StatusCode::from_u16(status).expect("a status"), &headers)
}

fn held(reader: &ReplyReader) -> usize {
    let body = match &reader.body {
        Body::Events(lines) => lines.held(),
        Body::Frames(frames) => frames.held(),
        Body::Error(kept) => kept.as_ref().map_or(0, Vec::capacity),
        Body::Json | Body::Unreadable => 0,
    };
    reader.scan.held() + reader.facts.held() + body
}

/// Feeds `start`, then `more` until 4 MiB have passed.
fn most_held(mut reader: ReplyReader, start: &[u8], more: &[u8]) -> usize {
    reader.feed(start);
    let more = more.repeat(4_096 / more.len() + 1);
    (0..1_024).fold(0, |most, _| {
        reader.feed(&more);
        most.max(held(&reader))
    })
}

/// Path, type of the body, status, how the body begins, and what it repeats then.
type Case = (&'static str, &'static str, u16, &'static [u8], &'static [u8]);

#[test]
fn memory_is_bounded_whatever_comes() {
    const EVENTS: &str = "text/event-stream";
    const FRAMES: &str = "application/vnd.amazon.eventstream";
    let frame_of_a_mebibyte: &[u8] = b"\x00\x0f\xff\xff\x00\x00\x00\x00\xbd\xca\xc3\xc0";
    let cases: &[Case] = &[
        ("/v1/chat/completions", "application/json", 200, br#"{"usage": ""#, b"x"),
        ("/v1/chat/completions", "application/json", 200, br#"{"usage": "#, b"["),
        ("/v1/chat/completions", "application/json", 200, br#"{""#, b"x"),
        ("/v1/chat/completions", "application/json", 200, b"", br#"{"choices":["#),
        ("/v1/chat/completions", "application/json", 429, b"", b"x"),
        ("/v1/responses", EVENTS, 200, b"data: {", br#""code": "xxxxxxxx", "message": "xxxxxxxx","#),
        ("/v1/responses", EVENTS, 200, b"", b"data"),
        ("/v1/responses", EVENTS, 200, b"data: ", b"[DONE]"),
        ("/model/m/converse-stream", FRAMES, 200, frame_of_a_mebibyte, b"x"),
    ];
    for (path, content_type, status, start, more) in cases {
        let most = most_held(reader(path, content_type, *status), start, more);
        assert!(most < BOUND, "{most} bytes for {path} {}", String::from_utf8_lossy(more));
    }
}

#[test]
fn a_real_stream_needs_a_few_hundred_bytes() {
    let event = br#"data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}"#;
    let most = most_held(
        reader("/v1/chat/completions", "text/event-stream", 200),
        b"",
        &[&event[..], b"\n\n"].concat(),
    );
    assert!(most < 512, "{most}");
}
