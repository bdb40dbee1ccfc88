//! Replies of vendors: what is there is read for what it says or told to be unreadable, what is not there says nothing, and what
//! cannot be read changes nothing.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sluice_core::{Amount, Timestamp};
use sluice_fuzz::{ceiling, floor};
use sluice_vendors::{HeaderReading, MAX_RETRY_AFTER, Quota, Vendor, VendorRefusal, classify, read, retry_after};

/// 2025-08-21T12:40:55Z.
const NOW: Timestamp = Timestamp::from_secs(1_755_780_055);

const VENDORS: &[Vendor] = &[
    Vendor::OpenAi,
    Vendor::AzureOpenAi,
    Vendor::Anthropic,
    Vendor::ElevenLabs,
    Vendor::Gemini,
    Vendor::Groq,
    Vendor::Other,
];

const QUOTAS: &[Quota] = &[
    Quota::Requests,
    Quota::Tokens,
    Quota::InputTokens,
    Quota::OutputTokens,
    Quota::ProjectTokens,
    Quota::Concurrency,
];

/// A reply: its status, a line for each header, an empty line, its body.
struct Reply<'a> {
    status: u16,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a str,
}

impl<'a> Reply<'a> {
    fn parse(text: &'a str) -> Self {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let (status, lines) = head.split_once('\n').unwrap_or((head, ""));
        let headers = lines.lines().filter_map(|line| line.split_once(':')).collect();
        Self { status: status.parse().unwrap_or(429), headers, body }
    }

    /// The first value of a header, as it counts.
    fn value(&self, name: &str) -> Option<&'a str> {
        let named = self.headers.iter().find(|(there, _)| there.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim())
    }

    fn without(&self, names: &[&str]) -> Vec<(&'a str, &'a str)> {
        let told = |name: &str| names.iter().any(|told| told.eq_ignore_ascii_case(name));
        self.headers.iter().copied().filter(|(name, _)| !told(name)).collect()
    }
}

fn check_reading(reply: &Reply<'_>, vendor: Vendor, quota: Quota) {
    let HeaderReading { reported, unreadable } = read(vendor, quota, &reply.headers, NOW);
    let told: Vec<&str> = unreadable.iter().map(|told| told.name).collect();
    assert!(told.iter().all(|name| reply.value(name).is_some()), "{told:?} is not there");
    let again = read(vendor, quota, &reply.without(&told), NOW);
    assert_eq!(again, HeaderReading { reported, unreadable: Vec::new() });
    for amount in [reported.limit, reported.remaining, reported.in_use].into_iter().flatten() {
        assert!(amount >= Amount::ZERO);
        let is_written = |(_, value): &(&str, &str)| floor(value.trim(), 6) == Some(amount.micros().into());
        assert!(reply.headers.iter().any(is_written), "{amount} is nowhere");
    }
    assert!(reported.reset.is_none_or(|reset| reset <= Duration::from_secs(31 * 86_400)));
    assert!(reported.window.is_none() || reported.limit.is_some() || reported.remaining.is_some());
}

/// OpenAI's, name by name: with a second opinion on numbers and spans.
fn check_openai(reply: &Reply<'_>) {
    let HeaderReading { reported, unreadable } = read(Vendor::OpenAi, Quota::Tokens, &reply.headers, NOW);
    let is_told = |name: &str| unreadable.iter().any(|told| told.name == name);
    for (name, amount) in
        [("x-ratelimit-limit-tokens", reported.limit), ("x-ratelimit-remaining-tokens", reported.remaining)]
    {
        let written = reply.value(name).and_then(|value| floor(value, 6));
        match amount {
            Some(amount) => assert_eq!(written, Some(amount.micros().into())),
            None => assert_eq!(is_told(name), reply.value(name).is_some(), "{name} is neither read nor told"),
        }
    }
    let name = "x-ratelimit-reset-tokens";
    match (reported.reset, reply.value(name)) {
        (Some(reset), Some(value)) => {
            // humantime knows no fractions, and no Greek letters.
            if !value.contains('.') && value.is_ascii() {
                assert_eq!(humantime::parse_duration(value), Ok(reset), "{value:?}");
            }
        }
        (reset, value) => assert!(reset.is_none() && is_told(name) == value.is_some()),
    }
}

fn check_wait(reply: &Reply<'_>) {
    let body = Some(reply.body.as_bytes());
    let wait = retry_after(&reply.headers, body, NOW);
    assert!(wait.wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
    let told: Vec<&str> = wait.unreadable.iter().map(|told| told.name).collect();
    let read_body = if told.contains(&"retryDelay") { None } else { body };
    let again = retry_after(&reply.without(&told), read_body, NOW);
    assert_eq!((again.wait, again.unreadable.len()), (wait.wait, 0));
    let first =
        ["retry-after-ms", "x-ms-retry-after-ms", "retry-after"].into_iter().find(|name| reply.value(name).is_some());
    if let (Some("retry-after"), Some(wait), []) = (first, wait.wait, &told[..]) {
        // Seconds, or else a date.
        if let Some(nanos) = reply.value("retry-after").and_then(|value| ceiling(value, 9)) {
            assert_eq!(nanos, wait.as_nanos().into());
        }
    }
    for vendor in VENDORS {
        let of = |status| classify(*vendor, status, &reply.headers, body, NOW);
        assert!(of(429).is_some() && of(200).is_none());
        if let Some(refusal) = of(reply.status) {
            assert!(reply.status >= 400);
            assert!(refusal == VendorRefusal::QuotaExhausted || refusal.retry_after() == wait.wait);
        }
    }
}

fuzz_target!(|text: &str| {
    let reply = Reply::parse(text);
    for vendor in VENDORS {
        for quota in QUOTAS {
            check_reading(&reply, *vendor, *quota);
        }
    }
    check_openai(&reply);
    check_wait(&reply);
});
