//! <https://developers.openai.com/api/docs/guides/rate-limits>.

use sluice_core::Amount;
use sluice_vendors::{HeaderFault, Quota, Reported, Unreadable, VendorRefusal, read};

use crate::said::{MINUTE, NOW, headers, millis, profile, refusal, reported, secs, tokens};

/// The sample values of the guide's table.
const GUIDE: &str = "
    Retry-After: 56
    x-ratelimit-limit-requests: 60
    x-ratelimit-limit-tokens: 150000
    x-ratelimit-remaining-requests: 59
    x-ratelimit-remaining-tokens: 149984
    x-ratelimit-reset-requests: 1s
    x-ratelimit-reset-tokens: 6m0s
    x-ratelimit-limit-project-tokens: 60000
    x-ratelimit-remaining-project-tokens: 57000
    x-ratelimit-reset-project-tokens: 3s";

#[test]
fn the_guides_sample_is_read_whole() {
    let of = |quota| reported("openai", quota, GUIDE);
    assert_eq!(
        of(Quota::Requests),
        Reported {
            limit: tokens(60),
            remaining: tokens(59),
            in_use: None,
            reset: secs(1),
            window: Some(MINUTE),
            ..Reported::default()
        }
    );
    assert_eq!(
        of(Quota::Tokens),
        Reported {
            limit: tokens(150_000),
            remaining: tokens(149_984),
            in_use: None,
            reset: secs(360),
            window: None,
            ..Reported::default()
        }
    );
    assert_eq!(
        of(Quota::ProjectTokens),
        Reported {
            limit: tokens(60_000),
            remaining: tokens(57_000),
            in_use: None,
            reset: secs(3),
            window: Some(MINUTE),
            ..Reported::default()
        }
    );
    for quota in [Quota::InputTokens, Quota::OutputTokens, Quota::Concurrency] {
        assert!(of(quota).is_empty(), "{quota:?}");
    }
}

/// A reply in <https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905>.
#[test]
fn a_replys_figures_tell_the_window_that_the_guide_does_not() {
    let lines = "
        x-ratelimit-limit-requests: 5000
        x-ratelimit-limit-tokens: 160000
        x-ratelimit-limit-tokens_usage_based: 160000
        x-ratelimit-remaining-requests: 4999
        x-ratelimit-remaining-tokens: 159976
        x-ratelimit-remaining-tokens_usage_based: 159976
        x-ratelimit-reset-requests: 12ms
        x-ratelimit-reset-tokens: 9ms
        x-ratelimit-reset-tokens_usage_based: 9ms";
    let requests = reported("openai", Quota::Requests, lines);
    assert_eq!((requests.limit, requests.reset, requests.window), (tokens(5_000), millis(12), Some(MINUTE)));
    let of_tokens = reported("openai", Quota::Tokens, lines);
    assert_eq!(
        (of_tokens.remaining, of_tokens.reset, of_tokens.window),
        (tokens(159_976), millis(9), Some(MINUTE))
    );
}

/// <https://community.openai.com/t/x-ratelimit-headers-missing/935514>: replies without any.
#[test]
fn a_reply_without_headers_tells_of_no_quota() {
    let lines = "content-type: application/json\nopenai-processing-ms: 1032\nopenai-version: 2020-10-01";
    for quota in [Quota::Requests, Quota::Tokens, Quota::ProjectTokens] {
        assert_eq!(reported("openai", quota, lines), Reported::default());
    }
}

#[test]
fn a_header_that_cannot_be_read_changes_nothing_and_is_told() {
    let lines = "
        x-ratelimit-limit-requests: sixty
        x-ratelimit-remaining-requests: -3
        x-ratelimit-reset-requests: soon";
    let reading = read(profile("openai"), Quota::Requests, &headers(lines), NOW);
    assert_eq!(reading.reported, []);
    let told = |name: &str, fault| Unreadable { name: name.to_owned(), fault };
    assert_eq!(
        reading.unreadable,
        [
            told("x-ratelimit-limit-requests", HeaderFault::NotANumber),
            told("x-ratelimit-remaining-requests", HeaderFault::Negative),
            told("x-ratelimit-reset-requests", HeaderFault::NotAReset),
        ]
    );
    assert_eq!(
        reading.unreadable[1].to_string(),
        "cannot read x-ratelimit-remaining-requests: it is below zero"
    );
    let one_bad = "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: many";
    let reading = read(profile("openai"), Quota::Requests, &headers(one_bad), NOW);
    assert_eq!((reading.reported[0].limit, reading.reported[0].remaining), (tokens(60), None));
    assert_eq!(reading.unreadable.len(), 1);
}

#[test]
fn white_space_around_a_value_is_of_no_account() {
    let reading = read(profile("openai"), Quota::Requests, &[("x-ratelimit-limit-requests", " 60\t")], NOW);
    assert_eq!((reading.reported[0].limit, reading.unreadable.len()), (tokens(60), 0));
}

#[test]
fn decimals_are_read_and_round_down() {
    let lines = "x-ratelimit-remaining-tokens: 149984.1234567";
    assert_eq!(
        reported("openai", Quota::Tokens, lines).remaining,
        Some(Amount::from_micros(149_984_123_456))
    );
}

/// <https://community.openai.com/t/where-to-find-all-values-of-error-type/158707>, and the wording of
/// <https://developers.openai.com/api/docs/guides/error-codes>.
#[test]
fn a_used_up_account_is_told_from_a_limit_a_minute() {
    let used_up = r#"{"error": {"message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota", "param": null, "code": null}}"#;
    let exhausted = VendorRefusal::QuotaExhausted { retry_after: secs(1), alone: false };
    assert_eq!(refusal("openai", 429, "retry-after: 1", used_up), Some(exhausted));
    let limited = r#"{"error": {"message": "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000",
        "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}"#;
    assert_eq!(
        refusal("openai", 429, "retry-after: 56\nretry-after-ms: 55210", limited),
        Some(VendorRefusal::Rate { retry_after: millis(55_210) })
    );
    assert_eq!(refusal("openai", 429, "", "<html>"), Some(VendorRefusal::Rate { retry_after: None }));
}

/// <https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors>: the code tells, whatever the type.
#[test]
fn each_limit_of_spending_is_known_by_its_code() {
    for code in [
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "project_spend_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
    ] {
        let body =
            format!(r#"{{"error": {{"type": "rate_limit_error", "code": "{code}", "message": "no"}}}}"#);
        let exhausted =
            VendorRefusal::QuotaExhausted { retry_after: secs(1), alone: code.starts_with("project") };
        assert_eq!(refusal("openai", 429, "retry-after: 1", &body), Some(exhausted), "{code}");
    }
    let too_steep = r#"{"error": {"type": "rate_limit_error", "code": "slow_down", "message": "Slow down"}}"#;
    assert_eq!(
        refusal("openai", 429, "retry-after: 2", too_steep),
        Some(VendorRefusal::Rate { retry_after: secs(2) })
    );
}

/// 503 "the engine is currently overloaded" and "slow down"; 429 for want of resources with `service_tier:
/// flex` (<https://developers.openai.com/api/docs/guides/flex-processing>).
#[test]
fn an_overloaded_vendor_is_busy() {
    assert_eq!(refusal("openai", 503, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    let flex = r#"{"error": {"message": "Resource unavailable", "code": "resource_unavailable"}}"#;
    assert_eq!(refusal("openai", 429, "", flex), Some(VendorRefusal::SystemBusy { retry_after: None }));
    for status in [200, 400, 401, 404, 500, 502, 504] {
        assert_eq!(refusal("openai", status, "retry-after: 2", "{}"), None, "{status}");
    }
}
