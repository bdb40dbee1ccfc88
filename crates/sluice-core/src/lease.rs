//! Lease rows: the trace that a holder leaves, so that a crash loses nothing.

use alloc::string::{String, ToString};
use core::time::Duration;

use crate::amount::Cost;
use crate::dimension::Dimension;
use crate::schema::{
    self, BORROWED_BY, CALLER, COST, CREATED_AT, DIMENSION, Exact, Field, KEY, LEASE_PREFIX,
    PURGE_AFTER_SECS, PURGE_AT, Row, RowError, TTL,
};
use crate::share::Borrowing;
use crate::statement::{Delete, Operand, Put, Statement};
use crate::timestamp::Timestamp;

/// The unique part of the key of a lease: the last segment of `lease#{dimension}#{id}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(String);

impl LeaseId {
    /// Returns `None` for an empty id and for an id that contains `#`.
    #[must_use]
    pub fn new(id: String) -> Option<Self> {
        (!id.is_empty() && !id.contains('#')).then_some(Self(id))
    }

    /// The id as text: the name of an inline lease in its bucket's row.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The partition key of the lease on `dimension`.
    #[must_use]
    pub fn key(&self, dimension: &Dimension) -> String {
        alloc::format!("{LEASE_PREFIX}{dimension}#{}", self.0)
    }
}

/// A lease row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    key: String,
    dimension: Dimension,
    cost: Cost,
    created_at: Option<Timestamp>,
    ends: Exact<Timestamp>,
    caller: Option<String>,
    borrowed_by: Option<String>,
}

/// Interleaving that the condition stops: two holders under one key, of which the second would overwrite the
/// trace of the first. After a lost reply, the condition also keeps a retried acquire from taking a second
/// slot.
static WRITE: Statement = Statement::guard("attribute_not_exists(#key)", &[KEY]);

/// Interleaving that the condition stops: a lease that was already given back is given back again.
static DELETE_HELD: Statement = Statement::guard("attribute_exists(#key)", &[KEY]);

/// Interleavings that the condition stops: the one of a held lease's delete (a deleted row has no `ttl` to
/// compare); a holder renewed the lease after the scan saw it end.
static DELETE_EXPIRED: Statement = Statement::guard("#ttl = :read_ends", &[TTL]);

impl Lease {
    /// A lease of `cost` on `dimension`, from `now` until `ends`, which is rounded up to a whole second.
    #[must_use]
    pub fn new(
        dimension: Dimension,
        id: &LeaseId,
        cost: Cost,
        now: Timestamp,
        ends: Timestamp,
        caller: &str,
    ) -> Self {
        Self {
            key: id.key(&dimension),
            dimension,
            cost,
            created_at: Some(now),
            ends: Exact::new(ends.ceil_to_second()),
            caller: Some(caller.to_string()),
            borrowed_by: None,
        }
    }

    /// The same lease for slots that a caller of another share borrows.
    #[must_use]
    pub fn borrowed(self, borrowing: &Borrowing) -> Self {
        self.with_borrower(Some(borrowing.by_name().to_string()))
    }

    pub(crate) fn with_borrower(self, borrowed_by: Option<String>) -> Self {
        Self { borrowed_by, ..self }
    }

    /// A lease without a row of its own, for a list of all leases: its key is the key of no row.
    pub(crate) const fn listed(
        key: String,
        dimension: Dimension,
        cost: Cost,
        ends: Exact<Timestamp>,
    ) -> Self {
        Self { key, dimension, cost, created_at: None, ends, caller: None, borrowed_by: None }
    }

