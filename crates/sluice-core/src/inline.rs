//! Inline leases: leases in the row of their bucket, as `leases.{id} = {c: cost, t: end}`; with `b`, the
//! borrower, if a caller of another share borrowed the slots.

use alloc::string::String;
use alloc::vec::Vec;

use crate::amount::{Amount, Cost};
use crate::dimension::Dimension;
use crate::lease::{Lease, LeaseId, inline_key};
use crate::limit::Limit;
use crate::schema::{
    self, AttributeFault, Exact, Field, INLINE_BORROWED_BY, INLINE_COST, INLINE_ENDS, LEASES, Row, RowError,
};
use crate::timestamp::Timestamp;

/// The maximum number of inline leases of a bucket: 200. Each write pays for the whole row, one write unit a
/// KB; these figures are of leases that name no borrower (2 bytes more, and its name). By the Developer Guide
/// ("DynamoDB item sizes and formats"), a lease of one slot with an id of 12 characters takes 28 bytes: 12
/// for the id, 1 as an entry, 3 as a map, 4 for `c`, 8 for `t`. The rest of a row takes about 300 bytes. With
/// a lease row, acquire and release cost 8 units: two writes in each of two transactions. Inline they cost 2
/// units for each begun KB: 2 with 25 leases in the row, 8 with 135, 12 with 200 (6 KB). So even if every
/// slot is held, inline leases cost at most half more than lease rows do.
pub const MOST_INLINE_LEASES: usize = 200;

/// A lease in the row of its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineLease {
    /// The slots that the lease holds.
    pub cost: Cost,
    /// When the lease ends.
    pub ends: Exact<Timestamp>,
    /// As [`Lease::borrowed_by`].
    pub borrowed_by: Option<String>,
}

impl Lease {
    /// An inline lease as an entry of a list of all leases: its key is the key of no row.
    #[must_use]
    pub fn inline(dimension: Dimension, id: &LeaseId, lease: &InlineLease) -> Self {
        let InlineLease { cost, ends, borrowed_by } = lease.clone();
        Self::listed(inline_key(&dimension, id.as_str()), dimension, cost, ends).with_borrower(borrowed_by)
    }
}

/// The leases in one bucket's row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlineLeases {
    /// Sorted by id.
    leases: Vec<(LeaseId, InlineLease)>,
    unreadable: Vec<String>,
    held: Amount,
}

impl InlineLeases {
    /// Reads the map, if the row has one. The row is a bucket's row, or what a projection left of it. An
    /// entry that cannot be read must not keep callers from the bucket: it is counted, and never removed.
    ///
    /// # Errors
    /// [`RowError`] if the attribute is not a map.
    pub fn read(row: &impl Row) -> Result<Option<Self>, RowError> {
        if row.field(LEASES).is_none() {
            return Ok(None);
        }
        let (mut leases, mut unreadable) = (Vec::new(), Vec::new());
        let is_map = row.entries(LEASES, &mut |id, entry| match InlineLease::read(id, entry) {
            Some(lease) => leases.push(lease),
            None => unreadable.push(String::from(id)),
        });
        if !is_map {
            return Err(RowError {
                attribute: LEASES,
                fault: AttributeFault::WrongType { expected: "map (M)" },
            });
        }
        unreadable.sort_unstable();
        Ok(Some(Self { unreadable, ..Self::of(leases) }))
    }

    fn of(mut leases: Vec<(LeaseId, InlineLease)>) -> Self {
        leases.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let held = leases.iter().fold(Amount::ZERO, |sum, (_, lease)| sum.plus(lease.cost.amount()));
        Self { leases, unreadable: Vec::new(), held }
    }

    /// The same leases without `removed` and with `added`.
    pub(crate) fn with(&self, removed: &[LeaseId], added: &[(LeaseId, InlineLease)]) -> Self {
        let left = self.leases.iter().filter(|(id, _)| !removed.contains(id));
        Self { unreadable: self.unreadable.clone(), ..Self::of(left.chain(added).cloned().collect()) }
    }

    /// Number of leases, including those that cannot be read.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.leases.len() + self.unreadable.len()
    }

    /// Whether there are no leases.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The readable leases, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = (&LeaseId, &InlineLease)> {
        self.leases.iter().map(|(id, lease)| (id, lease))
    }

    /// The lease with this id, if it is readable.
    #[must_use]
    pub fn get(&self, id: &LeaseId) -> Option<&InlineLease> {
        self.entry(id).map(|(_, lease)| lease)
    }

    pub(crate) fn entry(&self, id: &LeaseId) -> Option<(&LeaseId, &InlineLease)> {
        let at = self.leases.binary_search_by(|(one, _)| one.cmp(id)).ok()?;
        self.leases.get(at).map(|(id, lease)| (id, lease))
    }

    /// Whether the row has an entry with this id, readable or not.
    #[must_use]
    pub fn contains(&self, id: &LeaseId) -> bool {
        self.entry(id).is_some() || self.unreadable.iter().any(|one| one == id.as_str())
    }

    /// The names of the entries that cannot be read, sorted.
    #[must_use]
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The readable leases that ended before `cutoff`.
    pub fn ended(&self, cutoff: Timestamp) -> impl Iterator<Item = (&LeaseId, &InlineLease)> {
        self.iter().filter(move |(_, lease)| lease.ends.get() < cutoff)
    }

    /// The slots that the readable leases hold together.
    #[must_use]
    pub const fn held(&self) -> Amount {
        self.held
    }

    /// The slots of the readable leases, without those that state more than the capacity.
    #[must_use]
    pub fn held_within(&self, capacity: Amount) -> Amount {
        let believed = self.iter().filter(|(_, lease)| !lease.overstates(capacity));
        believed.fold(Amount::ZERO, |sum, (_, lease)| sum.plus(lease.cost.amount()))
    }

    /// Whether a lease states that it holds more than the capacity: its cost was edited, or the capacity was
    /// lowered since. What the lease took is then unknown.
    #[must_use]
    pub fn overstates(&self, capacity: Amount) -> bool {
        self.iter().any(|(_, lease)| lease.overstates(capacity))
    }
}

impl InlineLease {
    pub(crate) fn overstates(&self, capacity: Amount) -> bool {
        self.cost.amount() > capacity
    }

    fn read(id: &str, entry: Option<&dyn Row>) -> Option<(LeaseId, Self)> {
        let (id, row) = (LeaseId::new(String::from(id))?, entry?);
        // Rounded down, like everything that is given back.
        let cost = Cost::new(schema::amount(row, INLINE_COST).ok()?.get()).ok()?;
        let borrowed_by = match row.field(INLINE_BORROWED_BY) {
            Some(Field::Text(share)) => Some(String::from(share)),
            _ => None,
        };
        Some((id, Self { cost, ends: schema::timestamp(row, INLINE_ENDS).ok()?, borrowed_by }))
    }
}

impl Limit {
    /// How many calls of the default cost the bucket holds at once.
    #[must_use]
    pub fn calls_at_once(&self) -> u64 {
        let calls = self.capacity().micros() / self.cost_per_call().amount().micros().max(1);
        u64::try_from(calls).unwrap_or(0)
    }

    /// Whether the bucket may have inline leases: at most [`MOST_INLINE_LEASES`] of them fit into it.
    #[must_use]
    pub fn fits_inline(&self) -> bool {
        usize::try_from(self.calls_at_once()).is_ok_and(|calls| calls <= MOST_INLINE_LEASES)
    }
}
