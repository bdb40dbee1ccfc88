//! Lists leases: who holds what, since when, until when.

use sluice_core::schema::{KEY, LEASE_PREFIX, LEASES, LIMIT_TYPE};
use sluice_core::{
    AttributeFault, AttributeNames, Dimension, InlineLeases, Lease, LimitType, Operand, RowError, inline_key,
};

use crate::ops::Ops;
use sluice_table::{Attributes, Consistency, Item, Scan, StoreError, value_text};

/// A lease as it was listed.
#[derive(Debug)]
#[non_exhaustive]
pub struct LeaseRow {
    /// The key of the lease's row. For an inline lease, the key of its bucket and the place in the row:
    /// `elevenlabs#concurrent leases.{id}`.
    pub key: String,
    /// What the lease holds, or why that is unreadable. The row does not state who holds an inline lease, nor
    /// since when.
    pub lease: Result<Lease, RowError>,
    /// Whether the lease is inline, in its bucket's row.
    pub is_inline: bool,
}

impl LeaseRow {
    /// A lease with a row of its own.
    #[must_use]
    pub const fn of_row(key: String, lease: Result<Lease, RowError>) -> Self {
        Self { key, lease, is_inline: false }
    }
}

impl Ops {
    /// Reads every lease, oldest first, after the inline leases, whose age is not known. A scan: for people,
    /// not for calls. Takes at most 20.2 s for each page of a megabyte.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn leases(&self) -> Result<Vec<LeaseRow>, StoreError> {
        let mut scan = Scan {
            segment: 0,
            segments: 1,
            filter: "begins_with(#key, :lease) OR (#limit_type = :concurrent AND attribute_exists(#leases))"
                .into(),
            consistency: Consistency::Eventual,
            names: AttributeNames::of(&[KEY, LIMIT_TYPE, LEASES]),
            values: vec![
                (":lease".into(), Operand::Text(LEASE_PREFIX.into())),
                (":concurrent".into(), Operand::Text(LimitType::Concurrent.to_string())),
            ],
            projection: None,
            page: None,
            from: None,
        };
        let mut rows: Vec<LeaseRow> = Vec::new();
        loop {
            let page = self.store.scan(&scan).await?;
            for row in &page.rows {
                let key = value_text(row, KEY);
                if key.starts_with(LEASE_PREFIX) {
                    rows.push(LeaseRow::of_row(key, Lease::read(&Attributes(row))));
                } else {
                    rows.extend(inline(key, row));
                }
            }
            scan.from = page.next;
            if scan.from.is_none() {
                break;
            }
        }
        rows.sort_by_key(|row| row.lease.as_ref().map(|lease| lease.created_at().unwrap_or_default()).ok());
        Ok(rows)
    }
}

/// The leases in a bucket's row. A key that is not a dimension is not the key of a bucket.
pub(crate) fn inline(key: String, row: &Item) -> Vec<LeaseRow> {
    let Ok(dimension) = Dimension::new(&key) else { return Vec::new() };
    let leases = match InlineLeases::read(&Attributes(row)) {
        Ok(leases) => leases.unwrap_or_default(),
        Err(error) => return vec![LeaseRow { key, lease: Err(error), is_inline: true }],
    };
    let unreadable = leases.unreadable().iter().map(|id| {
        let reason = String::from("its cost (c) or end (t) cannot be read");
        let error =
            RowError { attribute: LEASES, fault: AttributeFault::BadValue { text: id.clone(), reason } };
        LeaseRow { key: inline_key(&dimension, id), lease: Err(error), is_inline: true }
    });
    let readable = leases.iter().map(|(id, lease)| {
        let lease = Lease::inline(dimension.clone(), id, lease);
        LeaseRow { key: lease.key().to_owned(), lease: Ok(lease), is_inline: true }
    });
    unreadable.chain(readable).collect()
}