    /// Reads a lease row. The holder and the time of the grant may be missing; what is needed to give the
    /// lease back may not.
    ///
    /// # Errors
    /// [`RowError`] names the attribute.
    pub fn read(row: &impl Row) -> Result<Self, RowError> {
        let key = schema::text(row, KEY)?;
        // Rounded down, like everything that is given back.
        let cost = schema::amount(row, COST)?.get();
        let created_at = schema::optional(row, CREATED_AT, || schema::timestamp(row, CREATED_AT));
        let text = |attribute| match row.field(attribute) {
            Some(Field::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        Ok(Self {
            key: key.to_string(),
            dimension: read_dimension(row, key)?,
            cost: Cost::new(cost).map_err(|e| RowError::bad(COST, &cost.to_string(), e))?,
            created_at: created_at.ok().flatten().map(|at| at.get()),
            ends: schema::timestamp(row, TTL)?,
            caller: text(CALLER),
            borrowed_by: text(BORROWED_BY),
        })
    }

    /// The buckets that an unreadable lease row may belong to, by its attribute and by its key.
    pub fn dimensions_of_unreadable(row: &impl Row) -> impl Iterator<Item = Dimension> {
        let text = |attribute| match row.field(attribute) {
            Some(Field::Text(text)) => Some(text),
            _ => None,
        };
        let by_key = text(KEY).and_then(dimension_in);
        [text(DIMENSION), by_key].into_iter().flatten().filter_map(|name| Dimension::new(name).ok())
    }

    /// The write that creates the row.
    #[must_use]
    pub fn put(&self) -> Put {
        let mut item = alloc::vec![
            (KEY, Operand::text(&self.key)),
            (DIMENSION, Operand::text(&self.dimension)),
            (COST, Operand::number(self.cost)),
            (TTL, Operand::number(&self.ends)),
            (PURGE_AT, Operand::number(purge_at(self.ends.get()))),
        ];
        item.extend(self.created_at.map(|at| (CREATED_AT, Operand::number(at))));
        item.extend(self.caller.as_ref().map(|caller| (CALLER, Operand::text(caller))));
        item.extend(self.borrowed_by.as_ref().map(|share| (BORROWED_BY, Operand::text(share))));
        Put { item, statement: &WRITE }
    }

    /// The delete by a holder that releases.
    #[must_use]
    pub fn delete_held(&self) -> Delete {
        Delete { key: self.key.clone(), statement: &DELETE_HELD, values: alloc::vec![] }
    }

    /// The delete by a sweep that saw the lease end.
    #[must_use]
    pub fn delete_expired(&self) -> Delete {
        let values = alloc::vec![(":read_ends", Operand::number(&self.ends))];
        Delete { key: self.key.clone(), statement: &DELETE_EXPIRED, values }
    }

    /// Its partition key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The id that distinguishes the lease from the other leases of its bucket.
    #[must_use]
    pub fn id(&self) -> &str {
        let inline =
            self.key.strip_prefix(self.dimension.as_str()).and_then(|rest| rest.strip_prefix(INLINE_KEY));
        inline.or_else(|| self.key.rsplit('#').next()).unwrap_or_default()
    }

    /// The bucket that the lease is on.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// The same lease with `cost`, which it took, whatever its row says.
    #[must_use]
    pub fn that_took(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// What it holds.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// When the lease was granted, if the row says so.
    #[must_use]
    pub const fn created_at(&self) -> Option<Timestamp> {
        self.created_at
    }

    /// When it ends.
    #[must_use]
    pub const fn ends(&self) -> Timestamp {
        self.ends.get()
    }

    /// The holder, if the row says so.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    /// The share whose caller borrowed the slots (`common`: the part that no share has); `None` if they are
    /// of the holder's own line.
    #[must_use]
    pub fn borrowed_by(&self) -> Option<&str> {
        self.borrowed_by.as_deref()
    }
}

/// Separates a bucket's key from the id of an inline lease. It contains a space, so no row has such a key.
const INLINE_KEY: &str = " leases.";

/// The name of an inline lease: the row that contains it, and the place in that row.
#[must_use]
pub fn inline_key(dimension: &Dimension, id: &str) -> String {
    alloc::format!("{dimension}{INLINE_KEY}{id}")
}

/// When DynamoDB may delete a lease that ends at `ends`.
pub(crate) fn purge_at(ends: Timestamp) -> Timestamp {
    ends.after(Duration::from_secs(PURGE_AFTER_SECS))
}

/// Reads the dimension from the attribute. Only if the attribute is missing, from the key without its prefix
/// and its last segment (a dimension may itself have three parts).
fn read_dimension(row: &impl Row, key: &str) -> Result<Dimension, RowError> {
    let (attribute, name) = match row.field(DIMENSION) {
        Some(Field::Text(name)) => (DIMENSION, name),
        Some(_) => {
            return Err(schema::text(row, DIMENSION)
                .err()
                .unwrap_or_else(|| RowError::bad(DIMENSION, "", "")));
        }
        None => (KEY, dimension_in(key).unwrap_or("")),
    };
    Dimension::new(name).map_err(|e| RowError::bad(attribute, name, e.reason))
}

fn dimension_in(key: &str) -> Option<&str> {
    key.strip_prefix(LEASE_PREFIX)?.rsplit_once('#').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    struct Map(BTreeMap<&'static str, Operand>);

    impl Row for Map {
        fn field(&self, name: &str) -> Option<Field<'_>> {
            self.0.get(name).map(|value| match value {
                Operand::Text(text) => Field::Text(text),
                Operand::Number(text) => Field::Number(text),
                Operand::Map(_) => Field::Other,
            })
        }
    }

    fn lease(name: &str) -> Lease {
        let now: Timestamp = "1709550100.25".parse().unwrap();
        let id = LeaseId::new("a3f8c910".into()).unwrap();
        Lease::new(
            Dimension::new(name).unwrap(),
            &id,
            Cost::ONE,
            now,
            now.after(Duration::from_secs(60)),
            "audit-service",
        )
    }

    #[test]
    fn a_lease_row_has_the_attributes_of_the_other_clients_and_purge_at() {
        let row: BTreeMap<_, _> = lease("openai#rpm").put().item.into_iter().collect();
        let expected = [
            ("vendor_dimension", Operand::Text("lease#openai#rpm#a3f8c910".into())),
            ("dimension", Operand::Text("openai#rpm".into())),
            ("cost", Operand::Number("1".into())),
            ("created_at", Operand::Number("1709550100.25".into())),
            ("ttl", Operand::Number("1709550161".into())),
            ("purge_at", Operand::Number("1710154961".into())),
            ("caller", Operand::Text("audit-service".into())),
        ];
        assert_eq!(row, BTreeMap::from(expected));
        let read = Lease::read(&Map(row)).unwrap();
        assert_eq!(
            (read.caller(), read.created_at().map(|at| at.micros())),
            (Some("audit-service"), Some(1_709_550_100_250_000))
        );
    }

    #[test]
    fn the_dimension_comes_from_the_attribute_and_else_from_the_key() {
        let written = lease("openai#gpt-4o#tpm");
        let mut row = Map(written.put().item.into_iter().collect());
        assert_eq!(Lease::read(&row).unwrap(), written);
        row.0.remove(DIMENSION);
        assert_eq!(Lease::read(&row).unwrap(), written);
        row.0.insert(KEY, Operand::Text("lease#broken".into()));
        assert_eq!(Lease::read(&row).unwrap_err().attribute, KEY);
    }

    #[test]
    fn a_lease_without_its_end_or_cost_cannot_be_read() {
        for attribute in [KEY, COST, TTL] {
            let mut row = Map(lease("a#b").put().item.into_iter().collect());
            row.0.remove(attribute);
            assert_eq!(Lease::read(&row).unwrap_err().attribute, attribute);
        }
    }

    proptest! {
        #[test]
        fn no_row_panics(values in prop::collection::vec((0_usize..7, "\\PC{0,30}", any::<bool>()), 0..7)) {
            let names = [KEY, DIMENSION, COST, CREATED_AT, TTL, PURGE_AT, CALLER];
            let row = values.into_iter().map(|(name, text, number)| {
                (names[name], if number { Operand::Number(text) } else { Operand::Text(text) })
            });
            let _ = Lease::read(&Map(row.collect::<Vec<_>>().into_iter().collect()));
        }
    }
}
