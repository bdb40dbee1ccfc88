//! Listing leases: who holds what, since when, until when.

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{KEY, LEASE_PREFIX};
use sluice_core::{Lease, RowError};

use crate::client::Client;
use crate::store::{Attributes, Consistency, Scan, StoreError, value_text};

/// A lease's row as it was listed.
#[derive(Debug)]
pub struct LeaseRow {
    /// Its key.
    pub key: String,
    /// What it holds, or why that cannot be read.
    pub lease: Result<Lease, RowError>,
}

impl Client {
    /// Reads every lease, oldest first. A scan: for people, not for the path of a call.
    ///
    /// # Errors
    /// [`StoreError`] where the table does not answer.
    pub async fn leases(&self) -> Result<Vec<LeaseRow>, StoreError> {
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter: "begins_with(#pk, :lease)".into(),
            consistency: Consistency::Eventual,
            names: &[("#pk", KEY)],
            values: vec![(":lease".into(), AttributeValue::S(LEASE_PREFIX.into()))],
            projection: None,
            page: None,
            from: None,
        };
        let mut rows: Vec<LeaseRow> = Vec::new();
        loop {
            let page = self.inner.store.scan(&scan).await?;
            let row = |row| LeaseRow { key: value_text(row, KEY), lease: Lease::read(&Attributes(row)) };
            rows.extend(page.rows.iter().map(row));
            scan.from = page.next;
            if scan.from.is_none() {
                break;
            }
        }
        rows.sort_by_key(|row| row.lease.as_ref().map(|lease| lease.created_at().unwrap_or_default()).ok());
        Ok(rows)
    }
}
