//! <https://elevenlabs.io/docs/overview/models#concurrency-and-priority>: "The response headers include
//! `current-concurrent-requests` and `maximum-concurrent-requests`".

use sluice_vendors::{Quota, Reported, VendorRefusal};

use crate::said::{EXHAUSTED, refusal, reported, secs, tokens};

#[test]
fn calls_at_the_same_time_are_read() {
    let lines = "current-concurrent-requests: 3\nmaximum-concurrent-requests: 15";
    assert_eq!(
        reported("elevenlabs", Quota::Concurrency, lines),
        Reported {
            limit: tokens(15),
            remaining: None,
            in_use: tokens(3),
            reset: None,
            window: None,
            ..Reported::default()
        }
    );
    assert!(reported("elevenlabs", Quota::Requests, lines).is_empty());
}

/// <https://help.elevenlabs.io/hc/en-us/articles/19571824571921-API-Error-Code-429>, the message as in
/// <https://github.com/lfnovo/open-notebook/issues/103>.
#[test]
fn two_kinds_of_429_are_told_apart() {
    let full = r#"{"detail": {"status": "too_many_concurrent_requests", "message": "Too many concurrent requests. Your current
        subscription is associated with a maximum of 2 concurrent requests (running in parallel)."}}"#;
    let full = full.replace('\n', " ");
    assert_eq!(refusal("elevenlabs", 429, "", &full), Some(VendorRefusal::Concurrency { retry_after: None }));
    assert_eq!(
        refusal("elevenlabs", 429, "retry-after: 3", &full).and_then(|refusal| refusal.retry_after()),
        secs(3),
        "what a proxy adds is not lost"
    );
    let newer = r#"{"detail": {"type": "rate_limit_error", "code": "concurrent_limit_exceeded"}}"#;
    assert_eq!(refusal("elevenlabs", 429, "", newer), Some(VendorRefusal::Concurrency { retry_after: None }));
    let busy = r#"{"detail": {"status": "system_busy", "message": "Our services are experiencing high levels of traffic"}}"#;
    assert_eq!(refusal("elevenlabs", 429, "", busy), Some(VendorRefusal::SystemBusy { retry_after: None }));
    let neither = r#"{"detail": "slow down"}"#;
    assert_eq!(refusal("elevenlabs", 429, "", neither), Some(VendorRefusal::Rate { retry_after: None }));
}

/// <https://help.elevenlabs.io/hc/en-us/articles/19572237925521-API-Error-Code-400-or-401>.
#[test]
fn used_up_credits_are_no_load_and_a_bad_key_is_no_refusal_for_it() {
    let credits = r#"{"detail": {"status": "quota_exceeded", "message": "You have insufficient quota"}}"#;
    assert_eq!(refusal("elevenlabs", 401, "", credits), Some(EXHAUSTED));
    let key = r#"{"detail": {"status": "invalid_api_key", "message": "Invalid API key"}}"#;
    assert_eq!(refusal("elevenlabs", 401, "", key), None);
    let validation = r#"{"detail": [{"loc": ["body", "text"], "msg": "field required"}]}"#;
    assert_eq!(refusal("elevenlabs", 422, "", validation), None);
}
