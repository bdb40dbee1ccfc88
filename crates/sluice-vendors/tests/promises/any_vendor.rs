//! Vendors that are not known: whichever family is there, and nothing taken for granted.

use sluice_vendors::{HeaderReading, Quota, VendorRefusal, read};

use crate::profiles::QUOTAS;
use crate::said::{DAY, MINUTE, NOW, all_reported, headers, profile, refusal, reported, secs, tokens};

fn read_of(vendor: &str, lines: &str) -> HeaderReading {
    read(profile(vendor), Quota::Requests, &headers(lines), NOW)
}

#[test]
fn whichever_family_is_there_is_read() {
    let openais =
        "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s";
    let read = reported("other", Quota::Requests, openais);
    assert_eq!((read.limit, read.remaining, read.reset), (tokens(60), tokens(59), secs(1)));
    assert_eq!(read.window, None, "whose limit it is, and so of what time, is not known");
    let anthropics = "anthropic-ratelimit-requests-limit: 1000";
    let read = reported("other", Quota::Requests, anthropics);
    assert_eq!((read.limit, read.window), (tokens(1_000), Some(MINUTE)));
    let input = "anthropic-ratelimit-input-tokens-limit: 80000";
    assert_eq!(reported("other", Quota::InputTokens, input).limit, tokens(80_000));
    let elevenlabs = "Current-Concurrent-Requests: 2";
    assert_eq!(reported("other", Quota::Concurrency, elevenlabs).in_use, tokens(2));
}

#[test]
fn a_family_that_cannot_be_read_leaves_the_next_its_turn() {
    let lines = "x-ratelimit-limit-tokens: lots\nanthropic-ratelimit-tokens-limit: 96000";
    let reading = read(profile("other"), Quota::Tokens, &headers(lines), NOW);
    assert_eq!(reading.reported[0].limit, tokens(96_000));
    assert_eq!(reading.unreadable.len(), 1);
}

#[test]
fn of_a_header_that_is_there_several_times_the_strictest_value_counts() {
    let lines = "
        x-ratelimit-limit-requests: 60
        x-ratelimit-limit-requests: 50
        x-ratelimit-remaining-requests: 7, 9
        x-ratelimit-reset-requests: 1s
        x-ratelimit-reset-requests: 6s";
    let read = reported("openai", Quota::Requests, lines);
    assert_eq!((read.limit, read.remaining, read.reset), (tokens(50), tokens(7), secs(6)));
    let one_bad = "x-ratelimit-remaining-requests: 7\nx-ratelimit-remaining-requests: lots";
    assert_eq!(read_of("openai", one_bad).unreadable.len(), 1);
}

#[test]
fn plain_names_are_read_with_any_form_of_reset() {
    for reset in ["30", "1755780085", "1755780085000", "30s", "2025-08-21T12:41:25Z"] {
        let lines = format!("X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: {reset}");
        let read = reported("acme", Quota::Requests, &lines);
        assert_eq!(
            (read.limit, read.remaining, read.reset, read.window),
            (tokens(100), tokens(5), secs(30), None),
            "{reset}"
        );
        assert!(all_reported("acme", Quota::Tokens, &lines).is_empty(), "they count calls");
    }
}

