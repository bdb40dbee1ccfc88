//! Spans and instants as vendors write them. All rounding is upwards: later, against the caller.

use std::time::{Duration, SystemTime};

use sluice_core::Timestamp;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Units of Go's `time.Duration`, which OpenAI and Groq use. If two units begin alike, the longer one stands
/// first.
const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SEC),
    ("m", 60 * NANOS_PER_SEC),
    ("h", 3_600 * NANOS_PER_SEC),
];

/// `1s`, `6m0s`, `250ms`, `1m30.951s`: numbers with units, added up. No sign.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (tail, unit) = UNITS.iter().find_map(|(name, unit)| Some((tail.strip_prefix(name)?, *unit)))?;
        nanos = nanos.checked_add(times(number, unit)?)?;
        rest = tail;
    }
    if text.is_empty() { None } else { from_nanos(nanos) }
}

/// `2`, `0.5`: seconds.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    from_nanos(times(text, NANOS_PER_SEC)?)
}

/// `250`, `0.5`: milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<Duration> {
    from_nanos(times(text, NANOS_PER_SEC / 1_000)?)
}

/// From `now` until what `text` names: a span (`6m0s`), seconds, a Unix time in seconds or milliseconds, an
/// RFC 3339 instant or an HTTP date. A number above 30 years is a Unix time.
pub(crate) fn until(text: &str, now: Timestamp) -> Option<Duration> {
    until_number(text, now)
        .or_else(|| span(text))
        .or_else(|| until_rfc3339(text, now))
        .or_else(|| until_http_date(text, now))
}

/// From `now` until a bare number: seconds, or a Unix time in seconds or milliseconds.
pub(crate) fn until_number(text: &str, now: Timestamp) -> Option<Duration> {
    const FIRST_UNIX_SECONDS: u64 = 1_000_000_000;
    const FIRST_UNIX_MILLIS: u64 = 100_000_000_000;
    let number = seconds(text)?;
    if number.as_secs() < FIRST_UNIX_SECONDS {
        return Some(number);
    }
    let since_epoch = if number.as_secs() < FIRST_UNIX_MILLIS { number } else { number / 1_000 };
    i64::try_from(since_epoch.as_micros()).ok().map(|micros| Timestamp::from_micros(micros).since(now))
}

/// From `now` to the RFC 3339 instant `text`; zero if that has passed.
fn until_rfc3339(text: &str, now: Timestamp) -> Option<Duration> {
    let (utc, east_micros) = split_offset(text)?;
    let local = instant(humantime::parse_rfc3339(&utc).ok()?)?;
    Some(Timestamp::from_micros(local.micros().saturating_sub(east_micros)).since(now))
}

/// From `now` to an HTTP date (RFC 9110, 5.6.7, in any of its three forms); zero if that has passed.
pub(crate) fn until_http_date(text: &str, now: Timestamp) -> Option<Duration> {
    Some(instant(httpdate::parse_http_date(text).ok()?)?.since(now))
}

/// Splits `2026-01-31T12:00:00+02:00` into `2026-01-31T12:00:00Z` and the time by which that is ahead of UTC.
/// `humantime` reads only UTC, and a reply that was written by another program than the vendor's, such as a
/// proxy or a test, may have `+00:00`.
fn split_offset(text: &str) -> Option<(String, i64)> {
    let Some((local, sign @ ("+" | "-"), offset)) = parts(text) else { return Some((text.to_owned(), 0)) };
    let (hours, minutes) = offset.split_once(':')?;
    let two_digits = |part: &str| if part.len() == 2 { part.parse::<u8>().ok() } else { None };
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let micros = (i64::from(hours) * 60 + i64::from(minutes)) * 60_000_000;
    Some((format!("{local}Z"), if sign == "-" { -micros } else { micros }))
}

/// Local time, sign and offset, if the end of the text has the length and sign of an offset.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    const OFFSET_LEN: usize = "+00:00".len();
    let at = text.len().checked_sub(OFFSET_LEN)?;
    let (local, end) = (text.get(..at)?, text.get(at..)?);
    Some((local, end.get(..1)?, end.get(1..)?))
}

fn instant(at: SystemTime) -> Option<Timestamp> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp::from_micros)
}

/// A decimal times `unit`, rounded up; `None` if `number` is not a decimal or the result is out of range.
fn times(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let parse = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let below = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = parse(fraction)?.checked_mul(unit)?.div_ceil(below);
    parse(whole)?.checked_mul(unit)?.checked_add(part)
}

