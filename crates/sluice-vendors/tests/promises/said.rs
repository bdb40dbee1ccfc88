//! Replies as documentation shows them.

use std::time::Duration;

use sluice_core::{Amount, Timestamp};
use sluice_vendors::{Quota, Reported, Vendor, VendorRefusal, classify, read};

/// 2025-08-21T12:40:55Z.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_755_780_055);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn tokens(amount: i32) -> Option<Amount> {
    Some(Amount::from_tokens(amount))
}

pub(crate) fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

pub(crate) fn millis(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

/// Lines of `name: value`.
pub(crate) fn headers(lines: &str) -> Vec<(String, String)> {
    let pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// What is read of `quota`, where all of it can be read.
pub(crate) fn reported(vendor: Vendor, quota: Quota, lines: &str) -> Reported {
    let reading = read(vendor, quota, &headers(lines), NOW);
    assert_eq!(reading.unreadable, [], "{vendor:?} {quota:?}");
    reading.reported
}

pub(crate) fn refusal(vendor: Vendor, status: u16, lines: &str, body: &str) -> Option<VendorRefusal> {
    classify(vendor, status, &headers(lines), Some(body.as_bytes()), NOW)
}
