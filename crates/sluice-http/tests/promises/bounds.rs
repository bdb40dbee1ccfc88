//! What is too long is skipped, and the rest is read.

use http::header::CONTENT_ENCODING;
use http::{HeaderValue, StatusCode};
use sluice_http::{MAX_ERROR_LEN, Replied};

use crate::said::{EVENTS, JSON, counts, exchange, of_type};

fn in_chunks(path: &str, status: u16, content_type: &'static str, chunks: &[&[u8]]) -> Replied {
    let status = StatusCode::from_u16(status).expect("a status");
    let mut reader = exchange(path, "{}").reply(status, &of_type(content_type));
    chunks.iter().for_each(|chunk| reader.feed(chunk));
    reader.finish()
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_body_may_have_any_length() {
    let text = "x".repeat(1 << 20).into_bytes();
    let mut chunks: Vec<&[u8]> = vec![br#"{"choices": [{"message": {"content": ""#];
    chunks.extend(std::iter::repeat_n(&text[..], 64));
    chunks.push(br#""}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}"#);
    let replied = in_chunks(CHAT, 200, JSON, &chunks);
    assert_eq!((counts(replied.used).0, replied.complete), (Some(3), true));
}

/// `response.completed` repeats the whole response, instructions and tools included.
#[test]
fn an_event_may_have_any_length() {
    let text = "x".repeat(1 << 20).into_bytes();
    let mut chunks: Vec<&[u8]> = vec![br#"data: {"type":"response.completed","response":{"instructions":""#];
    chunks.extend(std::iter::repeat_n(&text[..], 16));
    chunks.push(b"\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n");
    let replied = in_chunks("/v1/responses", 200, EVENTS, &chunks);
    assert_eq!((counts(replied.used).0, replied.complete), (Some(3), true));
}

#[test]
fn a_value_that_is_too_long_is_not_believed() {
    let long =
        format!(r#"{{"usage": {{"prompt_tokens": 9, "pad": "{}"}}, "error": null}}"#, "x".repeat(70_000));
    let replied = in_chunks(CHAT, 200, JSON, &[long.as_bytes()]);
    assert_eq!((replied.used, replied.complete), (None, true));
    let events = format!("data: {long}\n\ndata: {{\"usage\": {{\"prompt_tokens\": 3}}}}\n\ndata: [DONE]\n\n");
    assert_eq!(counts(in_chunks(CHAT, 200, EVENTS, &[events.as_bytes()]).used).0, Some(3));
}

#[test]
fn an_error_is_kept_up_to_its_bound() {
    let kept = "x".repeat(MAX_ERROR_LEN);
    let replied = in_chunks(CHAT, 500, "text/plain", &[kept.as_bytes()]);
    assert_eq!(replied.error.as_deref(), Some(kept.as_bytes()));
    for chunks in [vec![kept.as_bytes(), b"x"], vec![b"x", kept.as_bytes(), b"x"]] {
        assert_eq!(in_chunks(CHAT, 500, "text/plain", &chunks).error, None);
    }
    assert_eq!(in_chunks(CHAT, 500, "text/plain", &[]).error, None);
}

#[test]
fn nesting_without_an_end_is_harmless() {
    let open = "[{\"error\":".repeat(200_000);
    let replied = in_chunks(CHAT, 200, JSON, &[open.as_bytes()]);
    assert_eq!((replied.used, replied.error, replied.complete), (None, None, false));
}

#[test]
fn a_compressed_body_is_not_read() {
    let body = br#"{"usage": {"prompt_tokens": 3}}"#;
    for (encoding, complete) in [("gzip", false), ("br", false), ("identity", true)] {
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let mut headers = of_type(JSON);
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            let mut reader = exchange(CHAT, "{}").reply(status, &headers);
            reader.feed(body);
            let replied = reader.finish();
            assert_eq!(
                (replied.complete, replied.error.is_some()),
                (complete, complete && !status.is_success())
            );
        }
    }
}
