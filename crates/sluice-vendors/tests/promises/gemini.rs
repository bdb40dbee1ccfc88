//! <https://ai.google.dev/gemini-api/docs/rate-limits>, errors as <https://google.aip.dev/193> has them.

use sluice_vendors::{HeaderFault, Quota, VendorRefusal, retry_after};

use crate::said::{NOW, headers, millis, refusal, reported, secs};

/// The body of a 429, the quota and the delay as given.
fn body(quota: &str, delay: &str) -> String {
    format!(
        r#"{{"error": {{"code": 429, "message": "You exceeded your current quota, please check your plan and billing details.",
        "status": "RESOURCE_EXHAUSTED", "details": [
          {{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "{quota}", "quotaDimensions": {{"location": "global", "model": "gemini-2.5-flash"}},
            "quotaValue": "10"}}]}},
          {{"@type": "type.googleapis.com/google.rpc.Help", "links": [{{"description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits"}}]}},
          {{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{delay}"}}]}}}}"#
    )
}

const A_MINUTES: &str = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier";
const A_DAYS: &str = "GenerateRequestsPerDayPerProjectPerModel-FreeTier";

#[test]
fn the_delay_is_in_the_body() {
    let limited = |body: &str| refusal("gemini", 429, "", body);
    assert_eq!(limited(&body(A_MINUTES, "34s")), Some(VendorRefusal::Rate { retry_after: secs(34) }));
    assert_eq!(limited(&body(A_MINUTES, "0.1s")), Some(VendorRefusal::Rate { retry_after: millis(100) }));
    assert_eq!(limited(&body(A_MINUTES, "900ms")), Some(VendorRefusal::Rate { retry_after: millis(900) }));
    assert_eq!(limited(&body(A_MINUTES, "0s")), Some(VendorRefusal::Rate { retry_after: secs(0) }));
    let in_a_list = format!("[{}]", body(A_MINUTES, "34s"));
    assert_eq!(
        limited(&in_a_list),
        Some(VendorRefusal::Rate { retry_after: secs(34) }),
        "as streaming calls write it"
    );
}

/// <https://github.com/google-gemini/gemini-cli/issues/14831>: a body without details.
#[test]
fn a_body_without_a_delay_tells_none() {
    let bare = r#"[{"error": {"code": 429, "message": "Resource exhausted. Please try again later.", "errors": [{
        "message": "Resource exhausted. Please try again later.", "domain": "global", "reason": "rateLimitExceeded"}],
        "status": "RESOURCE_EXHAUSTED"}}]"#;
    assert_eq!(refusal("gemini", 429, "", bare), Some(VendorRefusal::Rate { retry_after: None }));
}

/// <https://github.com/googleapis/python-genai/issues/2044>: a day's quota comes with a delay of seconds.
#[test]
fn a_days_quota_is_used_up_whatever_the_delay() {
    assert_eq!(
        refusal("gemini", 429, "", &body(A_DAYS, "47s")),
        Some(VendorRefusal::QuotaExhausted { retry_after: secs(47), alone: false })
    );
}

#[test]
fn a_header_goes_before_the_body_and_a_bad_one_is_told() {
    let body = body(A_MINUTES, "34s");
    assert_eq!(retry_after(&headers("retry-after: 7"), Some(body.as_bytes()), NOW).wait, secs(7));
    let read = retry_after(&headers("retry-after: soon"), Some(body.as_bytes()), NOW);
    assert_eq!(read.wait, secs(34));
    assert_eq!(read.unreadable.iter().map(|told| told.name.as_str()).collect::<Vec<_>>(), ["retry-after"]);
    let bad = body.replace("34s", "a while");
    let read = retry_after(&headers(""), Some(bad.as_bytes()), NOW);
    assert_eq!(
        (read.wait, read.unreadable[0].name.as_str(), read.unreadable[0].fault),
        (None, "retryDelay", HeaderFault::NotASpan)
    );
}

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>: 503, "temporarily overloaded or down".
#[test]
fn it_is_busy_with_503_and_reports_no_quota_in_headers() {
    assert_eq!(refusal("gemini", 503, "", ""), Some(VendorRefusal::SystemBusy { retry_after: None }));
    assert_eq!(refusal("gemini", 500, "", ""), None);
    let lines = "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0";
    assert_eq!(
        reported("gemini", Quota::Requests, lines).window,
        None,
        "headers of another vendor, from a gateway"
    );
}
