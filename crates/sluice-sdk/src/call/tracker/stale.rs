//! Releases grants that nobody took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_ops::Released;

use crate::call::tracker::Tracked;
use crate::lane::parallel::in_parallel;
use crate::telemetry;

/// How the releases of stale grants ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleReport {
    /// What the grants held is back.
    pub given_back: u64,
    /// What the grants held was given back before: their leases had ended, and a sweep was faster.
    pub late: u64,
    /// The release failed. What the grants held comes back when their leases end.
    pub failed: u64,
}

/// A `StaleReport` that many tasks count.
#[derive(Debug, Default)]
pub(super) struct StaleCounts {
    given_back: AtomicU64,
    late: AtomicU64,
    failed: AtomicU64,
}

impl StaleCounts {
    pub(super) fn report(&self) -> StaleReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StaleReport { given_back: read(&self.given_back), late: read(&self.late), failed: read(&self.failed) }
    }

    fn add(&self, report: StaleReport) {
        self.given_back.fetch_add(report.given_back, Ordering::Relaxed);
        self.late.fetch_add(report.late, Ordering::Relaxed);
        self.failed.fetch_add(report.failed, Ordering::Relaxed);
    }
}

/// Releases all grants at once. Grants of one bucket share writes.
pub(super) async fn release(counts: Arc<StaleCounts>, stale: Vec<Tracked>) -> StaleReport {
    if stale.is_empty() {
        return StaleReport::default();
    }
    let releases: Vec<_> =
        stale.into_iter().map(|tracked| release_one(Arc::clone(&counts), tracked)).collect();
    let mut total = StaleReport::default();
    let many = u64::try_from(releases.len()).unwrap_or(u64::MAX);
    let Ok(released) = in_parallel(releases).await else { return StaleReport { failed: many, ..total } };
    for one in released {
        total.given_back += one.given_back;
        total.late += one.late;
        total.failed += one.failed;
    }
    total
}

async fn release_one(counts: Arc<StaleCounts>, Tracked { reservation, grant }: Tracked) -> StaleReport {
    let (request, bucket) = (reservation.request(), reservation.bucket());
    tracing::warn!(event = "reservation.stale", request, bucket, created_at = %reservation.created_at());
    let mut report = StaleReport::default();
    match grant.release().await {
        Ok(Released::GivenBack) => report.given_back = 1,
        Ok(_) => report.late = 1,
        Err(error) => {
            report.failed = 1;
            tracing::warn!(event = "release.failed", request, bucket, %error);
        }
    }
    counts.add(report);
    for (outcome, grants) in
        [("given_back", report.given_back), ("late", report.late), ("failed", report.failed)]
    {
        telemetry::tracker_released(outcome, grants);
    }
    report
}
