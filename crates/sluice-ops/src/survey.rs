//! The survey: one scan that reads everything in a table, for operators and monitoring.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use sluice_core::schema::{
    DIRECTORY_KEY, HEAL_KEY, KEY, LEASE_PREFIX, LIMIT_TYPE, LOAD_PREFIX, SWEEPS_KEY, TICKET_PREFIX,
};
use sluice_core::{AttributeNames, Bucket, Dimension, Lease, LimitType, Load, Row, SweepLog, Timestamp};
use tokio::time::Instant;

use crate::leases::{LeaseRow, inline};
use crate::limits::{BucketFault, BucketRow};
use crate::ops::Ops;
use sluice_table::{Attributes, Consistency, Item, Scan, StoreError, value_text};

mod metrics;

/// Everything in a table, by one eventually consistent scan: no snapshot, and rows may be a second old.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// When the survey was complete, by the client's clock.
    pub at: Timestamp,
    /// How long the survey took.
    pub took: Duration,
    /// The buckets, sorted by key, including buckets whose attributes cannot be read.
    pub buckets: Vec<BucketRow>,
    /// The leases (lease rows and inline leases), in no order.
    pub leases: Vec<LeaseRow>,
    /// The loads of the concurrency buckets among `buckets`, sorted by key. A load row without such a bucket
    /// is left out: no sweep measures it again, and its values would stay for ever.
    pub loads: Vec<LoadRow>,
    /// The last sweeps; empty if none was logged.
    pub sweeps: SweepLog,
    /// Number of tickets, including redeemed ones.
    pub tickets: usize,
    /// Keys of all other rows: rows that are not Sluice's, or are of a later version of it.
    pub unknown: Vec<String>,
    /// Rows read.
    pub rows: usize,
    /// Pages read, one request each.
    pub pages: usize,
    /// Read units that DynamoDB billed; `None` if its replies do not state them, as with some local engines.
    pub read_units: Option<f64>,
    /// Whether the whole table was read; false if the table has more pages than the survey may read.
    pub is_whole: bool,
}

/// A load row as it was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadRow {
    /// The bucket of the load row.
    pub dimension: Dimension,
    /// What was measured, or why that cannot be read.
    pub load: Result<Load, sluice_core::RowError>,
}

impl LoadRow {
    /// Reads the load row of a bucket.
    #[must_use]
    pub fn read(dimension: Dimension, row: &impl Row) -> Self {
        Self { load: Load::read(&dimension, row), dimension }
    }
}

impl Ops {
    /// Reads the whole table: buckets, leases, load, sweeps. For operators and monitoring, not for the path
    /// of a call. Costs half a read unit for each 4 KB. Takes at most 20.2 s for each page of a megabyte.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn survey(&self) -> Result<Survey, StoreError> {
        self.survey_within(NonZeroUsize::MAX).await
    }

    /// As [`survey`](Self::survey), of at most this many pages of a megabyte each, 20.2 s each. A larger
    /// table is reported in part, in about the same part each time: the order of a scan is fixed.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn survey_within(&self, most_pages: NonZeroUsize) -> Result<Survey, StoreError> {
        let begun = Instant::now();
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter: "".into(),
            consistency: Consistency::Eventual,
            names: AttributeNames::of(&[]),
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
    /// Removes loads whose concurrency bucket is not in the survey: it is gone, or in a part that was not
    /// read.
    fn leave_out_stray_loads(&mut self) {
        let buckets = self.buckets.iter().filter_map(|row| row.bucket.as_ref().ok());
        let slots: BTreeSet<&Dimension> =
            buckets.filter(|bucket| bucket.limit().is_concurrent()).map(Bucket::dimension).collect();
        self.loads.retain(|row| slots.contains(&row.dimension));
    }

    fn add(&mut self, row: &Item) {
        let key = value_text(row, KEY);
        if key.starts_with(LEASE_PREFIX) {
            self.leases.push(LeaseRow::of_row(key, Lease::read(&Attributes(row))));
        } else if key.starts_with(TICKET_PREFIX) {
            self.tickets += 1;
        } else if key == SWEEPS_KEY {
            self.sweeps = SweepLog::read(&Attributes(row));
        } else if let Some(name) = key.strip_prefix(LOAD_PREFIX) {
            match Dimension::new(name) {
                Ok(dimension) => self.loads.push(LoadRow::read(dimension, &Attributes(row))),
                // The directory is for sweeps, and names buckets that were read. The mark is for processes
                // that heal.
                Err(_) if key == DIRECTORY_KEY || key == HEAL_KEY => {}
                Err(_) => self.unknown.push(key),
            }
        } else {
            let bucket = BucketRow::read(key.clone(), &Attributes(row));
            if matches!(bucket.bucket, Err(BucketFault::Key(_))) {
                self.unknown.push(key);
                return;
            }
            // An attribute of this name in a rate bucket is not a lease.
            if value_text(row, LIMIT_TYPE) == LimitType::Concurrent.as_str() {
                self.leases.extend(inline(key, row));
            }
            self.buckets.push(bucket);
        }
    }
}
