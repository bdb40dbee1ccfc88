//! What is known of vendors apart from their replies.

use sluice_core::LimitType;
use sluice_vendors::{Kept, Quota, Reported, Vendor, read};

use crate::said::NOW;

pub(crate) const VENDORS: [Vendor; 7] = [
    Vendor::OpenAi,
    Vendor::AzureOpenAi,
    Vendor::Anthropic,
    Vendor::ElevenLabs,
    Vendor::Gemini,
    Vendor::Groq,
    Vendor::Other,
];

pub(crate) const QUOTAS: [Quota; 6] =
    [Quota::Requests, Quota::Tokens, Quota::InputTokens, Quota::OutputTokens, Quota::ProjectTokens, Quota::Concurrency];

/// Every header that any vendor reports with, a readable value in each.
fn everything() -> Vec<(String, &'static str)> {
    let mut all =
        vec![("current-concurrent-requests".to_owned(), "1"), ("maximum-concurrent-requests".to_owned(), "2")];
    for quota in ["requests", "tokens", "project-tokens"] {
        all.push((format!("x-ratelimit-limit-{quota}"), "10"));
        all.push((format!("x-ratelimit-remaining-{quota}"), "5"));
        all.push((format!("x-ratelimit-reset-{quota}"), "1s"));
    }
    for quota in ["requests", "tokens", "input-tokens", "output-tokens"] {
        all.push((format!("anthropic-ratelimit-{quota}-limit"), "10"));
        all.push((format!("anthropic-ratelimit-{quota}-remaining"), "5"));
        all.push((format!("anthropic-ratelimit-{quota}-reset"), "2025-08-21T12:41:25Z"));
    }
    all
}

#[test]
fn a_vendor_reports_what_its_profile_says_and_nothing_else() {
    for vendor in VENDORS.into_iter().filter(|vendor| *vendor != Vendor::Other) {
        for quota in QUOTAS {
            let reported = read(vendor, quota, &everything(), NOW).reported;
            let reports = vendor.profile().reports.value.contains(&quota);
            assert_eq!(reported != Reported::default(), reports, "{vendor:?} {quota:?}");
        }
    }
}

#[test]
fn a_failed_call_keeps_its_request_and_returns_its_slot() {
    for vendor in VENDORS {
        let profile = vendor.profile();
        assert_eq!(profile.vendor, vendor);
        assert_eq!(profile.kept_by_failure(LimitType::Requests), Kept::All, "{vendor:?}");
        assert_eq!(profile.kept_by_failure(LimitType::Concurrent), Kept::Nothing, "{vendor:?}");
    }
    assert_eq!(Vendor::OpenAi.profile().kept_by_failure(LimitType::Tokens), Kept::Nothing);
    assert_eq!(
        Vendor::AzureOpenAi.profile().kept_by_failure(LimitType::Tokens),
        Kept::All,
        "counted as the request arrives, also where it is rejected"
    );
}

#[test]
fn each_source_is_an_address_and_what_is_assumed_names_none() {
    for vendor in VENDORS {
        let profile = vendor.profile();
        let sources = [
            profile.failed_requests.source,
            profile.failed_tokens.source,
            profile.tokens.source,
            profile.enforced_over.source,
            profile.reports.source,
            profile.remaining_rounded_to.and_then(|rounded| rounded.source),
        ];
        assert!(sources.iter().flatten().all(|source| source.starts_with("https://")), "{vendor:?}");
        assert_eq!(vendor == Vendor::Other, sources.iter().flatten().count() == 0, "{vendor:?}");
    }
}