/// <https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10>, sections 3 and 4.
#[test]
fn the_ietfs_lists_are_read_one_for_each_policy() {
    let lines = "RateLimit-Policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400\nRateLimit: \"burst\";r=50;t=30, \"daily\";r=900";
    let all = all_reported("acme", Quota::Requests, lines);
    let said: Vec<_> = all.iter().map(|said| (said.limit, said.remaining, said.reset, said.window)).collect();
    assert_eq!(
        said,
        [(tokens(100), tokens(50), secs(30), Some(MINUTE)), (tokens(1_000), tokens(900), None, Some(DAY))]
    );
    let of_tokens = "RateLimit-Policy: \"t\";q=9000;qu=\"tokens\";w=60\nRateLimit: \"t\";r=8000;t=30";
    assert_eq!(reported("acme", Quota::Tokens, of_tokens).remaining, tokens(8_000));
    assert!(all_reported("acme", Quota::Requests, of_tokens).is_empty());
    let of_bytes = "RateLimit-Policy: \"b\";q=9000;qu=\"content-bytes\"\nRateLimit: \"b\";r=8000";
    assert!(
        QUOTAS.iter().all(|quota| all_reported("acme", *quota, of_bytes).is_empty()),
        "no bucket counts bytes"
    );
    let at_once = "RateLimit-Policy: \"c\";q=5;qu=\"concurrent-requests\"\nRateLimit: \"c\";r=2";
    assert_eq!(reported("acme", Quota::Concurrency, at_once).limit, tokens(5));
}

/// <https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07> and 03.
#[test]
fn the_ietfs_older_drafts_are_read() {
    let seventh = "RateLimit: limit=100, remaining=50, reset=5\nRateLimit-Policy: 100;w=60, 1000;w=3600";
    let read = reported("acme", Quota::Requests, seventh);
    assert_eq!(
        (read.limit, read.remaining, read.reset, read.window),
        (tokens(100), tokens(50), secs(5), Some(MINUTE))
    );
    let third = "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 50\nRateLimit-Reset: 5\nRateLimit-Policy: 100;w=60";
    let read = reported("acme", Quota::Requests, third);
    assert_eq!(
        (read.limit, read.remaining, read.reset, read.window),
        (tokens(100), tokens(50), secs(5), Some(MINUTE))
    );
    let without_policy = "RateLimit: \"api\";r=0;t=55\nRateLimit-Policy: \"fixed window\";\"api\"";
    let read = reported("acme", Quota::Requests, without_policy);
    assert_eq!(
        (read.limit, read.remaining, read.window),
        (None, tokens(0), None),
        "a policy that states no limit"
    );
    for nonsense in [
        "RateLimit: \"a\";r=-5",
        "RateLimit: ;;;",
        "RateLimit: 5",
        "RateLimit: \"a\";r=1.5",
        "RateLimit: limit=5",
    ] {
        assert!(all_reported("acme", Quota::Requests, nonsense).is_empty(), "{nonsense}");
    }
}

#[test]
fn a_plain_429_is_a_limit_and_503_is_busy() {
    assert_eq!(refusal("other", 429, "", ""), Some(VendorRefusal::Rate { retry_after: None }));
    assert_eq!(refusal("other", 503, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    assert_eq!(
        refusal("other", 503, "retry-after: 5", ""),
        Some(VendorRefusal::SystemBusy { retry_after: secs(5) })
    );
    assert_eq!(
        refusal("other", 503, "retry-after: never", ""),
        Some(VendorRefusal::SystemBusy { retry_after: None })
    );
    assert_eq!(refusal("other", 500, "", ""), None);
    assert_eq!(refusal("other", 529, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    let a_minutes = r#"{"error": {"code": "quota_exceeded"}}"#;
    assert_eq!(refusal("other", 429, "", a_minutes), Some(VendorRefusal::Rate { retry_after: None }));
}

#[test]
fn a_body_that_is_too_long_or_no_json_is_no_body() {
    let long =
        format!(r#"{{"error": {{"code": "insufficient_quota", "message": "{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(refusal("other", 429, "", &long), Some(VendorRefusal::Rate { retry_after: None }));
    let deep = "[".repeat(60_000);
    assert_eq!(refusal("other", 429, "", &deep), Some(VendorRefusal::Rate { retry_after: None }));
    for body in ["", "[]", "null", "7", "\"insufficient_quota\"", "{\"error\": \"insufficient_quota\"}"] {
        assert_eq!(
            refusal("other", 429, "", body),
            Some(VendorRefusal::Rate { retry_after: None }),
            "{body}"
        );
    }
}
