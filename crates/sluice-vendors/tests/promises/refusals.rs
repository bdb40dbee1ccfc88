//! Refusals as people reported them, and what each means. The source of each is beside its rule in `refusal.rs`.

use sluice_vendors::{Vendor, VendorRefusal};

use crate::said::refusal;

const RATE: VendorRefusal = VendorRefusal::Rate { retry_after: None };
const SLOTS: VendorRefusal = VendorRefusal::Concurrency { retry_after: None };
const BUSY: VendorRefusal = VendorRefusal::SystemBusy { retry_after: None };

#[test]
fn each_reported_refusal_is_what_its_vendor_means() {
    let cases: &[(Vendor, u16, &str, VendorRefusal)] = &[
        (
            Vendor::OpenAi,
            429,
            r#"{"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538. The input or output tokens must be reduced.", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
            VendorRefusal::TooLarge,
        ),
        (
            Vendor::Groq,
            413,
            r#"{"error": {"message": "Request too large for model `qwen/qwen3-32b` on tokens per minute (TPM): Limit 6000, Requested 38891", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
            VendorRefusal::TooLarge,
        ),
        (
            Vendor::OpenAi,
            429,
            r#"{"error": {"message": "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", "type": "tokens", "code": "rate_limit_exceeded"}}"#,
            RATE,
        ),
        (
            Vendor::Anthropic,
            429,
            r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "Number of concurrent connections has exceeded your rate limit."}}"#,
            SLOTS,
        ),
        (
            Vendor::Anthropic,
            429,
            r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your account's rate limit."}}"#,
            RATE,
        ),
        (
            Vendor::Other,
            429,
            r#"{"message": "Too many tokens per day, please wait before trying again."}"#,
            VendorRefusal::QuotaExhausted,
        ),
        (Vendor::Other, 429, r#"{"message": "Too many tokens, please wait before trying again."}"#, RATE),
        (
            Vendor::Other,
            429,
            r#"{"error": {"message": "Rate limit exceeded: free-models-per-day. Add 10 credits", "code": 429}}"#,
            VendorRefusal::QuotaExhausted,
        ),
        (
            Vendor::Other,
            429,
            r#"{"error": {"message": "Provider returned error", "code": 429, "metadata": {"limit_source": "openrouter_free_tier_daily"}}}"#,
            VendorRefusal::QuotaExhausted,
        ),
        (
            Vendor::Other,
            429,
            r#"{"error": {"type": "exceeded_current_quota_error", "message": "please check your account balance"}}"#,
            VendorRefusal::QuotaExhausted,
        ),
        (
            Vendor::Other,
            429,
            r#"{"object": "error", "message": "Service tier capacity exceeded for this model.", "type": "invalid_request_error", "code": null}"#,
            BUSY,
        ),
        (
            Vendor::Other,
            429,
            r#"{"object": "error", "message": "", "type": "service_tier_capacity_exceeded", "code": "3505"}"#,
            BUSY,
        ),
        (
            Vendor::Other,
            429,
            r#"{"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"}"#,
            RATE,
        ),
        (
            Vendor::Gemini,
            429,
            r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "MODEL_CAPACITY_EXHAUSTED"}]}}"#,
            BUSY,
        ),
        (
            Vendor::Gemini,
            429,
            r#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "QUOTA_EXHAUSTED"}]}}"#,
            VendorRefusal::QuotaExhausted,
        ),
        (
            Vendor::OpenAi,
            503,
            r#"{"error": {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": "Our servers are currently overloaded."}}"#,
            BUSY,
        ),
    ];
    for (vendor, status, body, meant) in cases {
        assert_eq!(refusal(*vendor, *status, "", body), Some(*meant), "{vendor:?} {status} {body}");
    }
}
