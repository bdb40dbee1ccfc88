//! <https://console.groq.com/docs/rate-limits>.

use sluice_vendors::{Quota, Reported, VendorRefusal};

use crate::said::{DAY, MINUTE, millis, refusal, reported, secs, tokens};

/// The values of the page's table, "illustrative".
const PAGE: &str = "
    retry-after: 2
    x-ratelimit-limit-requests: 14400
    x-ratelimit-limit-tokens: 18000
    x-ratelimit-remaining-requests: 14370
    x-ratelimit-remaining-tokens: 17997
    x-ratelimit-reset-requests: 2m59.56s
    x-ratelimit-reset-tokens: 7.66s";

#[test]
fn openais_names_mean_a_days_requests_and_a_minutes_tokens() {
    assert_eq!(
        reported("groq", Quota::Requests, PAGE),
        Reported {
            limit: tokens(14_400),
            remaining: tokens(14_370),
            in_use: None,
            reset: millis(179_560),
            window: Some(DAY),
            ..Reported::default()
        }
    );
    assert_eq!(
        reported("groq", Quota::Tokens, PAGE),
        Reported {
            limit: tokens(18_000),
            remaining: tokens(17_997),
            in_use: None,
            reset: millis(7_660),
            window: Some(MINUTE),
            ..Reported::default()
        }
    );
}

/// <https://console.groq.com/docs/errors>: 429; 498, "Flex Tier Capacity Exceeded".
#[test]
fn a_full_flex_tier_is_busy() {
    let limited = r#"{"error": {"message": "Rate limit reached for model", "type": "tokens", "code": "rate_limit_exceeded"}}"#;
    assert_eq!(refusal("groq", 429, PAGE, limited), Some(VendorRefusal::Rate { retry_after: secs(2) }));
    assert_eq!(refusal("groq", 498, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    assert_eq!(refusal("openai", 498, "", ""), None, "the status is Groq's alone");
}
