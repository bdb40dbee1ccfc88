//! Reads buckets and their load, one or all: for people, not for calls.

use sluice_core::schema::{KEY, LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX};
use sluice_core::{AttributeNames, Bucket, Dimension, Load, Operand, Row};
use sluice_table::{Attributes, Consistency, Item, Scan, StoreError, value_text};

use super::{BucketError, BucketFault};
use crate::ops::Ops;

/// A bucket's row as it was listed.
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketRow {
    /// Its key.
    pub key: String,
    /// The bucket, or why its row cannot be read.
    pub bucket: Result<Bucket, BucketFault>,
}

impl BucketRow {
    /// Reads the row with this key.
    #[must_use]
    pub fn read(key: String, row: &impl Row) -> Self {
        let bucket = Dimension::new(&key).map_err(BucketFault::from);
        Self { bucket: bucket.and_then(|dimension| Ok(Bucket::read(&dimension, row)?)), key }
    }
}

impl Ops {
    /// Reads one bucket; `None` if there is none of this name. Takes at most a request (4.2 s).
    ///
    /// # Errors
    /// [`BucketError`] if the row cannot be read or the table does not answer.
    pub async fn bucket(&self, dimension: &Dimension) -> Result<Option<Bucket>, BucketError> {
        let row = self.store.read(dimension.as_str()).await?;
        row.map(|row| parse(dimension, &row)).transpose()
    }

    /// Reads the load row of a bucket of any type: what sweeps measured, and what each caller used. A
    /// measurement that cannot be read counts as none. Takes at most a request (4.2 s).
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn load(&self, dimension: &Dimension) -> Result<Load, StoreError> {
        let row = self.store.read(&Load::key(dimension)).await?;
        let load = row.and_then(|row| Load::read(dimension, &Attributes(&row)).ok());
        Ok(load.unwrap_or_else(|| Load::none(dimension)))
    }

    /// Reads every bucket, sorted by key. A scan: for people, not for calls. Takes at most 20.2 s for each
    /// page of a megabyte.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn buckets(&self) -> Result<Vec<BucketRow>, StoreError> {
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter:
                "NOT (begins_with(#key, :lease) OR begins_with(#key, :load) OR begins_with(#key, :ticket))"
                    .into(),
            consistency: Consistency::Eventual,
            names: AttributeNames::of(&[KEY]),
            values: vec![
                (":lease".into(), Operand::Text(LEASE_PREFIX.into())),
                (":load".into(), Operand::Text(LOAD_PREFIX.into())),
                (":ticket".into(), Operand::Text(TICKET_PREFIX.into())),
            ],
            projection: None,
            page: None,
            from: None,
        };
        let mut rows = Vec::new();
        loop {
            let page = self.store.scan(&scan).await?;
            rows.extend(page.rows.iter().map(|row| BucketRow::read(value_text(row, KEY), &Attributes(row))));
            scan.from = page.next;
            if scan.from.is_none() {
                break;
            }
        }
        rows.sort_by(|a: &BucketRow, b| a.key.cmp(&b.key));
        Ok(rows)
    }
}

pub(super) fn parse(dimension: &Dimension, row: &Item) -> Result<Bucket, BucketError> {
    let corrupt = |source| BucketError::Corrupt { dimension: dimension.clone(), source };
    Bucket::read(dimension, &Attributes(row)).map_err(corrupt)
}
