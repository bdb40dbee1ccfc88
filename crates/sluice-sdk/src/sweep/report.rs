//! How a sweep goes about it, and what it says of what it did.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_core::Dimension;

use crate::give_back::Tally;

/// How a sweep goes about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepOptions {
    /// Parts that the table is scanned in, in random order, so that a sweep that is always cut off does not always miss the
    /// same rows; 16 by default. Each costs a request at least.
    pub segments: u16,
    /// Parts scanned at once, and buckets given back to at once; 4 by default. More finish sooner; fewer disturb callers less.
    pub concurrency: u16,
    /// Time after which nothing new is begun; none by default. What is left is the next sweep's.
    pub budget: Option<Duration>,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { segments: 16, concurrency: 4, budget: None }
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// Rows read by the scan, of any kind.
    pub rows_scanned: usize,
    /// Ended leases found.
    pub expired: usize,
    /// Leases given back: slots restored, or the row of a rate lease deleted.
    pub restored: usize,
    /// Dimensions with a lease given back.
    pub dimensions: BTreeSet<Dimension>,
    /// Leases deleted without a slot, since their bucket was full already.
    pub already_capped: usize,
    /// Leases that were given back or renewed between the scan and the write.
    pub lost_races: usize,
    /// Conflicts and throttlings that were waited out.
    pub conflicts_retried: usize,
    /// Rows that cannot be read, left alone.
    pub unparsable: usize,
    /// Leases left for the next sweep, by conflicts or the end of the budget.
    pub left: usize,
    /// Leases whose transaction DynamoDB will never accept, left alone.
    pub failed: usize,
    /// Parts of the table that the budget left for the next sweep, whole or in part.
    pub segments_unscanned: usize,
    /// Whether the budget ended the sweep.
    pub deadline_hit: bool,
    /// How long it took.
    pub duration: Duration,
}

impl SweepReport {
    pub(super) fn log(&self) {
        tracing::info!(
            event = "reconciler.complete",
            restored = self.restored,
            dimensions = %self.dimensions.iter().map(Dimension::as_str).collect::<Vec<_>>().join(","),
            already_capped = self.already_capped,
            rows_scanned = self.rows_scanned,
            expired = self.expired,
            lost_races = self.lost_races,
            conflicts_retried = self.conflicts_retried,
            unparsable = self.unparsable,
            left = self.left,
            failed = self.failed,
            segments_unscanned = self.segments_unscanned,
            deadline_hit = self.deadline_hit,
            duration_ms = self.duration.as_millis(),
        );
    }

    /// Adds what another part of the sweep did.
    pub(super) fn add(&mut self, part: Self) {
        self.rows_scanned += part.rows_scanned;
        self.expired += part.expired;
        self.restored += part.restored;
        self.dimensions.extend(part.dimensions);
        self.already_capped += part.already_capped;
        self.lost_races += part.lost_races;
        self.conflicts_retried += part.conflicts_retried;
        self.unparsable += part.unparsable;
        self.left += part.left;
        self.failed += part.failed;
        self.segments_unscanned += part.segments_unscanned;
    }

    /// Adds what became of leases of `dimension`.
    pub(super) fn count(&mut self, dimension: &Dimension, tally: &Tally) {
        self.restored += tally.restored;
        self.already_capped += tally.already_capped;
        self.lost_races += tally.lost_races;
        self.conflicts_retried += tally.conflicts_retried;
        self.left += tally.left;
        self.failed += tally.failed.len();
        if tally.restored > 0 {
            self.dimensions.insert(dimension.clone());
        }
        for (lease, message) in &tally.failed {
            tracing::error!(event = "reconciler.refused", %dimension, lease, message);
        }
    }
}
