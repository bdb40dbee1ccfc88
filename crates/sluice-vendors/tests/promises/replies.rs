//! Replies that callers published (`tests/replies.toml`).

use std::time::Duration;

use serde::Deserialize;
use sluice_core::{Amount, Timestamp};
use sluice_vendors::{Means, Quota, Reported, VendorRefusal, classify, read, refused_quota};

use crate::profiles::QUOTAS;
use crate::said::{NOW, headers, profile};

const REPLIES: &str = include_str!("../replies.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replies {
    reply: Vec<Reply>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    vendor: String,
    status: u16,
    #[serde(default)]
    headers: String,
    body: Option<String>,
    now: Option<String>,
    means: Option<Means>,
    wait: Option<String>,
    named: Option<Quota>,
    #[serde(default)]
    quotas: Vec<ReportedQuota>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportedQuota {
    kind: Quota,
    limit: Option<i32>,
    remaining: Option<i32>,
    reset: Option<String>,
    window: Option<String>,
}

fn replies() -> Vec<Reply> {
    toml::from_str::<Replies>(REPLIES).unwrap().reply
}

fn span(text: Option<&String>) -> Option<Duration> {
    text.map(|text| humantime::parse_duration(text).unwrap())
}

impl Reply {
    fn now(&self) -> Timestamp {
        self.now.as_ref().map_or(NOW, |now| {
            let since = humantime::parse_rfc3339(now).unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
            Timestamp::from_secs(since.as_secs().try_into().unwrap())
        })
    }

    fn body(&self) -> Option<&[u8]> {
        self.body.as_ref().map(String::as_bytes)
    }
}

fn means(refusal: VendorRefusal) -> Means {
    match refusal {
        VendorRefusal::Rate { .. } => Means::Rate,
        VendorRefusal::Concurrency { .. } => Means::Concurrency,
        VendorRefusal::SystemBusy { .. } => Means::Busy,
        VendorRefusal::QuotaExhausted { .. } => Means::Exhausted,
        VendorRefusal::TooLarge => Means::TooLarge,
        other => unreachable!("{other:?} has no name in a profile"),
    }
}

#[test]
fn each_published_refusal_means_what_its_vendor_says() {
    for reply in replies() {
        let told = format!("{} ({})", reply.source, reply.vendor);
        let refusal = classify(
            profile(&reply.vendor),
            reply.status,
            &headers(&reply.headers),
            reply.body(),
            reply.now(),
        );
        assert_eq!(refusal.map(means), reply.means, "{told}");
        let wait = refusal.and_then(|refusal| refusal.retry_after());
        assert_eq!(wait, span(reply.wait.as_ref()), "{told}");
        assert_eq!(refused_quota(reply.body()), reply.named, "{told}");
    }
}

#[test]
fn each_published_header_is_read_and_nothing_else() {
    for reply in replies() {
        for quota in QUOTAS {
            let reading = read(profile(&reply.vendor), quota, &headers(&reply.headers), reply.now());
            assert_eq!(reading.unreadable, [], "{}", reply.source);
            let reported: Vec<_> = reading.reported.into_iter().map(without_rounding).collect();
            let expected: Vec<_> =
                reply.quotas.iter().filter(|said| said.kind == quota).map(expected).collect();
            assert_eq!(reported, expected, "{quota:?} {} ({})", reply.source, reply.vendor);
        }
    }
}

fn without_rounding(reported: Reported) -> Reported {
    Reported { rounded_to: Amount::ZERO, ..reported }
}

fn expected(said: &ReportedQuota) -> Reported {
    Reported {
        limit: said.limit.map(Amount::from_tokens),
        remaining: said.remaining.map(Amount::from_tokens),
        reset: span(said.reset.as_ref()),
        window: span(said.window.as_ref()),
        ..Reported::default()
    }
}

#[test]
fn every_reply_names_its_source() {
    let replies = replies();
    assert!(replies.len() >= 70, "{} replies are left", replies.len());
    for reply in &replies {
        assert!(reply.source.starts_with("https://"), "{}", reply.source);
    }
}
