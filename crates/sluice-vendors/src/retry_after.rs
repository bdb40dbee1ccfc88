//! How long a refusal asks to wait.

use std::time::Duration;

use sluice_core::Timestamp;

use crate::body::Body;
use crate::fault::{HeaderFault, Unreadable};
use crate::headers::{HeaderList, Headers};
use crate::{reading, time};

mod message;

/// The longest wait that is returned: 31 days, the longest window of a quota. A longer one counts as this
/// long, and is reported as [`HeaderFault::TooLong`]: it is a date in another unit or comes from a wrong
/// clock.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(31 * 86_400);

/// How long a refusal asks to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryAfter {
    /// At least this long, and at most [`MAX_RETRY_AFTER`]. `None` if the reply does not say, which is not
    /// the same as zero.
    pub wait: Option<Duration>,
    /// What was present and could not be read, before the wait was found.
    pub unreadable: Vec<Unreadable>,
}

/// Reads how long a refusal asks to wait, at `now`. The first of these that is present and readable is used;
/// of a header that is there several times, the longest wait:
///
/// 1. `retry-after-ms`, which OpenAI and Azure add for precision
///    (<https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>), and Azure's
///    `x-ms-retry-after-ms`.
/// 2. `retry-after`: seconds, decimals allowed, or an HTTP date (RFC 9110, 10.2.3). A date that has passed is
///    a wait of zero. A number above 30 years is a Unix time.
/// 3. `x-rate-limit-reset-tokens`, which Azure sends in place of `retry-after`
///    (<https://github.com/openai/openai-python/issues/937>).
/// 4. `retryDelay` of a `google.rpc.RetryInfo` in the body (<https://google.aip.dev/193>), as Gemini writes
///    it.
/// 5. `X-RateLimit-Reset` in the body, as OpenRouter repeats it there
///    (<https://github.com/Gitlawb/openclaude/issues/936>).
/// 6. The message: "Please retry in 34.07s", "Please try again in 6ms", "please try again after 1 seconds".
#[must_use]
pub fn retry_after(headers: &(impl Headers + ?Sized), body: Option<&[u8]>, now: Timestamp) -> RetryAfter {
    wait(&HeaderList::of(headers), Body::parse(body).as_ref(), now)
}

/// Whether the vendor says that the same call is worth another try: `x-should-retry`
/// (<https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>). `None` if it does not
/// say.
#[must_use]
pub fn should_retry(headers: &(impl Headers + ?Sized)) -> Option<bool> {
    let headers = HeaderList::of(headers);
    let mut said =
        headers.values("x-should-retry").filter_map(|value| reading::text(value).ok()?.parse::<bool>().ok());
    let first = said.next()?;
    Some(said.fold(first, |all, said| all && said))
}

pub(crate) fn wait(headers: &HeaderList<'_>, body: Option<&Body>, now: Timestamp) -> RetryAfter {
    let millis = |text: &str| time::milliseconds(text).ok_or(HeaderFault::NotANumber);
    let seconds_or_date = |text: &str| {
        let date = || time::until_http_date(text, now);
        time::until_number(text, now).or_else(date).ok_or(HeaderFault::NeitherSecondsNorDate)
    };
    let mut read = RetryAfter::default();
    read.header(headers, "retry-after-ms", millis);
    read.header(headers, "x-ms-retry-after-ms", millis);
    read.header(headers, "retry-after", seconds_or_date);
    read.header(headers, "x-rate-limit-reset-tokens", seconds_or_date);
    let delay = body.and_then(Body::retry_delay);
    read.take("retryDelay", delay.map(|text| time::span(text).ok_or(HeaderFault::NotASpan)));
    let reset = body.and_then(Body::reset);
    read.take("X-RateLimit-Reset", reset.map(|text| time::until(text, now).ok_or(HeaderFault::NotAReset)));
    let told = body.and_then(Body::message).and_then(message::wait);
    read.take("message", told.map(Ok));
    read
}

impl RetryAfter {
    fn header(
        &mut self,
        headers: &HeaderList<'_>,
        name: &str,
        parse: impl Fn(&str) -> Result<Duration, HeaderFault>,
    ) {
        let all: Result<Vec<Duration>, _> =
            headers.values(name).map(|value| reading::text(value).and_then(&parse)).collect();
        self.take(name, all.map(|all| all.into_iter().max()).transpose());
    }

    fn take(&mut self, name: &str, wait: Option<Result<Duration, HeaderFault>>) {
        let fault = match wait.filter(|_| self.wait.is_none()) {
            None => return,
            Some(Ok(wait)) => {
                self.wait = Some(wait.min(MAX_RETRY_AFTER));
                (wait > MAX_RETRY_AFTER).then_some(HeaderFault::TooLong)
            }
            Some(Err(fault)) => Some(fault),
        };
        self.unreadable.extend(fault.map(|fault| Unreadable { name: name.to_owned(), fault }));
    }
}
