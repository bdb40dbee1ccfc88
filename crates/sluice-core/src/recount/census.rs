//! What a sweep saw of the leases of a bucket, and what the sweep itself did to them.

use core::time::Duration;

use super::ReadAt;
use crate::amount::Amount;
use crate::lease::Lease;
use crate::timestamp::CLOCK_ERROR;

/// Longest time from a lease's `created_at` to its write: a request may be tried for as long.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// What a sweep saw of the leases of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub(super) all: Amount,
    /// Cost of the leases that may have lived at the first reading.
    pub(super) possible: Amount,
    /// Cost of the leases that certainly lived at the first reading.
    pub(super) certain: Amount,
    /// Cost of the leases that some clock may still show as not ended.
    live: Amount,
    pub(super) unreadable: bool,
}

impl Census {
    /// Counts a lease that a scan saw after the first reading of its bucket.
    pub fn count(&mut self, lease: &Lease, first: ReadAt) {
        let cost = lease.cost().amount();
        // Both clocks may be wrong, each in its own direction.
        let apart = CLOCK_ERROR * 2;
        self.all = self.all.plus(cost);
        if lease.ends() >= first.begun.before(CLOCK_ERROR) {
            self.live = self.live.plus(cost);
        }
        // The `created_at` of a lease that began after its end means nothing.
        if lease.created_at().is_none_or(|at| at <= first.done.after(apart) || at >= lease.ends()) {
            self.possible = self.possible.plus(cost);
        }
        if lease.created_at().is_some_and(|at| at < first.begun.before(apart + LONGEST_WRITE)) {
            self.certain = self.certain.plus(cost);
        }
    }

    /// Counts a lease whose cost cannot be read. Nothing is known of the bucket then.
    pub const fn count_unreadable(&mut self) {
        self.unreadable = true;
    }

    /// Cost of the leases that have not ended.
    #[must_use]
    pub const fn live(&self) -> Amount {
        self.live
    }

    /// Adds what another part of the scan saw.
    pub const fn add(&mut self, other: Self) {
        self.all = self.all.plus(other.all);
        self.possible = self.possible.plus(other.possible);
        self.certain = self.certain.plus(other.certain);
        self.live = self.live.plus(other.live);
        self.unreadable |= other.unreadable;
    }
}

/// What the sweep itself did to leases of one bucket that it had scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Slots that the sweep gave back.
    pub slots: Amount,
    /// Lease cost that the sweep deleted without its slots, because the bucket had no room.
    pub capped: Amount,
    /// Cost of the leases that were gone or renewed when the sweep came to them.
    pub lost: Amount,
}

impl Returned {
    /// Adds what another part of the sweep did.
    pub const fn add(&mut self, other: Self) {
        self.slots = self.slots.plus(other.slots);
        self.capped = self.capped.plus(other.capped);
        self.lost = self.lost.plus(other.lost);
    }
}
