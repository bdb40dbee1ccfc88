//! OpenAI's responses.

use crate::said::{EVENTS, JSON, counts, error, replied};

const RESPONSES: &str = "/v1/responses";

/// A reply in
/// <https://gitea.wtr.qzz.io/shishantbiswas/coder/raw/commit/e00e85765bce84481d0f7337c5ecc7a86a7d0fcc/aibridge/fixtures/openai/responses/blocking/cached_input_tokens.txtar>.
#[test]
fn a_whole_reply_states_its_usage() {
    let body = br#"{"id": "resp_1", "object": "response", "status": "completed", "error": null, "incomplete_details": null,
        "instructions": null, "max_output_tokens": null, "model": "gpt-4.1-2025-04-14",
        "output": [{"id": "msg_1", "type": "message", "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "- I provide clear answers."}]}],
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tools": [],
        "usage": {"input_tokens": 12033, "input_tokens_details": {"cached_tokens": 11904}, "output_tokens": 44,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12077}, "user": null, "metadata": {}}"#;
    let replied = replied(RESPONSES, JSON, body);
    assert_eq!(counts(replied.used), (Some(129), 11_904, 0, Some(44), 0));
    assert_eq!((replied.cut, replied.error, replied.complete), (false, None, true));
}

const CREATED: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","error":null,"incomplete_details":null,"instructions":null,"usage":null}}

event: response.code_interpreter_call_code.done
data: {"type":"response.code_interpreter_call_code.done","sequence_number":1,"code":"error"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":2,"delta":"{\"type\":\"error\"}"}

"#;

/// <https://platform.openai.com/docs/api-reference/responses-streaming>.
#[test]
fn a_stream_states_its_usage_when_it_is_completed() {
    let last = r#"event: response.completed
data: {"type":"response.completed","sequence_number":3,"response":{"id":"resp_1","status":"completed","error":null,"output":[{"type":"reasoning","usage":{"input_tokens":1}}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":7},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":48}}}

"#;
    let whole = replied(RESPONSES, EVENTS, format!("{CREATED}{last}").as_bytes());
    assert_eq!(counts(whole.used), (Some(30), 7, 0, Some(11), 4));
    assert_eq!((whole.cut, whole.error, whole.complete), (false, None, true));
    let dropped = replied(RESPONSES, EVENTS, CREATED.as_bytes());
    assert_eq!((dropped.used, dropped.error, dropped.complete), (None, None, false));
}

#[test]
fn an_incomplete_response_is_cut_only_for_its_length() {
    let last = |reason: &str| {
        let data = r#"data: {"response":{"status":"incomplete","incomplete_details":{"reason":"@"},"usage":{"input_tokens":9,"output_tokens":16}},"type":"response.incomplete"}"#;
        replied(RESPONSES, EVENTS, format!("{CREATED}{}\n\n", data.replace('@', reason)).as_bytes())
    };
    let cut = last("max_output_tokens");
    assert_eq!((counts(cut.used).3, cut.cut, cut.complete), (Some(16), true, true));
    assert!(!last("content_filter").cut);
}

/// The stream in
/// <https://kngadvisors.com/simulador/vendor/prism-php/prism/tests/Fixtures/openai/stream-unknown-error-responses-1.json>:
/// an `error` event, then the failed response with the reason.
#[test]
fn the_last_error_of_a_stream_is_kept() {
    let errors = r#"event: error
data: {"type":"error","sequence_number":2,"error":{"code":"unknown-error","message":"Foobar","param":null}}

event: response.failed
data: {"type":"response.failed","sequence_number":3,"response":{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"Request too large for gpt-4o on tokens per min (TPM): Limit 1, Requested 30."},"usage":null}}

"#;
    let replied = replied(RESPONSES, EVENTS, format!("{CREATED}{errors}").as_bytes());
    assert_eq!(error(&replied, "/error/code"), "rate_limit_exceeded");
    assert_eq!((replied.used, replied.complete), (None, true));
}

/// The documented form, which is not the real one:
/// <https://community.openai.com/t/responses-bug-error-event-shape-is-wrong-between-documentation-and-sdks-and-reality/1358301>.
#[test]
fn an_error_without_an_object_is_put_into_one() {
    let event = "data: {\"code\":\"ERR_SOMETHING\",\"message\":\"Something \\\"went\\\" wrong\",\"param\":null,\"type\":\"error\"}\n\n";
    let replied = replied(RESPONSES, EVENTS, event.as_bytes());
    assert_eq!(error(&replied, "/error/code"), "ERR_SOMETHING");
    assert_eq!(error(&replied, "/error/message"), "Something \"went\" wrong");
    assert!(replied.complete);
}
