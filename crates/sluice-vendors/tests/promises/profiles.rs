//! What is known of vendors apart from their replies.

use sluice_core::LimitType;
use sluice_vendors::{Counted, HeaderReading, Kept, Profile, Quota, Vendors, classify, read, unknown_header};

use crate::said::{NOW, headers, profile};

/// Every vendor that is known, and one that is not.
pub(crate) fn vendors() -> impl Iterator<Item = &'static Profile> {
    Vendors::builtin().all().map(AsRef::as_ref).chain([Vendors::builtin().other().as_ref()])
}

pub(crate) const QUOTAS: [Quota; 8] = [
    Quota::Requests,
    Quota::Tokens,
    Quota::InputTokens,
    Quota::OutputTokens,
    Quota::ProjectTokens,
    Quota::PriorityInputTokens,
    Quota::PriorityOutputTokens,
    Quota::Concurrency,
];

#[test]
fn every_header_of_a_profile_is_read() {
    for profile in vendors() {
        for names in &profile.quotas {
            let all = [&names.limit, &names.remaining, &names.in_use, &names.reset];
            let lines: Vec<(&str, &str)> = all.into_iter().flatten().map(|name| (name.as_str(), "7")).collect();
            let HeaderReading { reported, unreadable } = read(profile, names.kind, &lines, NOW);
            assert_eq!(unreadable, [], "{}", profile.vendor);
            let read = reported.iter().any(|reported| {
                reported.limit.is_some() == names.limit.is_some()
                    && reported.remaining.is_some() == names.remaining.is_some()
                    && reported.in_use.is_some() == names.in_use.is_some()
                    && reported.reset.is_some() == names.reset.is_some()
            });
            assert!(read, "{} {lines:?}: {reported:?}", profile.vendor);
            assert_eq!(unknown_header(profile, &lines), None);
        }
    }
}

#[test]
fn every_example_of_a_refusal_is_judged_by_its_own_rule() {
    let mut seen = 0;
    for profile in vendors() {
        for rule in &profile.refusals {
            let (Some(example), status, means) = (&rule.example, rule.status, rule.means) else { continue };
            let judged = classify(profile, status.unwrap_or(429), &headers(""), Some(example.as_bytes()), NOW);
            let mut only_this = profile.clone();
            only_this.refusals = vec![rule.clone()];
            let by_rule = classify(&only_this, status.unwrap_or(418), &headers(""), Some(example.as_bytes()), NOW);
            assert!(by_rule.is_some(), "{}: the rule does not fit its example {example}", profile.vendor);
            assert_eq!(judged, by_rule, "{}: {means:?} {example}", profile.vendor);
            seen += 1;
        }
    }
    assert!(seen >= 1);
}

#[test]
fn a_failed_call_keeps_its_request_and_returns_its_slot() {
    for profile in vendors() {
        assert_eq!(profile.kept_by_failure(LimitType::Concurrent), Kept::Nothing, "{}", profile.vendor);
    }
    let kept = |vendor, limit_type| profile(vendor).kept_by_failure(limit_type);
    assert_eq!(kept("acme", LimitType::Requests), Kept::All);
    assert_eq!(kept("openai", LimitType::Requests), Kept::All);
    assert_eq!(kept("openai", LimitType::Tokens), Kept::Nothing);
    assert_eq!(
        kept("azure", LimitType::Tokens),
        Kept::All,
        "counted as the request arrives, also where it is rejected"
    );
}

#[test]
fn how_tokens_count_depends_on_the_vendor_and_the_model() {
    let counted = |vendor, model| profile(vendor).tokens_of(model).map(|count| count.counted);
    assert_eq!(counted("openai", "gpt-4o"), Some(Counted::OnArrival));
    assert_eq!(counted("anthropic", "claude-sonnet-4-5"), Some(Counted::Used));
    assert_eq!(counted("acme", "any"), None);
}

#[test]
fn a_host_gives_its_vendor() {
    let at = |host| Vendors::builtin().at(host).map(|profile| profile.vendor.as_str());
    assert_eq!(at("api.openai.com"), Some("openai"));
    assert_eq!(at("API.Anthropic.com"), Some("anthropic"));
    assert_eq!(at("my-own.openai.azure.com"), Some("azure"));
    assert_eq!(at("api.openai.com.example.com"), None);
    assert_eq!(at("evil-openai.azure.com.example.com"), None);
    assert_eq!(at(".openai.azure.com"), None);
}

#[test]
fn a_reply_whose_limits_are_not_understood_is_noticed() {
    let unknown = |vendor, lines: &str| unknown_header(profile(vendor), &headers(lines)).map(str::to_owned);
    assert_eq!(unknown("acme", "x-acme-ratelimit-left: 5").as_deref(), Some("x-acme-ratelimit-left"));
    assert_eq!(unknown("openai", "X-Rate-Limit-Left: 5").as_deref(), Some("X-Rate-Limit-Left"));
    assert_eq!(unknown("openai", "x-ratelimit-limit-tokens: 5\nx-ratelimit-more: 5"), None, "some of it is understood");
    assert_eq!(unknown("acme", "content-type: text/html"), None, "nothing is said");
    assert_eq!(unknown("acme", "RateLimit: \"a\";r=5"), None);
}

#[test]
fn a_profile_that_would_do_nothing_is_refused() {
    let error = |text: &str| Profile::parse(text).unwrap_err().to_string();
    assert!(error("vendor = 'a'\n[[refusal]]\nmeans = 'busy'\nsource = 'https://a.example'").contains("no condition"));
    let upper = "vendor = 'a'\n[[quota]]\nkind = 'tokens'\nlimit = 'X-Limit'\nsource = 'https://a.example'";
    assert!(error(upper).contains("\"X-Limit\""));
    assert!(error("vendor = ''").contains("vendor's name"));
    assert!(error("vendor = 'a'\n[failed]\nrequests = 'kept'\ntokens = 'kept'\nsource = 'I know'").contains("I know"));
    assert!(error("vendor = 'a'\ntypo = 1").contains("typo"));
    assert!(error("vendor = 'a'\n[enforced]\nover = ['soon']\nsource = 'https://a.example'").contains("soon"));
}
