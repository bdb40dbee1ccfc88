//! Refusals as people reported them, and what each means. The source of each is beside its rule in
//! `profiles/*.toml`.

use sluice_vendors::{VendorRefusal, classify_event};

use crate::said::{EXHAUSTED, NOW, headers, profile, refusal};

const RATE: VendorRefusal = VendorRefusal::Rate { retry_after: None };
const SLOTS: VendorRefusal = VendorRefusal::Concurrency { retry_after: None };
const BUSY: VendorRefusal = VendorRefusal::SystemBusy { retry_after: None };

/// A vendor, the status and the body of its reply, and what the reply means.
const CASES: &[(&str, u16, &str, VendorRefusal)] = &[
    (
        "openai",
        429,
        r#"{"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538. The input or output tokens must be reduced.", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
        VendorRefusal::TooLarge,
    ),
    (
        "groq",
        413,
        r#"{"error": {"message": "Request too large for model `qwen/qwen3-32b` on tokens per minute (TPM): Limit 6000, Requested 38891", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
        VendorRefusal::TooLarge,
    ),
    (
        "openai",
        429,
        r#"{"error": {"message": "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
        RATE,
    ),
    (
        "anthropic",
        429,
        r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "Number of concurrent connections has exceeded your rate limit."}}"#,
        SLOTS,
    ),
    (
        "anthropic",
        429,
        r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your account's rate limit."}}"#,
        RATE,
    ),
    ("other", 429, r#"{"message": "Too many tokens per day, please wait before trying again."}"#, EXHAUSTED),
    ("other", 429, r#"{"message": "Too many tokens, please wait before trying again."}"#, RATE),
    (
        "other",
        429,
        r#"{"error": {"message": "Rate limit exceeded: free-models-per-day. Add 10 credits", "code": 429}}"#,
        EXHAUSTED,
    ),
    (
        "other",
        429,
        r#"{"error": {"message": "Provider returned error", "code": 429, "metadata": {"limit_source": "openrouter_free_tier_daily"}}}"#,
        EXHAUSTED,
    ),
    (
        "other",
        429,
        r#"{"error": {"type": "exceeded_current_quota_error", "message": "please check your account balance"}}"#,
        EXHAUSTED,
    ),
    (
        "other",
        429,
        r#"{"object": "error", "message": "Service tier capacity exceeded for this model.", "type": "invalid_request_error", "code": null}"#,
        BUSY,
    ),
    (
        "other",
        429,
        r#"{"object": "error", "message": "", "type": "service_tier_capacity_exceeded", "code": "3505"}"#,
        BUSY,
    ),
    (
        "other",
        429,
        r#"{"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"}"#,
        RATE,
    ),
    (
        "gemini",
        429,
        r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "MODEL_CAPACITY_EXHAUSTED"}]}}"#,
        BUSY,
    ),
    (
        "gemini",
        429,
        r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "QUOTA_EXHAUSTED"}]}}"#,
        EXHAUSTED,
    ),
    (
        "openai",
        503,
        r#"{"error": {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": "Our servers are currently overloaded."}}"#,
        BUSY,
    ),
];

#[test]
fn each_reported_refusal_is_what_its_vendor_means() {
    for (vendor, status, body, meant) in CASES {
        assert_eq!(refusal(vendor, *status, "", body), Some(*meant), "{vendor:?} {status} {body}");
    }
}

/// Anthropic: <https://platform.claude.com/docs/en/build-with-claude/streaming>; OpenAI:
/// <https://github.com/openai/codex/issues/43337>.
#[test]
fn an_error_inside_a_stream_that_began_well_is_judged_by_its_body() {
    let of = |vendor, event: &str| classify_event(profile(vendor), event.as_bytes(), NOW);
    let overloaded = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
    assert_eq!(of("anthropic", overloaded), Some(BUSY));
    assert_eq!(
        of("acme", r#"{"error": {"code": "server_is_overloaded", "message": "overloaded"}}"#),
        Some(BUSY)
    );
    assert_eq!(of("openai", r#"{"error": {"type": "tokens", "code": "rate_limit_exceeded"}}"#), Some(RATE));
    assert_eq!(
        of("openai", r#"{"error": {"type": "server_error", "message": "The server had an error"}}"#),
        None
    );
    assert_eq!(of("groq", r#"{"choices": []}"#), None, "a rule of a status alone does not fit an event");
    assert_eq!(of("openai", "no json"), None);
    let upstream =
        r#"{"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "x"}}}"#;
    assert_eq!(of("openrouter", upstream), Some(BUSY));
    assert_eq!(of("cartesia", upstream), Some(SLOTS), "the status that the event names");
    let not_ready = r#"{"__type": "ModelNotReadyException", "message": "not ready"}"#;
    assert_eq!(of("bedrock", not_ready), Some(BUSY));
}

#[test]
fn amazon_names_the_kind_of_an_error_in_a_header() {
    let named = headers("x-amzn-ErrorType: insufficient_quota:http://internal.amazon.com/coral/");
    let judged = sluice_vendors::classify(profile("acme"), 429, &named, None, NOW);
    assert_eq!(judged, Some(EXHAUSTED));
    let busy = headers("x-amzn-errortype: ServiceUnavailableException:");
    assert_eq!(sluice_vendors::classify(profile("bedrock"), 500, &busy, None, NOW), Some(BUSY));
    let in_body = r#"{"__type": "com.amazonaws.bedrock#insufficient_quota", "message": "no"}"#;
    assert_eq!(refusal("acme", 400, "", in_body), Some(EXHAUSTED));
}
