//! What is known about a vendor: how its replies are read, how it counts, how its refusals are told apart.

use std::time::Duration;

use serde::Deserialize;
use sluice_core::{Amount, LimitType};

use crate::quota::Quota;

mod check;
mod limit;
mod text;

pub use check::ProfileError;
pub use limit::{Counts, PublishedLimit};

/// What is known about a vendor. Read from TOML (`profiles/*.toml`); each fact names the page that states it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Profile {
    /// The first part of a bucket's name, as in `openai#rpm`.
    pub vendor: String,
    /// Other first parts that mean the same vendor.
    #[serde(default)]
    pub also: Vec<String>,
    /// The hosts of the vendor's API. One that begins with a dot stands for every host that ends with it. A
    /// `*` stands for one or more characters other than a dot, such as a region.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The quotas that the vendor reports in headers, one for each quota and window.
    #[serde(default, rename = "quota")]
    pub quotas: Vec<QuotaHeaders>,
    /// Which tokens of a call count, by model. The first that fits the model holds.
    #[serde(default)]
    pub tokens: Vec<TokenCount>,
    /// What a failed call keeps, if the vendor says.
    pub failed: Option<Failed>,
    /// Shorter windows over which a limit per minute is enforced, if the vendor says.
    pub enforced: Option<Enforced>,
    /// How refusals are told apart: the first rule that fits holds.
    #[serde(default, rename = "refusal")]
    pub refusals: Vec<RefusalRule>,
    /// Limits that the vendor publishes.
    #[serde(default, deserialize_with = "limit::tables")]
    pub limits: Vec<PublishedLimit>,
    /// Whether the headers `RateLimit` and `RateLimit-Policy` of the IETF are read, as for any vendor that
    /// has no headers of its own.
    #[serde(skip)]
    pub reads_standard: bool,
}

/// The headers that report one quota over one window. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QuotaHeaders {
    /// The quota.
    pub kind: Quota,
    /// The most that the vendor allows.
    pub limit: Option<String>,
    /// What is left.
    pub remaining: Option<String>,
    /// Calls at the same time.
    pub in_use: Option<String>,
    /// When the quota is whole again.
    pub reset: Option<String>,
    /// The window of the limit.
    #[serde(default, deserialize_with = "text::window")]
    pub window: Window,
    /// How the vendor says that it does not know a value.
    #[serde(default)]
    pub unknown: Unknown,
    /// The unit to which the vendor rounds what is left, up or down.
    #[serde(default)]
    pub rounded_to: u32,
    /// The page that says so.
    pub source: String,
}

/// The window of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// The vendor documents it.
    Documented(Duration),
    /// The quota flows back evenly, so the window follows from the figures.
    Implied,
    /// Unknown.
    #[default]
    Unknown,
}

/// How a vendor states that a value is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unknown {
    /// By leaving the header out.
    #[default]
    Absent,
    /// Also by -1, and by 0 beside a limit that is unknown.
    MinusOneOrZero,
}

/// Which tokens of a call a vendor counts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TokenCount {
    /// The models that are counted so: those whose name contains one of these. Empty: all models.
    #[serde(default)]
    pub models: Vec<String>,
    /// When the vendor counts.
    pub counted: Counted,
    /// What the vendor takes when the call arrives.
    #[serde(default)]
    pub reserved: Reserved,
    /// The price of a token in tokens of the quota.
    #[serde(default)]
    pub weights: Weights,
    /// The price when the call arrives, if it is another one then.
    pub reserved_weights: Option<Weights>,
    /// The page that says so.
    pub source: String,
}

/// When a vendor counts the tokens of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counted {
    /// When the call arrives, by what it may use. What it does not use does not come back.
    OnArrival,
    /// By what the call uses in the end.
    #[default]
    Used,
}

/// What a vendor takes for a call when it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reserved {
    /// The larger of the input and the most output (`max_tokens`).
    Larger,
    /// The input and the most output.
    #[default]
    Sum,
    /// The input alone.
    Input,
}

