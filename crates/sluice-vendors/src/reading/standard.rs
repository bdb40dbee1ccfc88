//! The headers `RateLimit` and `RateLimit-Policy` of the IETF's drafts.
//!
//! From draft 08 on, both are lists: `RateLimit-Policy: "burst";q=100;w=60` and `RateLimit:
//! "burst";r=50;t=30` (<https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10>). In
//! draft 07, `RateLimit` is a dictionary, `limit=100, remaining=50, reset=30`, and a policy begins with its
//! limit, `100;w=60` (<https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07>).
//!
//! Hugging Face puts the kind of its policy before the name: `"fixed window";"api";q=500;w=300`, which is no
//! list of any draft (<https://github.com/huggingface/huggingface_hub/issues/3553>).

use std::time::Duration;

use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};
use sluice_core::Amount;

use crate::headers::HeaderList;
use crate::quota::Quota;
use crate::reported::Reported;

pub(super) const LIMITS: &str = "ratelimit";
const POLICIES: &str = "ratelimit-policy";

/// A limit that the vendor keeps.
#[derive(Debug)]
pub(super) struct Policy {
    name: Option<String>,
    quota: Option<Quota>,
    limit: Amount,
    window: Option<Duration>,
}

/// The policies that a reply states. A header that cannot be read states none.
pub(super) fn policies(headers: &HeaderList<'_>) -> Vec<Policy> {
    items(headers, POLICIES).into_iter().filter_map(|(item, with)| Policy::of(&item, &with)).collect()
}

/// What a reply says about `quota`.
pub(super) fn read(headers: &HeaderList<'_>, quota: Quota, policies: &[Policy]) -> Vec<Reported> {
    let listed = items(headers, LIMITS).into_iter().filter_map(|(item, with)| {
        let name = text(&item)?;
        let policy = policies.iter().find(|policy| policy.name.as_deref() == Some(name));
        let is_of = policy.map_or_else(|| of_name(name, None), |policy| policy.quota);
        let reported = Reported {
            limit: policy.map(|policy| policy.limit),
            window: policy.and_then(|policy| policy.window),
            remaining: amount(with.get("r")),
            reset: seconds(with.get("t")),
            ..Reported::default()
        };
        (is_of == Some(quota) && reported.remaining.is_some()).then_some(reported)
    });
    listed.chain(dictionary(headers).filter(|_| quota == Quota::Requests)).collect()
}

/// Adds the window of the policy with the same limit.
pub(super) fn complete(reported: &mut Reported, quota: Quota, policies: &[Policy]) {
    if reported.window.is_none() && reported.limit.is_some() {
        let same = policies
            .iter()
            .find(|policy| policy.quota == Some(quota) && Some(policy.limit) == reported.limit);
        reported.window = same.and_then(|policy| policy.window);
    }
}

/// Draft 07.
fn dictionary(headers: &HeaderList<'_>) -> Option<Reported> {
    let value = headers.values(LIMITS).next()?;
    let fields: Dictionary = Parser::new(value).parse().ok()?;
    let field = |name: &str| match fields.get(name) {
        Some(ListEntry::Item(item)) => Some(&item.bare_item),
        _ => None,
    };
    let remaining = amount(field("remaining"));
    remaining?;
    Some(Reported {
        limit: amount(field("limit")),
        remaining,
        reset: seconds(field("reset")),
        ..Reported::default()
    })
}

fn items(headers: &HeaderList<'_>, name: &str) -> Vec<(BareItem, Parameters)> {
    let lists = headers.values(name).filter_map(|value| {
        let list = Parser::new(value).parse::<List>();
        list.or_else(|error| Parser::new(without_kind(value).ok_or(error)?).parse::<List>()).ok()
    });
    let entries = lists.flatten().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some((item.bare_item, item.params)),
        ListEntry::InnerList(_) => None,
    });
    entries.collect()
}

/// The value without the text that stands before its first name.
fn without_kind(value: &[u8]) -> Option<&[u8]> {
    let at = value.windows(2).position(|two| two == b";\"")?;
    value.get(at + 1..)
}

impl Policy {
    fn of(item: &BareItem, with: &Parameters) -> Option<Self> {
        let name = text(item);
        let limit = amount(with.get("q")).or_else(|| amount(Some(item)))?;
        let unit = with.get("qu").and_then(text);
        let quota = of_name(name.unwrap_or_default(), unit);
        Some(Self { name: name.map(str::to_owned), quota, limit, window: seconds(with.get("w")) })
    }
}

/// The quota that a policy's name and its unit give. `None` for what no bucket counts.
fn of_name(name: &str, unit: Option<&str>) -> Option<Quota> {
    match unit {
        Some("concurrent-requests") => Some(Quota::Concurrency),
        Some(unit) if unit.contains("token") => Some(Quota::Tokens),
        Some("requests") => Some(Quota::Requests),
        Some(_) => None,
        None if name.to_ascii_lowercase().contains("token") => Some(Quota::Tokens),
        None => Some(Quota::Requests),
    }
}

fn text(item: &BareItem) -> Option<&str> {
    match item {
        BareItem::String(text) => Some(text.as_str()),
        BareItem::Token(text) => Some(text.as_str()),
        _ => None,
    }
}

fn integer(item: Option<&BareItem>) -> Option<u64> {
    match item? {
        BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
        _ => None,
    }
}

fn amount(item: Option<&BareItem>) -> Option<Amount> {
    integer(item)?.to_string().parse().ok()
}

fn seconds(item: Option<&BareItem>) -> Option<Duration> {
    integer(item).map(Duration::from_secs)
}
