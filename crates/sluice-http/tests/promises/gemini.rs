//! Google's generateContent.

use crate::said::{EVENTS, JSON, counts, error, replied};

const WHOLE: &str = "/v1beta/models/gemini-2.5-flash:generateContent";
const STREAM: &str = "/v1beta/models/gemini-2.5-flash:streamGenerateContent";

/// <https://googleapis.github.io/js-genai/release_docs/classes/types.GenerateContentResponseUsageMetadata.html>:
/// the total is the sum of prompt, candidates, tool results and thoughts, and the prompt includes the cached
/// content.
#[test]
fn thoughts_are_output_and_tool_results_are_input() {
    let body = br#"{"candidates": [{"content": {"parts": [{"text": "ok"}], "role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 6,
            "toolUsePromptTokenCount": 7, "thoughtsTokenCount": 194, "totalTokenCount": 307,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}]},
        "modelVersion": "gemini-2.5-flash", "responseId": "r"}"#;
    let replied = replied(WHOLE, JSON, body);
    assert_eq!(counts(replied.used), (Some(67), 40, 0, Some(200), 194));
    assert_eq!((replied.cut, replied.error, replied.complete), (true, None, true));
}

#[test]
fn a_reply_of_thoughts_alone_has_output() {
    let body =
        br#"{"usageMetadata": {"promptTokenCount": 10, "thoughtsTokenCount": 50, "totalTokenCount": 60}}"#;
    assert_eq!(counts(replied(WHOLE, JSON, body).used), (Some(10), 0, 0, Some(50), 50));
}

/// <https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent>: `usageMetadata` repeats
/// and grows (<https://github.com/ankit373/hydra/pull/855>).
const CHUNKS: [&str; 2] = [
    r#"{"candidates": [{"content": {"parts": [{"text": "AI"}], "role": "model"}, "index": 0}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 6}, "modelVersion": "gemini-2.5-flash"}"#,
    r#"{"candidates": [{"content": {"parts": [{"text": " works"}], "role": "model"}, "finishReason": "STOP", "index": 0}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 12, "totalTokenCount": 17}, "modelVersion": "gemini-2.5-flash"}"#,
];

#[test]
fn a_stream_of_events_is_read() {
    let [first, last] = CHUNKS.map(|chunk| format!("data: {chunk}\r\n\r\n"));
    let whole = replied(STREAM, EVENTS, format!("{first}{last}").as_bytes());
    assert_eq!((counts(whole.used), whole.complete), ((Some(5), 0, 0, Some(12), 0), true));
    let dropped = replied(STREAM, EVENTS, first.as_bytes());
    assert_eq!((counts(dropped.used).3, dropped.complete), (Some(1), false));
}

/// Without `alt=sse` the reply is one list, in pieces.
#[test]
fn a_streamed_list_is_read() {
    let whole = replied(STREAM, JSON, format!("[{}\n,\r\n{}\n]\n", CHUNKS[0], CHUNKS[1]).as_bytes());
    assert_eq!((counts(whole.used), whole.complete), ((Some(5), 0, 0, Some(12), 0), true));
    let dropped = replied(STREAM, JSON, format!("[{}\n,\r\n", CHUNKS[0]).as_bytes());
    assert_eq!((counts(dropped.used).3, dropped.complete), (Some(1), false));
}

#[test]
fn a_blocked_prompt_is_a_whole_reply() {
    let body = "data: {\"promptFeedback\": {\"blockReason\": \"SAFETY\"}, \"usageMetadata\": {\"promptTokenCount\": 5}}\n\n";
    let replied = replied(STREAM, EVENTS, body.as_bytes());
    assert_eq!((counts(replied.used), replied.complete), ((Some(5), 0, 0, None, 0), true));
}

/// The form of <https://cloud.google.com/apis/design/errors>.
#[test]
fn an_error_inside_a_stream_or_a_list_is_kept() {
    let failure =
        r#"{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}"#;
    let events = replied(STREAM, EVENTS, format!("data: {}\n\ndata: {failure}\n\n", CHUNKS[0]).as_bytes());
    let list = replied(STREAM, JSON, format!("[{},{failure}]", CHUNKS[0]).as_bytes());
    for replied in [events, list] {
        assert_eq!(error(&replied, "/error/status"), "UNAVAILABLE");
        assert_eq!((counts(replied.used).0, replied.complete), (Some(5), true));
    }
}
