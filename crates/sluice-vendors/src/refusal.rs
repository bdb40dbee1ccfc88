//! Classifies refusals.

use std::time::Duration;

use sluice_core::Timestamp;

use crate::body::Body;
use crate::headers::{HeaderList, Headers};
use crate::profile::{Means, Profile, RefusalRule};
use crate::quota::Quota;
use crate::{reading, retry_after};

/// A refusal because of load, and how to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VendorRefusal {
    /// Too many calls or tokens in a window of time: the vendor has less than the bucket says.
    Rate {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// Too many calls at the same time: wait in the queue, because a call that ends makes room.
    Concurrency {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// The vendor is overloaded, but not because of this quota: back off.
    SystemBusy {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// The allowance of a day, a month or the account is used up, or not paid for: a wait of minutes does not
    /// help.
    QuotaExhausted {
        /// How long the vendor asks to wait, if it says. Some say seconds, after which the quota is still
        /// used up.
        retry_after: Option<Duration>,
        /// It concerns one project or key alone, not all who share the account.
        alone: bool,
    },
    /// The call alone is larger than the limit: no wait helps, and the vendor has no less than the bucket
    /// says.
    TooLarge,
}

impl VendorRefusal {
    /// How long the vendor asks to wait, if it says.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after }
            | Self::Concurrency { retry_after }
            | Self::SystemBusy { retry_after }
            | Self::QuotaExhausted { retry_after, .. } => *retry_after,
            Self::TooLarge => None,
        }
    }
}

/// Classifies the refusal in a reply, at `now`. `None` if the reply is not a refusal because of load.
///
/// [`retry_after()`](crate::retry_after()) returns what could not be read of a `Retry-After`.
#[must_use]
pub fn classify(
    profile: &Profile,
    status: u16,
    headers: &(impl Headers + ?Sized),
    body: Option<&[u8]>,
    now: Timestamp,
) -> Option<VendorRefusal> {
    if status < 400 {
        return None;
    }
    let headers = HeaderList::of(headers);
    let refused =
        Refused { status: Some(status), body: Body::parse(body), type_header: type_header(&headers) };
    let retry_after = retry_after::wait(&headers, refused.body.as_ref(), now).wait;
    match refused.rule(profile) {
        Some(rule) => Some(meaning(rule.means, retry_after, rule.alone)),
        None => by_status(status).map(|means| meaning(means, retry_after, false)),
    }
}

/// Classifies an error in a reply that began with a status of success, at `now`: an event of a stream, or an
/// object with an `error`. `None` if `event` is no error, or not a refusal because of load.
#[must_use]
pub fn classify_event(profile: &Profile, event: &[u8], now: Timestamp) -> Option<VendorRefusal> {
    let body = Body::parse(Some(event)).filter(Body::is_error)?;
    // OpenRouter writes the status that the error would have had
    // (https://openrouter.ai/docs/api-reference/errors).
    let status = body.status();
    let refused = Refused { status, body: Some(body), type_header: None };
    let no_headers = HeaderList::of(&[] as &[(&str, &str)]);
    let retry_after = retry_after::wait(&no_headers, refused.body.as_ref(), now).wait;
    match refused.rule(profile) {
        Some(rule) => Some(meaning(rule.means, retry_after, rule.alone)),
        None => status.and_then(by_status).map(|means| meaning(means, retry_after, false)),
    }
}

/// The quota that the body of a refusal names: OpenAI's and Groq's type (`tokens`, `requests`), or words of
/// the message ("output tokens per minute", "on requests per min (RPM)"). `None` if it names none.
#[must_use]
pub fn refused_quota(body: Option<&[u8]>) -> Option<Quota> {
    const WORDS: &[(&str, Quota)] = &[
        ("output tokens per", Quota::OutputTokens),
        ("input tokens per", Quota::InputTokens),
        ("tokens per", Quota::Tokens),
        ("requests per", Quota::Requests),
    ];
    let body = Body::parse(body)?;
    let of_type = [("tokens", Quota::Tokens), ("requests", Quota::Requests)]
        .into_iter()
        .find(|(code, _)| body.has_code(code));
    of_type.or_else(|| WORDS.iter().copied().find(|(words, _)| body.says(words))).map(|(_, quota)| quota)
}

/// The parts of a refusal that rules compare.
struct Refused<'a> {
    /// `None` for an error inside a stream.
    status: Option<u16>,
    body: Option<Body>,
    type_header: Option<&'a str>,
}

impl Refused<'_> {
    fn rule<'p>(&self, profile: &'p Profile) -> Option<&'p RefusalRule> {
        profile.refusals.iter().find(|rule| self.fits(rule))
    }

    fn fits(&self, rule: &RefusalRule) -> bool {
        let has_status = |status| self.status.is_none_or(|own| own == status);
        let has_code =
            |code: &str| self.type_header == Some(code) || self.body.iter().any(|body| body.has_code(code));
        let says = |words: &str| self.body.iter().any(|body| body.says(words));
        let names = |quota: &str| {
            self.body.iter().flat_map(Body::used_up_quotas).any(|used_up| used_up.contains(quota))
        };
        // A status alone says nothing about an event.
        let is_of_status = rule.code.is_none() && rule.message.is_none() && rule.quota.is_none();
        (self.status.is_some() || !is_of_status)
            && rule.status.is_none_or(has_status)
            && rule.code.as_deref().is_none_or(has_code)
            && rule.message.as_deref().is_none_or(says)
            && rule.quota.as_deref().is_none_or(names)
    }
}

/// Amazon names the kind of an error in a header, before a colon.
fn type_header<'a>(headers: &HeaderList<'a>) -> Option<&'a str> {
    let text = reading::text(headers.values("x-amzn-errortype").next()?).ok()?;
    text.split(':').next()
}

fn by_status(status: u16) -> Option<Means> {
    match status {
        429 => Some(Means::Rate),
        // 503: overload or maintenance, for a while (RFC 9110, 15.6.4). 529: Anthropic's, for overload.
        503 | 529 => Some(Means::Busy),
        _ => None,
    }
}

const fn meaning(means: Means, retry_after: Option<Duration>, alone: bool) -> VendorRefusal {
    match means {
        Means::Rate => VendorRefusal::Rate { retry_after },
        Means::Concurrency => VendorRefusal::Concurrency { retry_after },
        Means::Busy => VendorRefusal::SystemBusy { retry_after },
        Means::Exhausted => VendorRefusal::QuotaExhausted { retry_after, alone },
        Means::TooLarge => VendorRefusal::TooLarge,
    }
}
