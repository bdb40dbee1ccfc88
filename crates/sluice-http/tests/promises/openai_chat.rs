//! OpenAI's chat completions and embeddings, and what other vendors make of them.

use http::{HeaderMap, StatusCode};

use crate::said::{EVENTS, JSON, counts, error, exchange, of_type, read, replied};

const CHAT: &str = "/v1/chat/completions";

/// <https://platform.openai.com/docs/guides/prompt-caching>, the example of a reply.
#[test]
fn cached_input_is_not_input() {
    let body = br#"{"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "\"usage\": {}", "refusal": null},
            "logprobs": null, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 64, "audio_tokens": 0}},
        "service_tier": "default", "system_fingerprint": "fp_1"}"#;
    let replied = replied(CHAT, JSON, body);
    assert_eq!(counts(replied.used), (Some(86), 1_920, 0, Some(300), 64));
    assert_eq!((replied.cut, replied.error, replied.complete), (false, None, true));
}

/// <https://github.com/mindroom-ai/mindroom/pull/2134>, from OpenAI's guide: cache writes from GPT-5.6 on are
/// part of the input.
#[test]
fn openais_cache_writes_are_part_of_its_input() {
    let body = br#"{"usage": {"prompt_tokens": 2600, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 400}}}"#;
    assert_eq!(counts(replied(CHAT, JSON, body).used), (Some(600), 2_000, 400, Some(10), 0));
}

/// <https://platform.openai.com/docs/api-reference/chat-streaming>, with `stream_options.include_usage`:
/// `usage` is null until the last event, which has no choices.
const STREAM: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Grüße 👋"},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}

data: [DONE]

"#;

#[test]
fn a_stream_states_its_usage_in_the_last_event() {
    let replied = replied(CHAT, EVENTS, STREAM.as_bytes());
    assert_eq!(counts(replied.used), (Some(19), 0, 0, Some(10), 0));
    assert_eq!((replied.cut, replied.error, replied.complete), (true, None, true));
}

#[test]
fn lines_may_end_in_every_way_that_the_standard_allows() {
    let expected = replied(CHAT, EVENTS, STREAM.as_bytes());
    for end in ["\r\n", "\r"] {
        assert_eq!(replied(CHAT, EVENTS, STREAM.replace('\n', end).as_bytes()), expected, "{end:?}");
    }
    let marked = format!("\u{feff}{STREAM}");
    assert_eq!(replied(CHAT, EVENTS, marked.as_bytes()), expected);
    let odd = STREAM.replace("data: ", ": a comment\nid: 7\nretry: 10\nevent\nunknown: data: {\ndata:");
    assert_eq!(replied(CHAT, EVENTS, odd.as_bytes()), expected);
    let over_two_lines = STREAM.replace(",\"usage\"", ",\ndata: \"usage\"");
    for end in ["\n", "\r\n", "\r"] {
        assert_eq!(replied(CHAT, EVENTS, over_two_lines.replace('\n', end).as_bytes()), expected, "{end:?}");
    }
    let without_the_last_empty_line = STREAM.trim_end();
    assert_eq!(replied(CHAT, EVENTS, without_the_last_empty_line.as_bytes()), expected);
}

#[test]
fn an_event_that_is_not_json_hides_no_later_one() {
    for odd in ["{\"a\": [\"", "\"", "[[[", "}]}", "<html>", "{\"usage\": "] {
        let body = format!("data: {odd}\n\n{STREAM}");
        assert_eq!(replied(CHAT, EVENTS, body.as_bytes()), replied(CHAT, EVENTS, STREAM.as_bytes()), "{odd}");
    }
}

#[test]
fn a_byte_order_mark_hides_no_first_event() {
    let body = "\u{feff}data: {\"usage\": {\"prompt_tokens\": 1, \"completion_tokens\": 2}}\n\n";
    assert_eq!(counts(replied(CHAT, EVENTS, body.as_bytes()).used), (Some(1), 0, 0, Some(2), 0));
}

