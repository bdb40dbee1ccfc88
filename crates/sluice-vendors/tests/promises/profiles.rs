//! What is known of vendors apart from their replies.

use sluice_core::LimitType;
use sluice_vendors::{
    Counted, Counts, HeaderReading, Kept, Profile, PublishedLimit, Quota, Vendors, classify, read,
    unknown_header,
};

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
            let lines: Vec<(&str, &str)> =
                all.into_iter().flatten().map(|name| (name.as_str(), "7")).collect();
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
            let judged =
                classify(profile, status.unwrap_or(429), &headers(""), Some(example.as_bytes()), NOW);
            let mut only_this = profile.clone();
            only_this.refusals = vec![rule.clone()];
            let by_rule =
                classify(&only_this, status.unwrap_or(418), &headers(""), Some(example.as_bytes()), NOW);
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
fn a_star_in_a_host_stands_for_one_part_of_a_name() {
    let at = |host| Vendors::builtin().at(host).map(|profile| profile.vendor.as_str());
    assert_eq!(at("bedrock-runtime.eu-central-1.amazonaws.com"), Some("bedrock"));
    assert_eq!(at("Bedrock-Runtime-FIPS.us-east-1.amazonaws.com"), Some("bedrock"));
    assert_eq!(at("us-central1-aiplatform.googleapis.com"), Some("vertex"));
    assert_eq!(at("aiplatform.googleapis.com"), Some("vertex"));
    for other in [
        "bedrock-runtime..amazonaws.com",
        "bedrock-runtime.amazonaws.com",
        "bedrock-runtime.a.b.amazonaws.com",
        "bedrock-runtime.us-east-1.amazonaws.com.example.com",
        "dynamodb.us-east-1.amazonaws.com",
        "evil.example-aiplatform.googleapis.com",
        "-aiplatform.googleapis.com",
    ] {
        assert_eq!(at(other), None, "{other}");
    }
    for host in ["*.*.example", "API.example"] {
        let error = Profile::parse(&format!("vendor = 'a'\nhosts = ['{host}']")).unwrap_err().to_string();
        assert!(error.contains(host), "{error}");
    }
}

#[test]
fn each_tier_has_its_column_of_published_limits() {
    let limits = "vendor = 'a'\n[[limits]]\nmodels = ['m', 'n']\ntiers = ['free', 'paid']\nrpm = [3, 500]\n\
        tpd = [1_000, 0]\nconcurrent = [1, 2]\ncounts = 'fixed'\nsource = 'https://a.example'";
    let profile = Profile::parse(limits).unwrap();
    let of = |tier: &str, model: &str| -> Vec<(&str, u64, Option<u64>)> {
        let fits = |limit: &&PublishedLimit| {
            limit.tier.as_deref() == Some(tier) && limit.model.as_deref() == Some(model)
        };
        let all = profile.limits.iter().filter(fits);
        all.map(|limit| (limit.metric.as_str(), limit.amount, limit.window.map(|window| window.as_secs())))
            .collect()
    };
    for model in ["m", "n"] {
        let free = [("rpm", 3, Some(60)), ("tpd", 1_000, Some(86_400)), ("concurrent", 1, None)];
        assert_eq!(of("free", model), free);
        assert_eq!(
            of("paid", model),
            [("rpm", 500, Some(60)), ("concurrent", 2, None)],
            "no amount, no limit"
        );
    }
    assert!(profile.limits.iter().all(|limit| limit.counts == Counts::Fixed));
    let of_account =
        Profile::parse("vendor = 'a'\n[[limits]]\nrps = [2]\nsource = 'https://a.example'").unwrap();
    assert_eq!((of_account.limits[0].tier.as_ref(), of_account.limits[0].model.as_ref()), (None, None));
    let error = |row: &str| {
        let text =
            format!("vendor = 'a'\n[[limits]]\ntiers = ['1', '2']\n{row}\nsource = 'https://a.example'");
        Profile::parse(&text).unwrap_err().to_string()
    };
    assert!(error("rpm = [1, 2, 3]").contains("rpm needs one amount for each of 2 tiers, and has 3"));
    assert!(error("rpx = [1, 2]").contains("\"rpx\" is no metric"));
}

