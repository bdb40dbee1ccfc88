//! A bucket as a write leaves it, and a part of one.

use alloc::sync::Arc;

use super::Bucket;
use crate::amount::{Amount, Cost};
use crate::inline::InlineLeases;
use crate::limit::Limit;
use crate::schema::Exact;
use crate::timestamp::Timestamp;

/// What a write on inline leases changes in their bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Slots that become free, minus slots that are taken.
    pub(crate) slots: Amount,
    /// Slots that are granted.
    pub(crate) granted: Amount,
    /// Slots of leases that are removed without freeing them, because there is no room.
    pub(crate) capped: Amount,
    /// Numbers that are served.
    pub(crate) served: u32,
}

impl Bucket {
    /// The same bucket after a write took `cost` and its reply did not show the row.
    #[must_use]
    pub fn after_taking(&self, cost: Cost) -> Self {
        self.less(cost.amount())
    }

    /// The same bucket after a write that took a lot.
    pub(crate) fn with_lot(mut self) -> Self {
        self.lots = self.lots.saturating_add(1);
        self
    }

    /// The same bucket on another line, as an earlier write than the last one left it.
    pub(crate) fn as_left(
        &self,
        tokens: Amount,
        anchor: Exact<Timestamp>,
        returned: Amount,
        lots: i64,
    ) -> Self {
        Self { tokens, anchor, returned, lots, ..self.clone() }
    }

    /// The same bucket after a write that moved an anchor in the future back to `now`.
    pub(crate) fn repaired(&self, tokens: Amount, now: Timestamp) -> Self {
        Self { repaired_at: Some(now), ..self.moved(tokens, now) }.with_lot()
    }

    pub(crate) fn less(&self, amount: Amount) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.minus(amount);
        after.version = self.version.saturating_add(1);
        after
    }

    /// A bucket of `limit`, a part of this one's, as a process counts it by itself: at `now` it has that part
    /// of this one's level, and a cool-down holds.
    #[must_use]
    pub fn part(&self, limit: Limit, now: Timestamp) -> Self {
        self.part_of(self.level(now), self.limit.capacity(), limit, now)
    }

    /// The same of all lines together: `limit` is a part of the whole limit.
    #[must_use]
    pub fn part_of_whole(&self, limit: Limit, now: Timestamp) -> Self {
        self.part_of(self.whole_level(now), self.whole_limit().capacity(), limit, now)
    }

    fn part_of(&self, level: Amount, capacity: Amount, limit: Limit, now: Timestamp) -> Self {
        let tokens = level.scaled(limit.capacity(), capacity);
        Self { tokens, blocked_until: self.blocked_until, ..Self::full(self.dimension.clone(), limit, now) }
    }

    /// The same bucket after `cost` was given back.
    #[must_use]
    pub fn after_giving_back(&self, cost: Cost) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.plus(cost.amount());
        after.version = self.version.saturating_add(1);
        after
    }

    /// The same bucket after a write that left it with these inline leases.
    pub(crate) fn after_inline(&self, moved: Moved, leases: InlineLeases) -> Self {
        let mut after = self.clone();
        after.served = self.served.map(|served| served.saturating_add(i64::from(moved.served)));
        after.tokens = self.tokens.plus(moved.slots);
        after.version = self.version.saturating_add(1);
        after.counted = self.counted.saturating_add(1);
        if moved.granted > Amount::ZERO {
            after.admitted = Some(self.admitted.unwrap_or_default().plus(moved.granted));
            after.admitted_inline = Some(self.admitted_inline.unwrap_or_default().plus(moved.granted));
        }
        if moved.capped > Amount::ZERO {
            after.capped = Some(Exact::new(self.capped().unwrap_or_default().plus(moved.capped)));
        }
        after.inline = Some(Arc::new(leases));
        after
    }

    /// The same bucket, moved to the line through `tokens` at `anchor`.
    pub(crate) fn moved(&self, tokens: Amount, anchor: Timestamp) -> Self {
        let mut after = self.clone();
        after.tokens = tokens;
        after.anchor = Exact::new(anchor);
        after.version = self.version.saturating_add(1);
        after
    }
}