#[test]
fn a_dropped_connection_gives_what_is_known_and_is_not_complete() {
    let until = |end: &str| {
        replied(CHAT, EVENTS, &STREAM.as_bytes()[..STREAM.find(end).expect("part of the stream")])
    };
    let early = until("\"length\"");
    assert_eq!((early.used, early.cut, early.complete), (None, false, false));
    let late = until("[DONE]");
    assert_eq!((counts(late.used).3, late.cut, late.complete), (Some(10), true, false));
    let json =
        replied(CHAT, JSON, br#"{"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "choices": ["#);
    assert_eq!((counts(json.used).0, json.complete), (Some(1), false));
}

/// <https://gitea.wtr.qzz.io/shishantbiswas/coder/raw/commit/e00e85765bce84481d0f7337c5ecc7a86a7d0fcc/aibridge/fixtures/openai/chatcompletions/stream_error.txtar>.
#[test]
fn an_error_inside_a_stream_is_kept_as_a_refusals_body() {
    let body = br#"data: {"choices":[{"index":0,"delta":{"content":" question"},"finish_reason":null}],"usage":null}

data: {"error": {"message": "The server had an error while processing your request. Sorry about that!", "type": "server_error"}}

"#;
    let replied = replied(CHAT, EVENTS, body);
    assert_eq!(error(&replied, "/error/type"), "server_error");
    assert_eq!((replied.used, replied.complete), (None, true));
}

/// <https://docs.x.ai/docs/key-information/consumption-and-rate-limits>; the figures are from
/// <https://github.com/Wei-Shaw/sub2api/issues/5771>: 10120 + 1499 + 2809 = 14428.
#[test]
fn xais_reasoning_is_output_too() {
    let body = br#"{"usage": {"prompt_tokens": 10120, "completion_tokens": 1499, "total_tokens": 14428,
        "prompt_tokens_details": {"cached_tokens": 128}, "completion_tokens_details": {"reasoning_tokens": 2809}}}"#;
    assert_eq!(counts(replied(CHAT, JSON, body).used), (Some(9_992), 128, 0, Some(4_308), 2_809));
}

/// <https://console.groq.com/docs/api-reference>, <https://platform.moonshot.ai/docs/api/chat> and
/// <https://api-docs.deepseek.com/guides/kv_cache>.
#[test]
fn usage_in_other_places_is_found() {
    let groq =
        b"data: {\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}}\n\n";
    assert_eq!(counts(replied(CHAT, EVENTS, groq).used), (Some(5), 0, 0, Some(6), 0));
    let moonshot = b"data: {\"choices\":[{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}]}\n\n";
    assert_eq!(counts(replied(CHAT, EVENTS, moonshot).used), (Some(5), 0, 0, Some(6), 0));
    let deepseek =
        br#"{"usage": {"prompt_tokens": 50, "completion_tokens": 6, "prompt_cache_hit_tokens": 40}}"#;
    assert_eq!(counts(replied(CHAT, JSON, deepseek).used), (Some(10), 40, 0, Some(6), 0));
}

/// <https://platform.openai.com/docs/api-reference/embeddings/create>.
#[test]
fn an_embedding_has_no_output() {
    let body =
        br#"{"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.0023, -0.009, 1e-7]}],
        "model": "text-embedding-ada-002", "usage": {"prompt_tokens": 8, "total_tokens": 8}}"#;
    let replied = replied("/v1/embeddings", JSON, body);
    assert_eq!((counts(replied.used), replied.complete), ((Some(8), 0, 0, None, 0), true));
}

#[test]
fn a_refusals_body_is_kept_as_it_is() {
    let body =
        br#"{"error": {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}}"#;
    let exchange = exchange(CHAT, r#"{"stream": true}"#);
    for status in [400, 429, 500, 503] {
        let status = StatusCode::from_u16(status).expect("a status");
        let replied = read(&exchange, status, &of_type(JSON), body);
        assert_eq!((replied.error.as_deref(), replied.used, replied.complete), (Some(&body[..]), None, true));
    }
    let page = read(&exchange, StatusCode::BAD_GATEWAY, &of_type("text/html"), b"<html>");
    assert_eq!((page.error.as_deref(), page.complete), (Some(&b"<html>"[..]), false));
}

#[test]
fn a_reply_without_a_type_is_read_as_the_request_asked() {
    let stream = exchange(CHAT, r#"{"stream": true}"#);
    let replied = read(&stream, StatusCode::OK, &HeaderMap::new(), STREAM.as_bytes());
    assert_eq!((counts(replied.used).0, replied.complete), (Some(19), true));
    let replied = read(&stream, StatusCode::OK, &of_type("text/plain"), STREAM.as_bytes());
    assert_eq!((counts(replied.used).0, replied.complete), (Some(19), true));
    let whole = exchange(CHAT, "{}");
    let replied = read(&whole, StatusCode::OK, &HeaderMap::new(), br#"{"usage": {"prompt_tokens": 3}}"#);
    assert_eq!((counts(replied.used).0, replied.complete), (Some(3), true));
}
