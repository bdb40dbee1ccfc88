//! <https://learn.microsoft.com/en-us/azure/foundry/openai/how-to/quota>.

use sluice_vendors::{Quota, Reported, VendorRefusal, read};

use crate::said::{MINUTE, NOW, headers, profile, refusal, reported, secs, tokens};

/// The example values of the page's table.
const PAGE: &str = "
    x-ratelimit-limit-requests: 60
    x-ratelimit-limit-tokens: 150000
    x-ratelimit-remaining-requests: 59
    x-ratelimit-remaining-tokens: 149984
    x-ratelimit-reset-requests: 10
    x-ratelimit-reset-tokens: 300
    retry-after-ms: 2000";

#[test]
fn the_pages_sample_is_read_whole_and_bare_resets_are_seconds() {
    assert_eq!(
        reported("azure", Quota::Requests, PAGE),
        Reported {
            limit: tokens(60),
            remaining: tokens(59),
            in_use: None,
            reset: secs(10),
            window: Some(MINUTE),
            ..Reported::default()
        }
    );
    assert_eq!(
        reported("azure", Quota::Tokens, PAGE),
        Reported {
            limit: tokens(150_000),
            remaining: tokens(149_984),
            in_use: None,
            reset: secs(300),
            window: Some(MINUTE),
            ..Reported::default()
        }
    );
}

/// <https://github.com/openai/openai-dotnet/issues/838>.
#[test]
fn minus_one_and_the_zero_beside_it_mean_not_known() {
    let lines = "
        x-ratelimit-limit-tokens: -1
        x-ratelimit-remaining-tokens: -1
        x-ratelimit-reset-tokens: 0";
    assert_eq!(reported("azure", Quota::Tokens, lines), Reported::default());
    let zeros = "
        x-ratelimit-limit-tokens: 0
        x-ratelimit-remaining-tokens: 0
        x-ratelimit-reset-tokens: 0";
    assert_eq!(reported("azure", Quota::Tokens, zeros), Reported::default());
}

#[test]
fn a_zero_beside_a_limit_that_is_known_is_zero() {
    let lines = "
        x-ratelimit-limit-tokens: 150000
        x-ratelimit-remaining-tokens: 0
        x-ratelimit-reset-tokens: 0";
    let read = reported("azure", Quota::Tokens, lines);
    assert_eq!((read.limit, read.remaining, read.reset), (tokens(150_000), tokens(0), secs(0)));
}

/// <https://github.com/EvolvingPrograms/oaib/issues/11>: a reply with remainders alone.
#[test]
fn a_remainder_without_a_limit_is_read() {
    let lines = "x-ratelimit-remaining-requests: 79\nx-ratelimit-remaining-tokens: 61353";
    let requests = reported("azure", Quota::Requests, lines);
    assert_eq!((requests.limit, requests.remaining), (None, tokens(79)));
    assert_eq!(reported("azure", Quota::Tokens, lines).remaining, tokens(61_353));
}

#[test]
fn other_negative_numbers_cannot_be_read() {
    let lines = "x-ratelimit-limit-tokens: -2\nx-ratelimit-remaining-tokens: 5";
    let reading = read(profile("azure"), Quota::Tokens, &headers(lines), NOW);
    assert_eq!((reading.reported[0].limit, reading.reported[0].remaining), (None, tokens(5)));
    assert_eq!(reading.unreadable.len(), 1);
}

/// The page's "types of 429 errors"; the first body as in
/// <https://github.com/vanderschaarlab/climb/issues/1>.
#[test]
fn want_of_capacity_is_told_from_want_of_quota() {
    let limited = r#"{"error": {"code": "429", "message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI
        API version 2024-08-01-preview have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after
        86400 seconds."}}"#;
    let limited = limited.replace('\n', " ");
    assert_eq!(
        refusal("azure", 429, "retry-after: 86400", &limited),
        Some(VendorRefusal::Rate { retry_after: secs(86_400) })
    );
    let busy =
        r#"{"error": {"code": "429", "message": "System is experiencing high demand. Please retry later."}}"#;
    assert_eq!(
        refusal("azure", 429, "retry-after-ms: 2000", busy),
        Some(VendorRefusal::SystemBusy { retry_after: secs(2) })
    );
    assert_eq!(
        refusal("openai", 429, "", busy),
        Some(VendorRefusal::Rate { retry_after: None }),
        "the words are Azure's alone"
    );
}
