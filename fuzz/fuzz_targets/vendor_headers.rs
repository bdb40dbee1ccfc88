//! Replies of vendors: what is there is read for what it says or told to be unreadable, what is not there
//! says nothing, and what cannot be read changes nothing.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sluice_core::{Amount, Timestamp};
use sluice_fuzz::{ceiling, floor};
use sluice_vendors::{
    HeaderFault, HeaderReading, MAX_RETRY_AFTER, Profile, Quota, VendorRefusal, Vendors, classify, read,
    retry_after,
};

/// 2025-08-21T12:40:55Z.
const NOW: Timestamp = Timestamp::from_secs(1_755_780_055);

fn vendors() -> impl Iterator<Item = &'static Profile> {
    let known = Vendors::builtin();
    known.all().chain([known.other()]).map(AsRef::as_ref)
}

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

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(there, _)| there.eq_ignore_ascii_case(name))
    }

    /// The value of a header that is there once.
    fn value(&self, name: &str) -> Option<&'a str> {
        let mut named = self.headers.iter().filter(|(there, _)| there.eq_ignore_ascii_case(name));
        let value = named.next().map(|(_, value)| value.trim());
        value.filter(|value| named.next().is_none() && !value.contains([',', ';']))
    }

    fn without(&self, names: &[&str]) -> Vec<(&'a str, &'a str)> {
        let told = |name: &str| names.iter().any(|told| told.eq_ignore_ascii_case(name));
        self.headers.iter().copied().filter(|(name, _)| !told(name)).collect()
    }
}

fn check_reading(reply: &Reply<'_>, vendor: &Profile, quota: Quota) {
    let HeaderReading { reported, unreadable } = read(vendor, quota, &reply.headers, NOW);
    let told: Vec<&str> = unreadable.iter().map(|told| told.name.as_str()).collect();
    assert!(told.iter().all(|name| reply.has(name)), "{told:?} is not there");
    let again = read(vendor, quota, &reply.without(&told), NOW);
    assert_eq!(again, HeaderReading { reported: reported.clone(), unreadable: Vec::new() });
    for said in reported {
        for amount in [said.limit, said.remaining, said.in_use].into_iter().flatten() {
            assert!(amount >= Amount::ZERO);
        }
        // The IETF's header has spans of its own, which name no time that is acted on.
        assert!(
            vendor.reads_standard || said.reset.is_none_or(|reset| reset <= Duration::from_secs(31 * 86_400))
        );
        assert!(said.window.is_none() || said.limit.is_some() || said.remaining.is_some());
    }
}

/// OpenAI's, name by name: with a second opinion on numbers and spans.
fn check_openai(reply: &Reply<'_>) {
    let Some(openai) = Vendors::builtin().named("openai") else { return };
    let HeaderReading { reported, unreadable } = read(openai, Quota::Tokens, &reply.headers, NOW);
    let reported = reported.first().copied().unwrap_or_default();
    let is_told = |name: &str| unreadable.iter().any(|told| told.name == name);
    for (name, amount) in
        [("x-ratelimit-limit-tokens", reported.limit), ("x-ratelimit-remaining-tokens", reported.remaining)]
    {
        let Some(value) = reply.value(name) else { continue };
        match amount {
            Some(amount) => assert_eq!(floor(value, 6), Some(amount.micros().into())),
            None => assert!(is_told(name), "{name} is neither read nor told"),
        }
    }
    let name = "x-ratelimit-reset-tokens";
    match (reported.reset, reply.value(name)) {
        // humantime knows no fractions, no bare numbers, and no Greek letters.
        (Some(reset), Some(value)) if value.is_ascii() && value.ends_with('s') && !value.contains('.') => {
            assert_eq!(humantime::parse_duration(value), Ok(reset), "{value:?}");
        }
        (None, Some(_)) => assert!(is_told(name)),
        _ => {}
    }
}

fn check_wait(reply: &Reply<'_>) {
    let body = Some(reply.body.as_bytes());
    let wait = retry_after(&reply.headers, body, NOW);
    assert!(wait.wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
    let is_cut = |fault| fault == HeaderFault::TooLong && wait.wait == Some(MAX_RETRY_AFTER);
    let told = wait.unreadable.iter().filter(|told| !is_cut(told.fault));
    let told: Vec<&str> = told.map(|told| told.name.as_str()).collect();
    let read_body = if told.contains(&"retryDelay") { None } else { body };
    let again = retry_after(&reply.without(&told), read_body, NOW);
    assert!(told.contains(&"retryDelay") || again.wait == wait.wait);
    let first =
        ["retry-after-ms", "x-ms-retry-after-ms", "retry-after"].into_iter().find(|name| reply.has(name));
    if let (Some("retry-after"), Some(wait), []) = (first, wait.wait, &told[..]) {
        // Seconds below those of a Unix time, or else a date.
        const UNIX_TIMES: i128 = 1_000_000_000 * 1_000_000_000;
        let nanos = reply.value("retry-after").and_then(|value| ceiling(value, 9));
        if let Some(nanos) = nanos.filter(|nanos| *nanos < UNIX_TIMES.into()) {
            assert_eq!(nanos.min(MAX_RETRY_AFTER.as_nanos().into()), wait.as_nanos().into());
        }
    }
    for vendor in vendors() {
        let of = |status| classify(vendor, status, &reply.headers, body, NOW);
        assert!(of(429).is_some() && of(200).is_none());
        if let Some(refusal) = of(reply.status) {
            assert!(reply.status >= 400);
            assert!(refusal == VendorRefusal::TooLarge || refusal.retry_after() == wait.wait);
        }
    }
}

fuzz_target!(|text: &str| {
    let reply = Reply::parse(text);
    for vendor in vendors() {
        for quota in QUOTAS {
            check_reading(&reply, vendor, *quota);
        }
    }
    check_openai(&reply);
    check_wait(&reply);
});
