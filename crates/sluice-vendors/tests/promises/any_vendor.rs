//! Vendors that are not known: whichever family is there, and nothing taken for granted.

use sluice_vendors::{Quota, Vendor, VendorRefusal, read};

use crate::said::{MINUTE, NOW, headers, refusal, reported, secs, tokens};

#[test]
fn whichever_family_is_there_is_read() {
    let openais = "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s";
    let read = reported(Vendor::Other, Quota::Requests, openais);
    assert_eq!((read.limit, read.remaining, read.reset), (tokens(60), tokens(59), secs(1)));
    assert_eq!(read.window, None, "whose limit it is, and so of what time, is not known");
    let anthropics = "anthropic-ratelimit-requests-limit: 1000";
    let read = reported(Vendor::Other, Quota::Requests, anthropics);
    assert_eq!((read.limit, read.window), (tokens(1_000), Some(MINUTE)));
    let input = "anthropic-ratelimit-input-tokens-limit: 80000";
    assert_eq!(reported(Vendor::Other, Quota::InputTokens, input).limit, tokens(80_000));
    let elevenlabs = "Current-Concurrent-Requests: 2";
    assert_eq!(reported(Vendor::Other, Quota::Concurrency, elevenlabs).in_use, tokens(2));
}

#[test]
fn a_family_that_cannot_be_read_leaves_the_next_its_turn() {
    let lines = "x-ratelimit-limit-tokens: lots\nanthropic-ratelimit-tokens-limit: 96000";
    let reading = read(Vendor::Other, Quota::Tokens, &headers(lines), NOW);
    assert_eq!(reading.reported.limit, tokens(96_000));
    assert_eq!(reading.unreadable.len(), 1);
}

#[test]
fn a_plain_429_is_a_limit_and_503_is_busy() {
    assert_eq!(refusal(Vendor::Other, 429, "", ""), Some(VendorRefusal::Rate { retry_after: None }));
    assert_eq!(refusal(Vendor::Other, 503, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    assert_eq!(
        refusal(Vendor::Other, 503, "retry-after: 5", ""),
        Some(VendorRefusal::SystemBusy { retry_after: secs(5) })
    );
    assert_eq!(
        refusal(Vendor::Other, 503, "retry-after: never", ""),
        Some(VendorRefusal::SystemBusy { retry_after: None })
    );
    assert_eq!(refusal(Vendor::Other, 500, "", ""), None);
    assert_eq!(refusal(Vendor::Other, 529, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    let a_minutes = r#"{"error": {"code": "quota_exceeded"}}"#;
    assert_eq!(refusal(Vendor::Other, 429, "", a_minutes), Some(VendorRefusal::Rate { retry_after: None }));
}

#[test]
fn a_body_that_is_too_long_or_no_json_is_no_body() {
    let long = format!(r#"{{"error": {{"code": "insufficient_quota", "message": "{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(refusal(Vendor::Other, 429, "", &long), Some(VendorRefusal::Rate { retry_after: None }));
    let deep = "[".repeat(60_000);
    assert_eq!(refusal(Vendor::Other, 429, "", &deep), Some(VendorRefusal::Rate { retry_after: None }));
    for body in ["", "[]", "null", "7", "\"insufficient_quota\"", "{\"error\": \"insufficient_quota\"}"] {
        assert_eq!(refusal(Vendor::Other, 429, "", body), Some(VendorRefusal::Rate { retry_after: None }), "{body}");
    }
}
