//! Whatever a server sends: nothing panics, nothing is made up, and what cannot be read changes nothing.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Amount, Timestamp};
use sluice_vendors::{
    HeaderFault, HeaderReading, MAX_RETRY_AFTER, Profile, Quota, QuotaHeaders, Reported, Unreadable,
    VendorRefusal, classify, classify_event, read, retry_after, should_retry, unknown_header,
};

use crate::profiles::{QUOTAS, vendors};
use crate::said::profile;

type Lines = Vec<(String, Vec<u8>)>;

/// The header that a field is read from, and whether the field is `None`.
type Field = (fn(&QuotaHeaders) -> Option<&str>, fn(&Reported) -> bool);

const FIELDS: [Field; 4] = [
    (|names| names.limit.as_deref(), |reported| reported.limit.is_none()),
    (|names| names.remaining.as_deref(), |reported| reported.remaining.is_none()),
    (|names| names.in_use.as_deref(), |reported| reported.in_use.is_none()),
    (|names| names.reset.as_deref(), |reported| reported.reset.is_none()),
];

const NAMES: &[&str] = &[
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-project-tokens",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
    "anthropic-ratelimit-tokens-limit",
    "current-concurrent-requests",
    "maximum-concurrent-requests",
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit",
    "ratelimit-policy",
    "x-should-retry",
    "x-amzn-errortype",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    let instant = "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-9]:[0-5][0-9])";
    prop_oneof![
        4 => "[0-9]{1,9}".prop_map(String::into_bytes),
        1 => "(-1|0|-0|\\+5|1e3|NaN|)".prop_map(String::into_bytes),
        2 => "([0-9]{1,3}h)?([0-9]{1,3}m)?[0-9]{1,3}(\\.[0-9]{1,6})?s".prop_map(String::into_bytes),
        1 => "[0-9]{1,6}ms".prop_map(String::into_bytes),
        2 => instant.prop_map(String::into_bytes),
        1 => Just(b"Thu, 21 Aug 2025 12:41:25 GMT".to_vec()),
        2 => "[-+0-9.:eTZhmsnu ]{0,40}".prop_map(String::into_bytes),
        1 => "\\PC{0,20}".prop_map(String::into_bytes),
        1 => "(\"[a-z]{1,5}\"|[0-9]{1,5});[qwrt]=[0-9]{1,5}(;[qwrt]=-?[0-9]{1,5})?".prop_map(String::into_bytes),
        1 => "limit=[0-9]{1,3}, remaining=[0-9]{1,3}(, reset=[0-9]{1,3})?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn lines() -> impl Strategy<Value = Lines> {
    prop::collection::btree_map(prop::sample::select(NAMES), value(), 0..12)
        .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn now() -> impl Strategy<Value = Timestamp> {
    prop_oneof![4 => (1_700_000_000_u32..1_800_000_000).prop_map(Timestamp::from_secs), 1 => any::<i64>().prop_map(Timestamp::from_micros)]
}

fn body() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("insufficient_quota"),
        Just("system_busy"),
        Just("too_many_concurrent_requests"),
        Just("rate_limit_exceeded"),
        Just("overloaded_error"),
        Just("quota_exceeded"),
        Just("34s"),
        Just("GenerateRequestsPerDay"),
        Just("0")
    ];
    prop_oneof![
        Just(String::new()),
        "\\PC{0,40}",
        (word.clone(), prop::sample::select(&["code", "type", "status"][..]))
            .prop_map(|(word, place)| format!(r#"{{"error":{{"{place}":"{word}"}},"detail":{{"{place}":"{word}"}}}}"#)),
        word.prop_map(|word| format!(
            r#"[{{"error":{{"details":[{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{word}"}}]}}}}]"#
        )),
        "[\\[\\]{}\":,a-z0-9 ]{0,60}",
    ]
}

fn without(lines: &Lines, names: &[&str]) -> Lines {
    lines.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect()
}

fn check(vendor: &Profile, quota: Quota, lines: &Lines, now: Timestamp) -> Result<(), TestCaseError> {
    let HeaderReading { reported, unreadable } = read(vendor, quota, lines, now);
    for Reported { limit, remaining, in_use, reset, window, .. } in reported.iter().copied() {
        for amount in [limit, remaining, in_use].into_iter().flatten() {
            prop_assert!(amount >= Amount::ZERO);
        }
        prop_assert!(reset.is_none_or(|reset| reset <= Duration::from_secs(31 * 86_400)));
        prop_assert!(window.is_none() || limit.is_some() || remaining.is_some());
    }
    let told: Vec<&str> = unreadable.iter().map(|told| told.name.as_str()).collect();
    prop_assert!(
        told.iter().all(|name| lines.iter().any(|(there, _)| there == name)),
        "{told:?} are not there"
    );
    let again = read(vendor, quota, &without(lines, &told), now);
    prop_assert_eq!(
        again,
        HeaderReading { reported: reported.clone(), unreadable: Vec::new() },
        "what cannot be read changes nothing"
    );
    let loud: Lines = lines.iter().map(|(name, value)| (name.to_uppercase(), value.clone())).collect();
    prop_assert_eq!(
        read(vendor, quota, &loud, now),
        HeaderReading { reported, unreadable },
        "case is of no account"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_there_is_read_or_told_and_nothing_else_follows(lines in lines(), now in now()) {
        for vendor in vendors() {
            for quota in QUOTAS {
                check(vendor, quota, &lines, now)?;
            }
        }
    }

    #[test]
    fn what_is_absent_stays_none(lines in lines(), now in now()) {
        // Every header that one field of one quota is read from is taken away.
        for vendor in vendors() {
            for quota in QUOTAS {
                for (name_of, is_none) in FIELDS {
                    let families = vendor.quotas.iter().filter(|names| names.kind == quota);
                    let names: Vec<&str> = families.filter_map(|names| name_of(names)).chain(["ratelimit"]).collect();
                    let reported = read(vendor, quota, &without(&lines, &names), now).reported;
                    prop_assert!(reported.iter().all(is_none), "{} {quota:?}", vendor.vendor);
                }
                prop_assert_eq!(read(vendor, quota, &without(&lines, NAMES), now), HeaderReading::default());
            }
        }
    }

    #[test]
    fn whole_numbers_and_spans_are_read_to_the_digit(limit in 0_i32.., remaining in 0_i32.., millis in 0_u64..1_000_000_000) {
        let headers = [
            ("x-ratelimit-limit-tokens", limit.to_string()),
            ("x-ratelimit-remaining-tokens", remaining.to_string()),
            ("x-ratelimit-reset-tokens", format!("{}m{}.{:03}s", millis / 60_000, millis / 1_000 % 60, millis % 1_000)),
        ];
        for vendor in ["openai", "groq", "other"] {
            let HeaderReading { reported, unreadable } = read(profile(vendor), Quota::Tokens, &headers, Timestamp::from_secs(0));
            prop_assert_eq!(reported[0].limit, Some(Amount::from_tokens(limit)));
            prop_assert_eq!(reported[0].remaining, Some(Amount::from_tokens(remaining)));
            prop_assert_eq!(reported[0].reset, Some(Duration::from_millis(millis)));
            prop_assert_eq!(unreadable, []);
        }
    }

    #[test]
    fn a_wait_is_believed_for_a_month_at_most(lines in lines(), body in body(), now in now()) {
        let read = retry_after(&lines, Some(body.as_bytes()), now);
        prop_assert!(read.wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        let is_cut = |told: &&Unreadable| told.fault == HeaderFault::TooLong && read.wait == Some(MAX_RETRY_AFTER);
        let told: Vec<&str> = read.unreadable.iter().filter(|told| !is_cut(told)).map(|told| told.name.as_str()).collect();
        let body = if told.contains(&"retryDelay") { None } else { Some(body.as_bytes()) };
        let again = retry_after(&without(&lines, &told), body, now);
        prop_assert_eq!(again.wait, read.wait, "what cannot be read changes nothing");
        prop_assert_eq!(retry_after(&without(&lines, NAMES), None, now).wait, None);
    }

    #[test]
    fn every_429_is_a_refusal_and_no_good_reply_is_one(status in 100_u16..600, lines in lines(), body in body(), now in now()) {
        let wait = retry_after(&lines, Some(body.as_bytes()), now).wait;
        for vendor in vendors() {
            let of = |status| classify(vendor, status, &lines, Some(body.as_bytes()), now);
            prop_assert!(of(429).is_some());
            prop_assert!(status >= 400 || of(status).is_none());
            let refusal = of(status);
            prop_assert!(refusal.is_none_or(|refusal| refusal == VendorRefusal::TooLarge || refusal.retry_after() == wait));
            let _ = (classify_event(vendor, body.as_bytes(), now), unknown_header(vendor, &lines), should_retry(&lines));
        }
    }
}
