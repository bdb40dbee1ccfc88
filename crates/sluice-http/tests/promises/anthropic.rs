//! Anthropic's messages.

use crate::said::{EVENTS, JSON, counts, error, replied};

const MESSAGES: &str = "/v1/messages";

/// <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>: input, reads and writes are counted
/// apart.
#[test]
fn input_has_the_cache_writes_and_not_the_reads() {
    let body = br#"{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Hi!"}], "stop_reason": "max_tokens", "stop_sequence": null,
        "usage": {"input_tokens": 21, "cache_creation_input_tokens": 188086, "cache_read_input_tokens": 1200,
            "cache_creation": {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 393, "service_tier": "standard"}}"#;
    let replied = replied(MESSAGES, JSON, body);
    assert_eq!(counts(replied.used), (Some(188_107), 1_200, 188_086, Some(393), 0));
    assert_eq!((replied.cut, replied.error, replied.complete), (true, None, true));
}

/// <https://docs.anthropic.com/en/docs/build-with-claude/streaming>, the basic request.
const START: &str = r#"event: message_start
data: {"type": "message_start", "message": {"id": "msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY", "type": "message", "role": "assistant", "content": [], "model": "claude-opus-4-1-20250805", "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 25, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\"usage\": {\"input_tokens\": 7}"}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

"#;

const END: &str = r#"event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence":null}, "usage": {"output_tokens": 15}}

event: message_stop
data: {"type": "message_stop"}

"#;

#[test]
fn a_streams_last_counts_replace_the_first() {
    let replied = replied(MESSAGES, EVENTS, format!("{START}{END}").as_bytes());
    assert_eq!(counts(replied.used), (Some(35), 5, 10, Some(15), 0));
    assert_eq!((replied.cut, replied.error, replied.complete), (false, None, true));
}

/// <https://github.com/PostHog/posthog-python/releases/tag/posthog-v7.73.3>: with the vendor's own tools, the
/// input of `message_delta` is larger than that of `message_start`.
#[test]
fn input_may_grow_during_a_stream() {
    let grown = r#""usage": {"input_tokens": 10682, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 510}"#;
    let end = END.replace(r#""usage": {"output_tokens": 15}"#, grown);
    let replied = replied(MESSAGES, EVENTS, format!("{START}{end}").as_bytes());
    assert_eq!(counts(replied.used), (Some(10_682), 0, 0, Some(510), 0));
}

#[test]
fn a_dropped_stream_still_states_its_input() {
    let replied = replied(MESSAGES, EVENTS, START.as_bytes());
    assert_eq!((counts(replied.used), replied.complete), ((Some(35), 5, 10, Some(1), 0), false));
}

/// <https://docs.anthropic.com/en/docs/build-with-claude/streaming>, "Error events": outside a stream this is
/// a 529.
#[test]
fn an_overload_inside_a_stream_is_an_error() {
    let event = "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"Overloaded\"}}\n\n";
    let replied = replied(MESSAGES, EVENTS, format!("{START}{event}").as_bytes());
    assert_eq!(error(&replied, "/error/type"), "overloaded_error");
    assert_eq!((counts(replied.used).0, replied.complete), (Some(35), true));
}
