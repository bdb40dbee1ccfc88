//! Reads the headers of a reply.

use std::time::Duration;

use sluice_core::{Amount, Timestamp};

use crate::fault::{HeaderFault, Unreadable};
use crate::headers::Headers;
use crate::names::{self, Form, HeaderNames, Unknown, Window};
use crate::quota::Quota;
use crate::reported::Reported;
use crate::time;
use crate::vendor::Vendor;

mod window;

/// What could be read about one quota, and what could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderReading {
    /// What the reply said. A header that could not be read leaves its field `None`.
    pub reported: Reported,
    /// The headers that were present and could not be read: at most one for each field, and, if the vendor is
    /// unknown, one for each family.
    pub unreadable: Vec<Unreadable>,
}

/// The longest reset that is believed: no quota of a vendor here is longer than a month.
const MAX_RESET: Duration = Duration::from_secs(31 * 86_400);

/// The longest value that is parsed, in bytes: values of vendors have at most 40.
const MAX_VALUE_LEN: usize = 128;

/// Reads what a reply says about `quota`, at `now`. If the headers are another vendor's, or absent, every
/// field is `None`.
#[must_use]
pub fn read(vendor: Vendor, quota: Quota, headers: &(impl Headers + ?Sized), now: Timestamp) -> HeaderReading {
    let mut reading = HeaderReading::default();
    for names in names::of(vendor, quota) {
        reading.reported = HeaderReader { headers, now, unreadable: &mut reading.unreadable }.family(names);
        if !reading.reported.is_empty() {
            break;
        }
    }
    reading
}

/// The text of a header, without the white space around it.
pub(crate) fn text<'a>(
    headers: &'a (impl Headers + ?Sized),
    name: &'static str,
) -> Result<Option<&'a str>, Unreadable> {
    let Some(bytes) = headers.header(name) else { return Ok(None) };
    let fault = |fault| Unreadable { name, fault };
    if bytes.len() > MAX_VALUE_LEN {
        return Err(fault(HeaderFault::TooLong));
    }
    std::str::from_utf8(bytes).map(|text| Some(text.trim())).map_err(|_| fault(HeaderFault::NotText))
}

struct HeaderReader<'a, H: ?Sized> {
    headers: &'a H,
    now: Timestamp,
    unreadable: &'a mut Vec<Unreadable>,
}

impl<H: Headers + ?Sized> HeaderReader<'_, H> {
    fn family(&mut self, names: &HeaderNames) -> Reported {
        let limit = names.limit.and_then(|name| self.amount(name, names.unknown));
        let remaining = names.remaining.and_then(|name| self.amount(name, names.unknown));
        let in_use = names.in_use.and_then(|name| self.amount(name, names.unknown));
        let reset = names.reset.and_then(|(name, form)| self.reset(name, form));
        let reported = known(Reported { limit, remaining, in_use, reset, window: None }, names.unknown);
        Reported { window: window_of(&reported, names.window), ..reported }
    }

    fn amount(&mut self, name: &'static str, unknown: Unknown) -> Option<Amount> {
        self.field(name, |text| {
            let amount: Amount = text.parse().map_err(|_| HeaderFault::NotANumber)?;
            match (amount >= Amount::ZERO, unknown) {
                (true, _) => Ok(Some(amount)),
                (false, Unknown::MinusOneOrZero) if amount == Amount::from_tokens(-1) => Ok(None),
                (false, _) => Err(HeaderFault::Negative),
            }
        })
    }

    fn reset(&mut self, name: &'static str, form: Form) -> Option<Duration> {
        let now = self.now;
        self.field(name, |text| {
            let reset = match form {
                Form::Span => time::span(text).ok_or(HeaderFault::NotASpan)?,
                Form::SpanOrSeconds => time::seconds(text).or_else(|| time::span(text)).ok_or(HeaderFault::NotASpan)?,
                Form::Instant => time::until_rfc3339(text, now).ok_or(HeaderFault::NotAnInstant)?,
            };
            if reset <= MAX_RESET { Ok(Some(reset)) } else { Err(HeaderFault::TooLong) }
        })
    }

    /// The value of a header. If the value cannot be read, that is recorded, and the result is `None`.
    fn field<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<Option<T>, HeaderFault>) -> Option<T> {
        let read = text(self.headers, name)
            .and_then(|text| text.map_or(Ok(None), |text| parse(text).map_err(|fault| Unreadable { name, fault })));
        read.unwrap_or_else(|unreadable| {
            self.unreadable.push(unreadable);
            None
        })
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
        in_use: reported.in_use,
        reset: reported.reset.filter(|reset| !doubt || !reset.is_zero()),
        window: None,
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
