//! Reads the headers of a reply.

use std::time::Duration;

use sluice_core::{Amount, Timestamp};

use crate::fault::{HeaderFault, Unreadable};
use crate::headers::{HeaderList, Headers};
use crate::profile::{Profile, QuotaHeaders, Unknown, Window};
use crate::quota::Quota;
use crate::reported::Reported;
use crate::time;

mod standard;
mod window;

/// What could be read about one quota, and what could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderReading {
    /// What the reply said, for each window or family of headers that it has. A header that could not be read
    /// leaves its field `None`.
    pub reported: Vec<Reported>,
    /// The headers that were present and could not be read: at most one for each field of each family.
    pub unreadable: Vec<Unreadable>,
}

/// The longest reset that is believed: no quota of a vendor here is longer than a month.
const MAX_RESET: Duration = Duration::from_secs(31 * 86_400);

/// The longest value that is parsed, in bytes: values of vendors have at most 40.
const MAX_VALUE_LEN: usize = 128;

/// Reads what a reply says about `quota`, at `now`. Empty if the headers are another vendor's, or absent. Of
/// a header that is there several times, the strictest value counts.
#[must_use]
pub fn read(
    profile: &Profile,
    quota: Quota,
    headers: &(impl Headers + ?Sized),
    now: Timestamp,
) -> HeaderReading {
    let headers = HeaderList::of(headers);
    let mut reading = HeaderReading::default();
    let mut reader = HeaderReader { headers: &headers, now, unreadable: &mut reading.unreadable };
    let families = profile.quotas.iter().filter(|names| names.kind == quota);
    let mut reported: Vec<Reported> = families.map(|names| reader.family(names)).collect();
    if profile.reads_standard {
        let policies = standard::policies(&headers);
        reported.extend(standard::read(&headers, quota, &policies));
        reported.iter_mut().for_each(|reported| standard::complete(reported, quota, &policies));
    }
    reported.retain(|reported| !reported.is_empty());
    HeaderReading { reported, ..reading }
}

/// The name of a header that seems to report a limit, of a reply in which no header is one that `profile`
/// reads. Such a reply says something that is not understood.
#[must_use]
pub fn unknown_header<'a>(profile: &Profile, headers: &'a (impl Headers + ?Sized)) -> Option<&'a str> {
    let headers = HeaderList::of(headers);
    let mut known = profile.quotas.iter().flat_map(QuotaHeaders::names);
    if known.any(|name| headers.has(name)) || (profile.reads_standard && headers.has(standard::LIMITS)) {
        return None;
    }
    let is_of_limits = |name: &&str| {
        let name = name.to_ascii_lowercase();
        name.contains("ratelimit") || name.contains("rate-limit")
    };
    headers.names().find(is_of_limits)
}

/// A header value as text, without the white space around it.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, HeaderFault> {
    if bytes.len() > MAX_VALUE_LEN {
        return Err(HeaderFault::TooLong);
    }
    std::str::from_utf8(bytes).map(str::trim).map_err(|_| HeaderFault::NotText)
}

struct HeaderReader<'a, 'h> {
    headers: &'a HeaderList<'h>,
    now: Timestamp,
    unreadable: &'a mut Vec<Unreadable>,
}

impl HeaderReader<'_, '_> {
    fn family(&mut self, names: &QuotaHeaders) -> Reported {
        let limit = self.amount(names.limit.as_deref(), names.unknown, Amount::min);
        let remaining = self.amount(names.remaining.as_deref(), names.unknown, Amount::min);
        let in_use = self.amount(names.in_use.as_deref(), names.unknown, Amount::max);
        let reset = self.reset(names.reset.as_deref());
        let reported = Reported { limit, remaining, in_use, reset, window: None, rounded_to: names.unit() };
        let reported = known(reported, names.unknown);
        Reported { window: window_of(&reported, names.window), ..reported }
    }

    /// An amount. Several values may stand in one header, with commas between them, and each may have
    /// parameters after a semicolon.
    fn amount(
        &mut self,
        name: Option<&str>,
        unknown: Unknown,
        strictest: fn(Amount, Amount) -> Amount,
    ) -> Option<Amount> {
        let parse = |text: &str| {
            let mut all = None;
            for text in text.split(',') {
                let text = text.split(';').next().unwrap_or_default().trim();
                let amount: Amount = text.parse().map_err(|_| HeaderFault::NotANumber)?;
                match (amount >= Amount::ZERO, unknown) {
                    (true, _) => all = Some(all.map_or(amount, |all| strictest(all, amount))),
                    (false, Unknown::MinusOneOrZero) if amount == Amount::from_tokens(-1) => {}
                    (false, _) => return Err(HeaderFault::Negative),
                }
            }
            Ok(all)
        };
        self.field(name, parse, strictest)
    }

    fn reset(&mut self, name: Option<&str>) -> Option<Duration> {
        let now = self.now;
        let parse = |text: &str| match time::until(text, now) {
            None => Err(HeaderFault::NotAReset),
            Some(reset) if reset > MAX_RESET => Err(HeaderFault::TooLong),
            Some(reset) => Ok(Some(reset)),
        };
        self.field(name, parse, Duration::max)
    }

    /// The strictest value of a header. If a value cannot be read, that is recorded, and the result is
    /// `None`.
    fn field<T>(
        &mut self,
        name: Option<&str>,
        parse: impl Fn(&str) -> Result<Option<T>, HeaderFault>,
        strictest: fn(T, T) -> T,
    ) -> Option<T> {
        let name = name?;
        let mut all = None;
        for value in self.headers.values(name) {
            match text(value).and_then(&parse) {
                Ok(Some(value)) => {
                    all = Some(if let Some(all) = all { strictest(all, value) } else { value })
                }
                Ok(None) => {}
                Err(fault) => {
                    self.unreadable.push(Unreadable { name: name.to_owned(), fault });
                    return None;
                }
            }
        }
        all
    }
}

/// Removes the zeros that mean "unknown": a limit of 0, and any 0 beside an unknown limit.
///
/// If a remainder of 0 is believed wrongly, every reply holds the bucket at zero. If it is doubted wrongly,
/// the cost is a refusal, which is handled anyway.
fn known(reported: Reported, unknown: Unknown) -> Reported {
    if unknown == Unknown::Absent {
        return reported;
    }
    let limit = reported.limit.filter(|limit| *limit > Amount::ZERO);
    let doubt = limit.is_none();
    Reported {
        limit,
        remaining: reported.remaining.filter(|left| !doubt || *left > Amount::ZERO),
        reset: reported.reset.filter(|reset| !doubt || !reset.is_zero()),
        ..reported
    }
}

fn window_of(reported: &Reported, window: Window) -> Option<Duration> {
    match window {
        _ if reported.limit.is_none() && reported.remaining.is_none() => None,
        Window::Documented(window) => Some(window),
        Window::Implied => window::implied(reported),
        Window::Unknown => None,
    }
}