#[test]
fn no_published_limit_is_stated_twice() {
    for profile in vendors() {
        let mut all: Vec<_> =
            profile.limits.iter().map(|limit| (&limit.tier, &limit.model, limit.metric.as_str())).collect();
        let stated = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), stated, "{}", profile.vendor);
    }
    let limit = |vendor: &str, tier: &str, model: &str, metric: &str| {
        let mut limits = profile(vendor).limits.iter();
        let fits = |limit: &&PublishedLimit| {
            limit.tier.as_deref() == Some(tier)
                && limit.model.as_deref() == Some(model)
                && limit.metric == metric
        };
        limits.find(fits).map(|limit| limit.amount)
    };
    assert_eq!(limit("openai", "3", "gpt-4o", "tpm"), Some(800_000));
    assert_eq!(limit("anthropic", "Build", "claude-sonnet-4-6", "otpm"), Some(1_000_000));
    assert_eq!(limit("azure", "6", "gpt-5", "rpm"), Some(450_000));
}

/// As <https://docs.aws.amazon.com/bedrock/latest/userguide/quotas-token-burndown.html> has them.
#[test]
fn bedrock_weighs_output_by_the_model() {
    let weight = |model| profile("bedrock").tokens_of(model).map(|count| count.weights.output);
    assert_eq!(weight("us.anthropic.claude-sonnet-4-20250514-v1:0"), Some(5.0));
    assert_eq!(weight("anthropic.claude-3-7-sonnet-20250219-v1:0"), Some(5.0));
    assert_eq!(weight("global.anthropic.claude-opus-4-8"), Some(15.0));
    assert_eq!(weight("anthropic.claude-opus-5"), Some(10.0));
    assert_eq!(weight("openai.gpt-5.6-luna"), Some(10.0));
    assert_eq!(weight("amazon.nova-pro-v1:0"), Some(1.0));
    let cached = profile("bedrock").tokens_of("amazon.nova-pro-v1:0").map(|count| count.weights.cached_input);
    assert_eq!(cached, Some(0.0));
}

#[test]
fn a_reply_whose_limits_are_not_understood_is_noticed() {
    let unknown = |vendor, lines: &str| unknown_header(profile(vendor), &headers(lines)).map(str::to_owned);
    assert_eq!(unknown("acme", "x-acme-ratelimit-left: 5").as_deref(), Some("x-acme-ratelimit-left"));
    assert_eq!(unknown("openai", "X-Rate-Limit-Left: 5").as_deref(), Some("X-Rate-Limit-Left"));
    assert_eq!(
        unknown("openai", "x-ratelimit-limit-tokens: 5\nx-ratelimit-more: 5"),
        None,
        "some of it is understood"
    );
    assert_eq!(unknown("acme", "content-type: text/html"), None, "nothing is said");
    assert_eq!(unknown("acme", "RateLimit: \"a\";r=5"), None);
}

#[test]
fn a_profile_that_would_do_nothing_is_refused() {
    let error = |text: &str| Profile::parse(text).unwrap_err().to_string();
    assert!(
        error("vendor = 'a'\n[[refusal]]\nmeans = 'busy'\nsource = 'https://a.example'")
            .contains("no condition")
    );
    let upper = "vendor = 'a'\n[[quota]]\nkind = 'tokens'\nlimit = 'X-Limit'\nsource = 'https://a.example'";
    assert!(error(upper).contains("\"X-Limit\""));
    assert!(error("vendor = ''").contains("vendor's name"));
    assert!(
        error("vendor = 'a'\n[failed]\nrequests = 'kept'\ntokens = 'kept'\nsource = 'I know'")
            .contains("I know")
    );
    assert!(error("vendor = 'a'\ntypo = 1").contains("typo"));
    assert!(
        error("vendor = 'a'\n[enforced]\nover = ['soon']\nsource = 'https://a.example'").contains("soon")
    );
}
