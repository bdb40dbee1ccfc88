//! Replies as documentation shows them.

use std::time::Duration;

use sluice_core::{Amount, Timestamp};
use sluice_vendors::{Profile, Quota, Reported, VendorRefusal, Vendors, classify, read};

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

pub(crate) const EXHAUSTED: VendorRefusal = VendorRefusal::QuotaExhausted { retry_after: None, alone: false };

/// A vendor by its name; one that is not known by any other.
pub(crate) fn profile(vendor: &str) -> &'static Profile {
    Vendors::builtin().named(vendor).unwrap_or(Vendors::builtin().other())
}

/// All that is read of `quota`, where all of it can be read.
pub(crate) fn all_reported(vendor: &str, quota: Quota, lines: &str) -> Vec<Reported> {
    let reading = read(profile(vendor), quota, &headers(lines), NOW);
    assert_eq!(reading.unreadable, [], "{vendor:?} {quota:?}");
    reading.reported
}

/// What is read of `quota`, where one family of headers says it.
pub(crate) fn reported(vendor: &str, quota: Quota, lines: &str) -> Reported {
    let all = all_reported(vendor, quota, lines);
    assert!(all.len() <= 1, "{all:?}");
    all.first().copied().unwrap_or_default()
}

pub(crate) fn refusal(vendor: &str, status: u16, lines: &str, body: &str) -> Option<VendorRefusal> {
    classify(profile(vendor), status, &headers(lines), Some(body.as_bytes()), NOW)
}
