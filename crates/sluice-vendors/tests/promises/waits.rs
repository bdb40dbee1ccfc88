//! `Retry-After` in all its forms: RFC 9110, 10.2.3; milliseconds as
//! <https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py> reads them.

use std::time::Duration;

use sluice_vendors::{HeaderFault, MAX_RETRY_AFTER, RetryAfter, retry_after, should_retry};

use crate::said::{NOW, headers, millis, secs};

fn of(lines: &str) -> RetryAfter {
    retry_after(&headers(lines), None, NOW)
}

fn fault(lines: &str) -> HeaderFault {
    let read = of(lines);
    assert_eq!(read.wait, None, "{lines}");
    read.unreadable[0].fault
}

#[test]
fn seconds_decimals_milliseconds_and_dates_are_read() {
    assert_eq!(of("Retry-After: 56").wait, secs(56));
    assert_eq!(of("retry-after: 0").wait, secs(0));
    assert_eq!(of("retry-after: 3.5").wait, millis(3_500));
    assert_eq!(of("retry-after-ms: 250").wait, millis(250));
    assert_eq!(of("retry-after-ms: 0.5").wait, Some(Duration::from_micros(500)));
    assert_eq!(of("x-ms-retry-after-ms: 100").wait, millis(100));
    assert_eq!(of("retry-after: Thu, 21 Aug 2025 12:41:25 GMT").wait, secs(30));
    assert_eq!(of("retry-after: Thursday, 21-Aug-25 12:41:25 GMT").wait, secs(30));
    assert_eq!(
        of("retry-after: Thu, 21 Aug 2025 12:00:00 GMT").wait,
        secs(0),
        "a date that has passed is no wait"
    );
}

#[test]
fn milliseconds_go_before_seconds_and_what_cannot_be_read_before_neither() {
    assert_eq!(of("retry-after: 56\nretry-after-ms: 55210").wait, millis(55_210));
    let read = of("retry-after: 56\nretry-after-ms: soon");
    assert_eq!((read.wait, read.unreadable.len()), (secs(56), 1));
}

#[test]
fn absent_is_not_zero() {
    assert_eq!(of(""), RetryAfter::default());
    assert_eq!(of("content-type: text/html").wait, None);
}

#[test]
fn nonsense_is_told_and_is_no_wait() {
    for value in
        ["soon", "-1", "+1", "1e3", "NaN", "infinity", "", "1 2", "2025-08-21T12:41:25Z", "Thu, 99 Aug 2025"]
    {
        assert_eq!(fault(&format!("retry-after: {value}")), HeaderFault::NeitherSecondsNorDate, "{value:?}");
    }
    assert_eq!(fault("retry-after-ms: 1s"), HeaderFault::NotANumber);
    let bytes = [("retry-after", &b"\xff\xfe"[..])];
    assert_eq!(retry_after(&bytes, None, NOW).unreadable[0].fault, HeaderFault::NotText);
}

#[test]
fn a_wait_above_a_day_is_heard_and_one_above_a_month_is_cut_and_told() {
    assert_eq!(of("retry-after: 86400").wait, secs(86_400));
    assert_eq!(of("retry-after: 604800").wait, secs(604_800));
    for lines in
        ["retry-after: 31536000", "retry-after-ms: 31536000000", "retry-after: Fri, 21 Aug 2026 12:41:25 GMT"]
    {
        let read = of(lines);
        assert_eq!(read.wait, Some(MAX_RETRY_AFTER), "{lines}");
        assert_eq!(read.unreadable[0].fault, HeaderFault::TooLong, "{lines}");
    }
    assert_eq!(
        fault("retry-after: 99999999999999999999999999999999999999999999"),
        HeaderFault::NeitherSecondsNorDate
    );
    assert_eq!(fault(&format!("retry-after: {}", "0".repeat(200))), HeaderFault::TooLong);
}

#[test]
fn a_unix_time_is_read_as_what_it_is() {
    assert_eq!(of("retry-after: 1755780085").wait, secs(30));
    assert_eq!(of("retry-after: 1755780085000").wait, secs(30));
}

#[test]
fn of_a_header_that_is_there_twice_the_longest_wait_counts() {
    assert_eq!(of("retry-after: 1\nretry-after: 30\nretry-after: 2").wait, secs(30));
}

#[test]
fn a_wait_in_the_message_is_read_if_nothing_else_names_one() {
    let body = br#"{"error": {"message": "Quota exceeded. Please retry in 34.07s."}}"#;
    assert_eq!(retry_after(&headers(""), Some(body), NOW).wait, millis(34_070));
    assert_eq!(retry_after(&headers("retry-after: 2"), Some(body), NOW).wait, secs(2));
    assert_eq!(retry_after(&headers(""), Some(b"Slow down: try again in 3 seconds"), NOW).wait, secs(3));
}

/// <https://github.com/openai/openai-python/issues/937>.
#[test]
fn azures_own_header_stands_for_the_retry_after_that_is_missing() {
    assert_eq!(of("x-rate-limit-reset-tokens: 55").wait, secs(55));
    assert_eq!(of("retry-after: 7\nx-rate-limit-reset-tokens: 55").wait, secs(7));
}

/// The metadata of <https://github.com/Gitlawb/openclaude/issues/936>, with a reset in milliseconds of Unix
/// time.
#[test]
fn a_reset_that_the_body_repeats_is_read() {
    let body =
        br#"{"error": {"message": "Rate limit exceeded: free-models-per-min.", "code": 429, "metadata": {"headers":
        {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1755780085000"}}}}"#;
    assert_eq!(retry_after(&headers(""), Some(body), NOW).wait, secs(30));
    assert_eq!(retry_after(&headers("retry-after: 2"), Some(body), NOW).wait, secs(2));
    let bad = br#"{"error": {"metadata": {"headers": {"X-RateLimit-Reset": "soon"}}}}"#;
    let read = retry_after(&headers(""), Some(bad), NOW);
    assert_eq!((read.wait, read.unreadable[0].fault), (None, HeaderFault::NotAReset));
}

#[test]
fn a_vendor_may_say_that_another_try_is_of_no_use() {
    assert_eq!(should_retry(&headers("X-Should-Retry: false")), Some(false));
    assert_eq!(should_retry(&headers("x-should-retry: true")), Some(true));
    assert_eq!(should_retry(&headers("x-should-retry: true\nx-should-retry: false")), Some(false));
    assert_eq!(should_retry(&headers("x-should-retry: perhaps")), None);
    assert_eq!(should_retry(&headers("")), None);
}
