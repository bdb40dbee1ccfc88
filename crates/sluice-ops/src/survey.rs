//! The survey: one scan that tells all there is in a table, for those who watch it.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use sluice_core::schema::{
    DIRECTORY_KEY, HEAL_KEY, KEY, LEASE_PREFIX, LIMIT_TYPE, LOAD_PREFIX, SWEEPS_KEY, TICKET_PREFIX,
};
use sluice_core::{Bucket, Dimension, Lease, LimitType, Load, SweepLog, Timestamp};
use tokio::time::Instant;

use crate::leases::{LeaseRow, inline};
use crate::limits::{BucketFault, BucketRow, bucket_row};
use crate::ops::Ops;
use sluice_table::{Attributes, Consistency, Item, Scan, StoreError, value_text};

mod metrics;

/// All that a table holds, as one scan saw it. The scan is eventually consistent and no snapshot: rows may be a second old, and
/// those that were read first are older than the last.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// When it was complete, by the client's clock.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// The buckets, sorted by key, with those whose attributes cannot be read.
    pub buckets: Vec<BucketRow>,
    /// The leases, lease rows and inline ones, in no order.
    pub leases: Vec<LeaseRow>,
    /// What sweeps measured of the concurrency buckets among `buckets`, sorted by key. A load row whose bucket is gone, or is none of
    /// concurrency any more, is left out: no sweep measures it again, and what it says would stand for ever.
    pub loads: Vec<LoadRow>,
    /// The last sweeps; none where none was logged.
    pub sweeps: SweepLog,
    /// Number of tickets, redeemed ones among them.
    pub tickets: usize,
    /// Keys of rows that are neither: not Sluice's, or of a later version of it.
    pub unknown: Vec<String>,
    /// Rows read.
    pub rows: usize,
    /// Pages read, a request each.
    pub pages: usize,
    /// Read units that DynamoDB billed; `None` where it does not say, as some local engines do not.
    pub read_units: Option<f64>,
    /// Whether the whole table was read: false where the most pages were not enough for it.
    pub is_whole: bool,
}

/// A load row as it was read.
#[derive(Debug)]
pub struct LoadRow {
    /// The bucket that it is about.
    pub dimension: Dimension,
    /// What was measured, or why that cannot be read.
    pub load: Result<Load, sluice_core::RowError>,
}

impl Ops {
    /// Reads the whole table: buckets, leases, load, sweeps. Half a read unit for each 4 KB; for those who watch and for
    /// operators, not for the path of a call.
    ///
    /// Takes at most 20.2 s for each page of a megabyte.
    ///
    /// # Errors
    /// [`StoreError`] where the table does not answer.
    pub async fn survey(&self) -> Result<Survey, StoreError> {
        self.survey_within(NonZeroUsize::MAX).await
    }

    /// As [`survey`](Self::survey), of at most this many pages of a megabyte each. A table that has more is told in part, always
    /// about the same: the order of a scan is fixed.
    ///
    /// Takes at most 20.2 s for each page.
    ///
    /// # Errors
    /// [`StoreError`] where the table does not answer.
    pub async fn survey_within(&self, most_pages: NonZeroUsize) -> Result<Survey, StoreError> {
        let begun = Instant::now();
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter: "".into(),
            consistency: Consistency::Eventual,
            names: &[],
            values: Vec::new(),
            projection: None,
            page: None,
            from: None,
        };
        let mut survey = Survey::default();
        while survey.pages < most_pages.get() && !survey.is_whole {
            let page = self.store.scan(&scan).await?;
            survey.pages += 1;
            survey.rows += page.rows.len();
            survey.read_units = page.read_units.map(|units| survey.read_units.unwrap_or(0.0) + units);
            page.rows.iter().for_each(|row| survey.add(row));
            survey.is_whole = page.next.is_none();
            scan.from = page.next;
        }
        survey.leave_out_stray_loads();
        survey.buckets.sort_by(|a, b| a.key.cmp(&b.key));
        survey.loads.sort_by(|a, b| a.dimension.cmp(&b.dimension));
        survey.at = self.now();
        survey.took = begun.elapsed();
        Ok(survey)
    }
}

impl Survey {
    /// Where a part of the table was read, those go too whose bucket stands in the rest: of a bucket that is not told, neither is its load.
    fn leave_out_stray_loads(&mut self) {
        let buckets = self.buckets.iter().filter_map(|row| row.bucket.as_ref().ok());
        let slots: BTreeSet<&Dimension> =
            buckets.filter(|bucket| bucket.limit().is_concurrent()).map(Bucket::dimension).collect();
        self.loads.retain(|row| slots.contains(&row.dimension));
    }

    fn add(&mut self, row: &Item) {
        let key = value_text(row, KEY);
        if key.starts_with(LEASE_PREFIX) {
            self.leases.push(LeaseRow { key, lease: Lease::read(&Attributes(row)), is_inline: false });
        } else if key.starts_with(TICKET_PREFIX) {
            self.tickets += 1;
        } else if key == SWEEPS_KEY {
            self.sweeps = SweepLog::read(&Attributes(row));
        } else if let Some(name) = key.strip_prefix(LOAD_PREFIX) {
            match Dimension::new(name) {
                Ok(dimension) => {
                    let load = Load::read(&dimension, &Attributes(row));
                    self.loads.push(LoadRow { dimension, load });
                }
                // The directory is for sweeps, and says nothing that the buckets do not; the mark is for those who heal.
                Err(_) if key == DIRECTORY_KEY || key == HEAL_KEY => {}
                Err(_) => self.unknown.push(key),
            }
        } else {
            let bucket = bucket_row(row);
            if matches!(bucket.bucket, Err(BucketFault::Key(_))) {
                self.unknown.push(key);
                return;
            }
            // What a rate bucket has under this name is no lease.
            if value_text(row, LIMIT_TYPE) == LimitType::Concurrent.as_str() {
                self.leases.extend(inline(key, row));
            }
            self.buckets.push(bucket);
        }
    }
}
