//! Amazon Bedrock: Converse and `InvokeModel`, and their streams.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::frames::{event, frame};
use crate::said::{FRAMES, JSON, counts, error, exchange, of_type, read, replied};

const CONVERSE: &str = "/model/m/converse";
const CONVERSE_STREAM: &str = "/model/m/converse-stream";
const INVOKE: &str = "/model/m/invoke";
const INVOKE_STREAM: &str = "/model/m/invoke-with-response-stream";

/// The figures of <https://github.com/tensorzero/tensorzero/issues/5688>: 18 + 7502 + 386 = 7906.
const USAGE: &str = r#"{"cacheDetails":[{"inputTokens":7502,"ttl":"5m"}],"cacheReadInputTokenCount":0,"cacheReadInputTokens":0,"cacheWriteInputTokenCount":7502,"cacheWriteInputTokens":7502,"inputTokens":18,"outputTokens":386,"serverToolUsage":{},"totalTokens":7906}"#;

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>.
#[test]
fn converse_counts_its_cache_apart() {
    let body = r#"{"metrics": {"latencyMs": 1275}, "output": {"message": {"content": [{"text": "Hi"}], "role": "assistant"}},
        "stopReason": "max_tokens", "usage": @}"#;
    let replied = replied(CONVERSE, JSON, body.replace('@', USAGE).as_bytes());
    assert_eq!(counts(replied.used), (Some(7_520), 0, 7_502, Some(386), 0));
    assert_eq!((replied.cut, replied.complete), (true, true));
}

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>. Each payload
/// has some letters as `p` to hide its length.
fn conversation() -> Vec<Vec<u8>> {
    vec![
        event("messageStart", r#"{"p":"abcdefghijk","role":"assistant"}"#),
        event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"usage"},"p":"abcdefghijkl"}"#),
        event("contentBlockStop", r#"{"contentBlockIndex":0,"p":"abcde"}"#),
        event("messageStop", r#"{"p":"abcdefghijklm","stopReason":"end_turn"}"#),
        event("metadata", &format!(r#"{{"metrics":{{"latencyMs":551}},"p":"abc","usage":{USAGE}}}"#)),
    ]
}

#[test]
fn a_conversation_states_its_usage_in_the_last_frame() {
    let frames = conversation();
    let whole = replied(CONVERSE_STREAM, FRAMES, &frames.concat());
    assert_eq!(counts(whole.used), (Some(7_520), 0, 7_502, Some(386), 0));
    assert_eq!((whole.cut, whole.error, whole.complete), (false, None, true));
    let dropped = replied(CONVERSE_STREAM, FRAMES, &frames[..4].concat());
    assert_eq!((dropped.used, dropped.complete), (None, false));
}

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html>.
#[test]
fn an_exception_inside_a_stream_has_the_form_of_a_refusal() {
    let headers = [
        (":exception-type", "throttlingException"),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    let exception = frame(&headers, br#"{"message":"Too many requests, please wait before trying again."}"#);
    for path in [CONVERSE_STREAM, INVOKE_STREAM] {
        let replied = replied(path, FRAMES, &[conversation()[0].clone(), exception.clone()].concat());
        assert_eq!(error(&replied, "/__type"), "ThrottlingException");
        assert_eq!(error(&replied, "/message"), "Too many requests, please wait before trying again.");
        assert!(replied.complete);
    }
    let headers =
        [(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "An \"error\"")];
    let replied = replied(CONVERSE_STREAM, FRAMES, &frame(&headers, b""));
    assert_eq!(
        (error(&replied, "/__type"), error(&replied, "/message")),
        ("InternalError".into(), "An \"error\"".into())
    );
}

fn chunk(json: &str) -> Vec<u8> {
    event("chunk", &format!(r#"{{"bytes":"{}","p":"abcdefghij"}}"#, STANDARD.encode(json)))
}

/// The events that <https://github.com/maximhq/bifrost/issues/5629> describes; the metrics are without the
/// cache (<https://github.com/BerriAI/litellm/pull/36878>).
#[test]
fn a_stream_of_claude_is_read_through_its_envelope() {
    let frames = [
        chunk(
            r#"{"type":"message_start","message":{"id":"msg_bdrk_1","usage":{"input_tokens":13,"cache_creation_input_tokens":4384,"cache_read_input_tokens":21408,"output_tokens":2}}}"#,
        ),
        chunk(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#),
        chunk(
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":178}}"#,
        ),
        chunk(
            r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"cacheReadInputTokenCount":21408,"cacheWriteInputTokenCount":4384,"inputTokenCount":13,"invocationLatency":2714,"outputTokenCount":178}}"#,
        ),
    ];
    let replied = replied(INVOKE_STREAM, FRAMES, &frames.concat());
    assert_eq!(counts(replied.used), (Some(4_397), 21_408, 4_384, Some(178), 0));
    assert_eq!((replied.cut, replied.error, replied.complete), (true, None, true));
}

/// <https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-mistral-chat-completion.html>.
#[test]
fn the_metrics_of_a_stream_suffice_for_any_model() {
    let last = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":""},"stop_reason":"length"}],"amazon-bedrock-invocationMetrics":{"inputTokenCount":63,"outputTokenCount":263,"invocationLatency":5330,"firstByteLatency":122}}"#;
    let replied = replied(INVOKE_STREAM, FRAMES, &chunk(last));
    assert_eq!(
        (counts(replied.used), replied.cut, replied.complete),
        ((Some(63), 0, 0, Some(263), 0), true, true)
    );
}

/// The headers of <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html>, as
/// they are sent.
#[test]
fn headers_state_the_usage_of_a_body_that_does_not() {
    let mut headers = of_type(JSON);
    let count = |headers: &mut HeaderMap, name, count| headers.insert(name, HeaderValue::from_static(count));
    count(&mut headers, "x-amzn-bedrock-input-token-count", "18");
    count(&mut headers, "x-amzn-bedrock-output-token-count", "386");
    count(&mut headers, "x-amzn-bedrock-cache-read-input-token-count", "5");
    count(&mut headers, "x-amzn-bedrock-cache-write-input-token-count", "7502");
    let exchange = exchange(INVOKE, "{}");
    let silent = read(
        &exchange,
        StatusCode::OK,
        &headers,
        br#"{"outputs": [{"text": "Hi", "stop_reason": "length"}]}"#,
    );
    assert_eq!((counts(silent.used), silent.cut), ((Some(7_520), 5, 7_502, Some(386), 0), true));
    let claude = br#"{"usage": {"input_tokens": 18, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7502, "output_tokens": 387}}"#;
    let stated = read(&exchange, StatusCode::OK, &headers, claude);
    assert_eq!(counts(stated.used), (Some(7_520), 5, 7_502, Some(387), 0));
}