fn from_nanos(nanos: u128) -> Option<Duration> {
    let secs = u64::try_from(nanos / NANOS_PER_SEC).ok()?;
    Some(Duration::new(secs, u32::try_from(nanos % NANOS_PER_SEC).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read_as_go_writes_them() {
        let millis = |text: &str| span(text).map(|span| span.as_millis());
        assert_eq!(millis("1s"), Some(1_000));
        assert_eq!(millis("6m0s"), Some(360_000));
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("1m30.951s"), Some(90_951));
        assert_eq!(millis("1h2m3s"), Some(3_723_000));
        assert_eq!(millis("2m59.56s"), Some(179_560));
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(span("1.5us"), Some(Duration::from_nanos(1_500)));
        assert_eq!(span("3\u{b5}s"), span("3\u{3bc}s"));
        assert_eq!(span("0.1ns"), Some(Duration::from_nanos(1)), "later, not sooner");
        for text in
            ["", "s", "1", "60", "-1s", "+1s", "1s ", "1d", "1 s", "1.2.3s", ".s", "1sm", "1S", "\u{661}s"]
        {
            assert_eq!(span(text), None, "{text:?}");
        }
        for text in
            ["99999999999999999999h", "9999999999999999999999999999999999999999s", "18446744073709551616s"]
        {
            assert_eq!(span(text), None, "{text:?}");
        }
    }

    #[test]
    fn seconds_may_be_decimals_and_round_up() {
        assert_eq!(seconds("2"), Some(Duration::from_secs(2)));
        assert_eq!(seconds("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("5."), Some(Duration::from_secs(5)));
        assert_eq!(seconds("0.0000000001"), Some(Duration::from_nanos(1)));
        assert_eq!(milliseconds("1500.5"), Some(Duration::from_micros(1_500_500)));
        for text in ["", ".", "-1", "+1", "1e3", "NaN", "inf", "1,5", " 1", "0x10"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_instant_is_a_wait_from_now_and_a_past_one_is_none() {
        let now = Timestamp::from_secs(1_706_702_400); // 2024-01-31T12:00:00Z
        let until = |text: &str| until_rfc3339(text, now);
        assert_eq!(until("2024-01-31T12:00:30Z"), Some(Duration::from_secs(30)));
        assert_eq!(until("2024-01-31T12:00:00.25Z"), Some(Duration::from_millis(250)));
        assert_eq!(until("2024-01-31T11:59:59Z"), Some(Duration::ZERO));
        assert_eq!(until("2024-01-31T12:00:30+00:00"), Some(Duration::from_secs(30)));
        assert_eq!(until("2024-01-31T14:00:30+02:00"), Some(Duration::from_secs(30)));
        assert_eq!(until("2024-01-31T08:30:30-03:30"), Some(Duration::from_secs(30)));
        for text in
            ["", "2024-01-31", "2024-01-31T12:00:30", "2024-02-31T12:00:30Z", "1706702430", "12:00:30+24:00"]
        {
            assert_eq!(until(text), None, "{text:?}");
        }
        assert_eq!(until_http_date("Wed, 31 Jan 2024 12:00:30 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(until_http_date("Wed Jan 31 12:00:30 2024", now), Some(Duration::from_secs(30)));
        assert_eq!(until_http_date("Wed, 31 Jan 2024 11:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(until_http_date("tomorrow", now), None);
    }

    #[test]
    fn the_form_of_a_reset_is_told_by_its_text() {
        let now = Timestamp::from_secs(1_706_702_400); // 2024-01-31T12:00:00Z
        let thirty = [
            "30",
            "30s",
            "30.0",
            "1706702430",
            "1706702430000",
            "2024-01-31T12:00:30Z",
            "Wed, 31 Jan 2024 12:00:30 GMT",
        ];
        for text in thirty {
            assert_eq!(until(text, now), Some(Duration::from_secs(30)), "{text:?}");
        }
        assert_eq!(until("1706702399", now), Some(Duration::ZERO), "it has passed");
        assert_eq!(until("soon", now), None);
    }

    proptest! {
        #[test]
        fn what_go_would_write_reads_back(hours in 0_u64..1_000_000, minutes in 0_u64..60, nanos in 0_u64..60_000_000_000) {
            let whole = Duration::from_nanos(nanos) + Duration::from_secs(hours * 3_600 + minutes * 60);
            let text = format!("{hours}h{minutes}m{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000);
            prop_assert_eq!(span(&text), Some(whole), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,50}", micros: i64) {
            let now = Timestamp::from_micros(micros);
            let _ = (span(&text), seconds(&text), milliseconds(&text));
            let _ = until(&text, now);
        }

        #[test]
        fn no_number_like_text_panics(text in "[0-9.:TZGM+hmsnu -]{0,60}", micros: i64) {
            let now = Timestamp::from_micros(micros);
            let _ = (span(&text), seconds(&text), milliseconds(&text));
            let _ = until(&text, now);
        }
    }
}