/// The price of a token of each kind, in tokens of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Weights {
    /// Input that was not read from the vendor's cache.
    pub input: f64,
    /// Input that was read from the vendor's cache.
    pub cached_input: f64,
    /// Output.
    pub output: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { input: 1.0, cached_input: 1.0, output: 1.0 }
    }
}

/// What a failed call keeps of what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Everything: the vendor counts the call like any other.
    #[serde(rename = "kept")]
    All,
    /// Nothing: the vendor does not count the call, so what it took is given back.
    #[serde(rename = "returned")]
    Nothing,
}

/// What a failed call keeps, by type of bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Failed {
    /// Of the requests that it took.
    pub requests: Kept,
    /// Of the tokens that it took.
    pub tokens: Kept,
    /// The page that says so.
    pub source: String,
}

/// Shorter windows over which a limit per minute is enforced: 60 a minute as 1 a second. A bucket with a
/// large burst may be refused although its minute has room.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Enforced {
    /// The windows.
    #[serde(deserialize_with = "text::spans")]
    pub over: Vec<Duration>,
    /// The page that says so.
    pub source: String,
}

/// A kind of refusal, and how a reply shows it. All conditions that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RefusalRule {
    /// The HTTP status.
    pub status: Option<u16>,
    /// One of the fields in which vendors name the kind of an error equals this.
    pub code: Option<String>,
    /// The message for people contains this, in upper or lower case.
    pub message: Option<String>,
    /// The name of a quota in Google's `QuotaFailure` contains this.
    pub quota: Option<String>,
    /// What the refusal is.
    pub means: Means,
    /// The refusal concerns one project or key alone, not all who share the account.
    #[serde(default)]
    pub alone: bool,
    /// The page that shows it.
    pub source: String,
    /// A body that the rule fits.
    pub example: Option<String>,
}

/// What a refusal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Means {
    /// Too many calls or tokens in a window of time.
    #[default]
    Rate,
    /// Too many calls at the same time.
    Concurrency,
    /// The vendor's own capacity, not a quota of ours.
    Busy,
    /// The allowance of a day, a month or an account is used up, or not paid for.
    Exhausted,
    /// The call alone is larger than the limit.
    TooLarge,
}

impl Profile {
    /// What a failed call keeps of what it took from a bucket of this type. If the vendor does not say, it
    /// keeps its request and returns its tokens. A slot is always given back: the call is over.
    #[must_use]
    pub fn kept_by_failure(&self, limit_type: LimitType) -> Kept {
        match limit_type {
            LimitType::Requests => self.failed.as_ref().map_or(Kept::All, |failed| failed.requests),
            LimitType::Tokens => self.failed.as_ref().map_or(Kept::Nothing, |failed| failed.tokens),
            LimitType::Concurrent => Kept::Nothing,
        }
    }

    /// How the tokens of a call to `model` count. `None` if the vendor does not say: then they count as used.
    #[must_use]
    pub fn tokens_of(&self, model: &str) -> Option<&TokenCount> {
        self.tokens.iter().find(|count| {
            count.models.is_empty() || count.models.iter().any(|part| model.contains(part.as_str()))
        })
    }

    /// Whether the vendor answers at `host`.
    #[must_use]
    pub fn is_at(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.hosts.iter().any(|known| match known.split_once('*') {
            Some((before, after)) => {
                let middle = host.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                middle.is_some_and(|middle| !middle.is_empty() && !middle.contains('.'))
            }
            None if known.starts_with('.') => host.len() > known.len() && host.ends_with(known.as_str()),
            None => known.eq_ignore_ascii_case(&host),
        })
    }

    /// Whether `name` is the first part of the names of the vendor's buckets.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        std::iter::once(&self.vendor).chain(&self.also).any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl QuotaHeaders {
    /// The unit to which what is left is rounded.
    pub(crate) fn unit(&self) -> Amount {
        Amount::from_tokens(i32::try_from(self.rounded_to).unwrap_or(i32::MAX))
    }

    /// All header names of the quota.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.limit, &self.remaining, &self.in_use, &self.reset]
            .into_iter()
            .filter_map(|name| name.as_deref())
    }
}
