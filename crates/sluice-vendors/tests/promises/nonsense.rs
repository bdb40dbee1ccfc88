//! Whatever a server sends: nothing panics, nothing is made up, and what cannot be read changes nothing.

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Amount, Timestamp};
use sluice_vendors::{
    HeaderReading, MAX_RETRY_AFTER, Quota, Reported, Vendor, VendorRefusal, classify, read, retry_after,
};

use crate::profiles::{QUOTAS, VENDORS};

type Lines = Vec<(String, Vec<u8>)>;

/// A quota, the headers that one of its fields is read from, and whether that field is `None`.
type Field = (Quota, &'static [&'static str], fn(&Reported) -> bool);

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
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    let instant =
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-9]:[0-5][0-9])";
    prop_oneof![
        4 => "[0-9]{1,9}".prop_map(String::into_bytes),
        1 => "(-1|0|-0|\\+5|1e3|NaN|)".prop_map(String::into_bytes),
        2 => "([0-9]{1,3}h)?([0-9]{1,3}m)?[0-9]{1,3}(\\.[0-9]{1,6})?s".prop_map(String::into_bytes),
        1 => "[0-9]{1,6}ms".prop_map(String::into_bytes),
        2 => instant.prop_map(String::into_bytes),
        1 => Just(b"Thu, 21 Aug 2025 12:41:25 GMT".to_vec()),
        2 => "[-+0-9.:eTZhmsnu ]{0,40}".prop_map(String::into_bytes),
        1 => "\\PC{0,20}".prop_map(String::into_bytes),
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

fn check(vendor: Vendor, quota: Quota, lines: &Lines, now: Timestamp) -> Result<(), TestCaseError> {
    let HeaderReading { reported, unreadable } = read(vendor, quota, lines, now);
    let Reported { limit, remaining, in_use, reset, window } = reported;
    for amount in [limit, remaining, in_use].into_iter().flatten() {
        prop_assert!(amount >= Amount::ZERO);
    }
    prop_assert!(reset.is_none_or(|reset| reset <= Duration::from_secs(31 * 86_400)));
    prop_assert!(window.is_none() || limit.is_some() || remaining.is_some());
    let told: Vec<&str> = unreadable.iter().map(|told| told.name).collect();
    prop_assert!(told.iter().all(|name| lines.iter().any(|(there, _)| there == name)), "{told:?} are not there");
    let again = read(vendor, quota, &without(lines, &told), now);
    prop_assert_eq!(again, HeaderReading { reported, unreadable: Vec::new() }, "what cannot be read changes nothing");
    let loud: Lines = lines.iter().map(|(name, value)| (name.to_uppercase(), value.clone())).collect();
    prop_assert_eq!(read(vendor, quota, &loud, now), HeaderReading { reported, unreadable }, "case is of no account");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_there_is_read_or_told_and_nothing_else_follows(lines in lines(), now in now()) {
        for vendor in VENDORS {
            for quota in QUOTAS {
                check(vendor, quota, &lines, now)?;
            }
        }
    }

    #[test]
    fn what_is_absent_stays_none(lines in lines(), now in now()) {
        // Every header that one field of one quota is read from is taken away.
        let fields: [Field; 4] = [
            (Quota::Requests, &["x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"], |r| r.limit.is_none()),
            (Quota::Requests, &["x-ratelimit-reset-requests", "anthropic-ratelimit-requests-reset"], |r| r.reset.is_none()),
            (Quota::Tokens, &["x-ratelimit-remaining-tokens"], |r| r.remaining.is_none()),
            (Quota::Concurrency, &["current-concurrent-requests"], |r| r.in_use.is_none()),
        ];
        for (quota, names, is_none) in fields {
            for vendor in VENDORS {
                prop_assert!(is_none(&read(vendor, quota, &without(&lines, names), now).reported), "{vendor:?} {quota:?}");
            }
        }
        for vendor in VENDORS {
            for quota in QUOTAS {
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
        for vendor in [Vendor::OpenAi, Vendor::Groq, Vendor::Other] {
            let HeaderReading { reported, unreadable } = read(vendor, Quota::Tokens, &headers, Timestamp::from_secs(0));
            prop_assert_eq!(reported.limit, Some(Amount::from_tokens(limit)));
            prop_assert_eq!(reported.remaining, Some(Amount::from_tokens(remaining)));
            prop_assert_eq!(reported.reset, Some(Duration::from_millis(millis)));
            prop_assert_eq!(unreadable, []);
        }
    }

    #[test]
    fn a_wait_is_believed_for_a_day_at_most(lines in lines(), body in body(), now in now()) {
        let read = retry_after(&lines, Some(body.as_bytes()), now);
        prop_assert!(read.wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        let told: Vec<&str> = read.unreadable.iter().map(|told| told.name).collect();
        let body = if told.contains(&"retryDelay") { None } else { Some(body.as_bytes()) };
        let again = retry_after(&without(&lines, &told), body, now);
        prop_assert_eq!((again.wait, again.unreadable.len()), (read.wait, 0));
        prop_assert_eq!(retry_after(&without(&lines, NAMES), None, now).wait, None);
    }

    #[test]
    fn every_429_is_a_refusal_and_no_good_reply_is_one(status in 100_u16..600, lines in lines(), body in body(), now in now()) {
        let wait = retry_after(&lines, Some(body.as_bytes()), now).wait;
        for vendor in VENDORS {
            let of = |status| classify(vendor, status, &lines, Some(body.as_bytes()), now);
            prop_assert!(of(429).is_some());
            prop_assert!(status >= 400 || of(status).is_none());
            let refusal = of(status);
            prop_assert!(refusal.is_none_or(|refusal| refusal == VendorRefusal::QuotaExhausted || refusal.retry_after() == wait));
        }
    }
}
