//! <https://platform.claude.com/docs/en/api/rate-limits>.

use std::time::Duration;

use sluice_core::{Amount, Timestamp};
use sluice_vendors::{HeaderFault, Quota, Reported, VendorRefusal, read};

use crate::said::{EXHAUSTED, MINUTE, NOW, headers, profile, refusal, reported, secs, tokens};

/// A recorded reply:
/// <https://rdrr.io/cran/tidyllm/src/tests/testthat/claude/api.anthropic.com/v1/messages-e050b5-POST.R>.
const RECORDED: &str = "
    date: Thu, 21 Aug 2025 12:41:00 GMT
    anthropic-ratelimit-input-tokens-limit: 80000
    anthropic-ratelimit-input-tokens-remaining: 80000
    anthropic-ratelimit-input-tokens-reset: 2025-08-21T12:40:59Z
    anthropic-ratelimit-output-tokens-limit: 16000
    anthropic-ratelimit-output-tokens-remaining: 16000
    anthropic-ratelimit-output-tokens-reset: 2025-08-21T12:41:00Z
    anthropic-ratelimit-requests-limit: 1000
    anthropic-ratelimit-requests-remaining: 999
    anthropic-ratelimit-requests-reset: 2025-08-21T12:40:59Z
    anthropic-ratelimit-tokens-limit: 96000
    anthropic-ratelimit-tokens-remaining: 96000
    anthropic-ratelimit-tokens-reset: 2025-08-21T12:40:59Z";

fn said(limit: i32, remaining: i32, reset: Option<Duration>) -> Reported {
    Reported {
        limit: tokens(limit),
        remaining: tokens(remaining),
        in_use: None,
        reset,
        window: Some(MINUTE),
        ..Reported::default()
    }
}

#[test]
fn a_recorded_reply_is_read_whole_and_input_and_output_apart() {
    let of = |quota| reported("anthropic", quota, RECORDED);
    assert_eq!(of(Quota::Requests), said(1_000, 999, secs(4)));
    let rounded = |said| Reported { rounded_to: Amount::from_tokens(1_000), ..said };
    assert_eq!(of(Quota::Tokens), rounded(said(96_000, 96_000, secs(4))));
    assert_eq!(of(Quota::InputTokens), rounded(said(80_000, 80_000, secs(4))));
    assert_eq!(of(Quota::OutputTokens), rounded(said(16_000, 16_000, secs(5))));
    assert!(of(Quota::Concurrency).is_empty());
}

#[test]
fn a_reset_that_has_passed_is_no_wait() {
    let later = NOW.after(Duration::from_secs(60));
    let reading = read(profile("anthropic"), Quota::Requests, &headers(RECORDED), later);
    assert_eq!(reading.reported, [said(1_000, 999, secs(0))]);
}

#[test]
fn a_reset_that_is_no_instant_or_years_ahead_is_told_and_the_rest_is_read() {
    for (reset, fault) in [("soon", HeaderFault::NotAReset), ("2055-08-21T12:40:59Z", HeaderFault::TooLong)] {
        let lines =
            format!("anthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-reset: {reset}");
        let reading = read(profile("anthropic"), Quota::Requests, &headers(&lines), NOW);
        assert_eq!((reading.reported[0].limit, reading.reported[0].reset), (tokens(50), None));
        assert_eq!(reading.unreadable.iter().map(|told| told.fault).collect::<Vec<_>>(), [fault]);
    }
    let before_1970 =
        read(profile("anthropic"), Quota::Requests, &headers(RECORDED), Timestamp::from_micros(i64::MIN));
    assert_eq!(before_1970.reported[0].reset, None);
}

#[test]
fn openais_headers_say_nothing_of_anthropics_quota() {
    let lines = "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0";
    assert!(reported("anthropic", Quota::Requests, lines).is_empty());
}

/// <https://platform.claude.com/docs/en/api/errors>; the spend cap is described by
/// <https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/concepts/anthropic-529-overloaded-error>.
#[test]
fn limits_overload_and_the_spend_cap_are_told_apart() {
    let limited = r#"{"type": "error", "error": {"type": "rate_limit_error",
        "message": "Number of request tokens has exceeded your per-minute rate limit"}}"#;
    assert_eq!(
        refusal("anthropic", 429, "retry-after: 42", limited),
        Some(VendorRefusal::Rate { retry_after: secs(42) })
    );
    let overloaded = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;
    assert_eq!(
        refusal("anthropic", 529, "", overloaded),
        Some(VendorRefusal::SystemBusy { retry_after: None })
    );
    assert_eq!(refusal("anthropic", 529, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    let capped = r#"{"type": "error", "error": {"type": "rate_limit_error", "message": "You have reached your API usage
        limits", "details": {"error_code": "enforced_spend_limit_reached"}}, "request_id": "req_018"}"#;
    let capped = capped.replace('\n', " ");
    assert_eq!(refusal("anthropic", 429, "", &capped), Some(EXHAUSTED));
    let invalid = r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens is required"}}"#;
    assert_eq!(refusal("anthropic", 400, "", invalid), None);
}
