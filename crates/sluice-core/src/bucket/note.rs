//! The drift that the last sweep found, stored in the bucket's row until the next sweep confirms it.

use crate::amount::Amount;
use crate::schema::{DRIFT, DRIFT_SEEN_AT, Exact, Row, amount, timestamp};
use crate::timestamp::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) drift: Exact<Amount>,
    pub(crate) seen_at: Exact<Timestamp>,
}

impl Note {
    /// A note that cannot be read counts as none: what sweeps store must not keep callers from a bucket. A
    /// number out of range counts as zero, no drift, and is overwritten: the conditions of the recount
    /// compare with what stands in the row.
    pub(crate) fn read(row: &impl Row) -> Option<Self> {
        let drift = amount(row, DRIFT).or_else(|_| Exact::unread(row, DRIFT, Amount::ZERO)).ok()?;
        let seen_at = timestamp(row, DRIFT_SEEN_AT);
        let never = Timestamp::from_micros(0);
        Some(Self { drift, seen_at: seen_at.or_else(|_| Exact::unread(row, DRIFT_SEEN_AT, never)).ok()? })
    }

    pub(crate) const fn drift(&self) -> Amount {
        self.drift.get()
    }
}
