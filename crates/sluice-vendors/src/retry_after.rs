//! How long a refusal asks to wait.

use std::time::Duration;

use sluice_core::Timestamp;

use crate::body::Body;
use crate::fault::{HeaderFault, Unreadable};
use crate::headers::Headers;
use crate::reading::text;
use crate::time;

/// The longest wait that is believed: a day, the longest window of the limits on requests and tokens.
///
/// A longer wait counts as unreadable and is not shortened to a day: it is a date in another unit or comes
/// from a wrong clock, and a cool-down stops a whole fleet and cannot be taken back.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// How long a refusal asks to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryAfter {
    /// At least this long, and at most [`MAX_RETRY_AFTER`]. `None` if the reply does not say, which is not
    /// the same as zero.
    pub wait: Option<Duration>,
    /// What was present and could not be read, before the wait was found.
    pub unreadable: Vec<Unreadable>,
}

/// Reads how long a refusal asks to wait, at `now`. The first of these that is present and readable is used:
///
/// 1. `retry-after-ms`, which OpenAI and Azure add for precision
///    (<https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>), and Azure's
///    `x-ms-retry-after-ms`.
/// 2. `retry-after`: seconds, decimals allowed, or an HTTP date (RFC 9110, 10.2.3). A date that has passed is
///    a wait of zero.
/// 3. `retryDelay` of a `google.rpc.RetryInfo` in the body (<https://google.aip.dev/193>), as Gemini writes
///    it.
#[must_use]
pub fn retry_after(headers: &(impl Headers + ?Sized), body: Option<&[u8]>, now: Timestamp) -> RetryAfter {
    wait(headers, Body::parse(body).as_ref(), now)
}

pub(crate) fn wait(headers: &(impl Headers + ?Sized), body: Option<&Body>, now: Timestamp) -> RetryAfter {
    let millis = |text: &str| time::milliseconds(text).ok_or(HeaderFault::NotANumber);
    let seconds_or_date = |text: &str| {
        let date = || time::until_http_date(text, now);
        time::seconds(text).or_else(date).ok_or(HeaderFault::NeitherSecondsNorDate)
    };
    let mut read = RetryAfter::default();
    read.take("retry-after-ms", text(headers, "retry-after-ms"), millis);
    read.take("x-ms-retry-after-ms", text(headers, "x-ms-retry-after-ms"), millis);
    read.take("retry-after", text(headers, "retry-after"), seconds_or_date);
    read.take("retryDelay", Ok(body.and_then(Body::retry_delay)), |text| time::span(text).ok_or(HeaderFault::NotASpan));
    read
}

impl RetryAfter {
    fn take(
        &mut self,
        name: &'static str,
        text: Result<Option<&str>, Unreadable>,
        parse: impl Fn(&str) -> Result<Duration, HeaderFault>,
    ) {
        if self.wait.is_some() {
            return;
        }
        let believed = |wait| if wait <= MAX_RETRY_AFTER { Ok(wait) } else { Err(HeaderFault::TooLong) };
        match text {
            Ok(None) => {}
            Ok(Some(text)) => match parse(text).and_then(believed) {
                Ok(wait) => self.wait = Some(wait),
                Err(fault) => self.unreadable.push(Unreadable { name, fault }),
            },
            Err(unreadable) => self.unreadable.push(unreadable),
        }
    }
}
