//! What each line of a concurrency bucket with shares was promised, has free, lent and borrowed.

use alloc::vec::Vec;

use super::Bucket;
use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::lease::Lease;
use crate::share::{COMMON, ShareName};

/// A line of a concurrency bucket with shares: by its row, and by the leases on the rows of all lines.
/// Clients from before leases named the borrower leave it out: what they borrow counts as the lender's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotLine {
    /// Its share; `None` is the common line.
    pub share: Option<ShareName>,
    /// The slots that it is promised: none of a share that goes.
    pub guaranteed: Amount,
    /// The slots that its row has: fewer or more than it was promised while the shares change.
    pub capacity: Amount,
    /// Free slots; below zero while the row has fewer than are held. `None` if there is no row, or none that
    /// can be read.
    pub free: Option<Amount>,
    /// What borrowers leave.
    pub lends_above: Amount,
    /// Whether it is for background work.
    pub is_background: bool,
    /// Whether it has no row yet, or goes: nobody takes slots of it.
    pub is_closed: bool,
    /// The slots of its row that callers of other lines hold.
    pub lent: Amount,
    /// The slots of other rows that its callers hold.
    pub borrowed: Amount,
}

impl SlotLine {
    /// The lines of a bucket, the shares by name and the common line last; none of a bucket without shares of
    /// slots. `row` finds the row of a share. With leases of one row only, `lent` and `borrowed` count those.
    pub fn all<'a>(
        bucket: &Bucket,
        row: impl Fn(&Dimension) -> Option<&'a Bucket>,
        leases: impl Iterator<Item = &'a Lease> + Clone,
    ) -> Vec<Self> {
        if !bucket.has_slot_shares() {
            return Vec::new();
        }
        let sum = |of: &dyn Fn(&Lease) -> bool| {
            let counted = leases.clone().filter(|lease| lease.borrowed_by().is_some() && of(lease));
            counted.fold(Amount::ZERO, |sum, lease| sum.plus(lease.cost().amount()))
        };
        let is_of_bucket = |lease: &Lease| {
            lease.dimension() == bucket.dimension()
                || bucket.slot_shares().iter().any(|share| share.row == *lease.dimension())
        };
        let lent = |line: &Dimension| sum(&|lease| lease.dimension() == line);
        let borrowed = |name: &str| sum(&|lease| lease.borrowed_by() == Some(name) && is_of_bucket(lease));
        let of_share = bucket.slot_shares().iter().map(|share| {
            let row = row(&share.row);
            Self {
                share: Some(share.name.clone()),
                guaranteed: share.capacity,
                capacity: row.map_or(Amount::ZERO, |row| row.limit().capacity()),
                free: row.map(Bucket::tokens),
                lends_above: bucket.slots_kept(Some(share), false),
                is_background: share.is_background,
                is_closed: share.is_closed,
                lent: lent(&share.row),
                borrowed: borrowed(share.name.as_str()),
            }
        });
        let common = Self {
            share: None,
            guaranteed: bucket.split().common().capacity(),
            capacity: bucket.limit().capacity(),
            free: Some(bucket.tokens()),
            lends_above: bucket.slots_kept(None, false),
            is_background: false,
            is_closed: false,
            lent: lent(bucket.dimension()),
            borrowed: borrowed(COMMON),
        };
        of_share.chain([common]).collect()
    }

    /// Whether its share was removed, and its row is still there.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.is_closed && self.guaranteed <= Amount::ZERO
    }

    /// Its name: that of its share, or `common`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.share.as_ref().map_or(COMMON, ShareName::as_str)
    }

    /// The slots of its row that are held, by whomever.
    #[must_use]
    pub fn held(&self) -> Amount {
        self.free.map_or(Amount::ZERO, |free| self.capacity.minus(free).max(Amount::ZERO))
    }
}
