//! A bucket that this process uses: what it knows of it, and the lanes of those who take from it and give back.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_core::{Bucket, Cost, Dimension, Timestamp};
use tokio::time::Instant;

use crate::bucket::known::Known;
use crate::lane::inline::InlineLane;
use crate::lane::part::Part;
use crate::lane::prefetch::Stock;
use crate::lane::release::ReleaseLane;
use crate::lane::rows::RowLane;
use crate::lane::settle::SettleLane;
use crate::lane::tokens::TokenLane;
use crate::lazy::Lazy;
use crate::telemetry::label::Named;

/// One bucket, shared by all that use it in this process.
pub(crate) struct Entry {
    known: Known,
    /// Booked starts whose callers went away and that could not be given back, since others had booked behind them.
    abandoned: Mutex<Vec<Part>>,
    /// Who takes tokens.
    pub(crate) tokens: Lazy<Arc<TokenLane>>,
    /// Who takes slots with inline leases, and gives them back.
    pub(crate) inline: Lazy<Arc<InlineLane>>,
    /// Who gives back slots with lease rows.
    pub(crate) releases: Lazy<Arc<ReleaseLane>>,
    /// Calls that are settled.
    pub(crate) settles: Lazy<Arc<SettleLane>>,
    /// The lanes of sets that it is in, for those who wait there for its slots.
    rows: Mutex<Vec<Weak<RowLane>>>,
    /// Tokens taken ahead of demand, if the client does so.
    pub(crate) stock: Option<Box<Stock>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.dimension.fmt(f)
    }
}

impl Deref for Entry {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.known
    }
}

impl Entry {
    pub(super) fn new(dimension: Dimension, stock: Option<Box<Stock>>, named: Named) -> Self {
        Self {
            known: Known::new(dimension, named),
            abandoned: Mutex::default(),
            tokens: Lazy::default(),
            inline: Lazy::default(),
            releases: Lazy::default(),
            settles: Lazy::default(),
            rows: Mutex::default(),
            stock,
        }
    }

    /// After a write whose reply showed the row. Replies may overtake each other: an older version does not replace a newer one.
    pub(crate) fn apply_write(&self, bucket: Arc<Bucket>, now: Timestamp) {
        self.heed_cool_down(&bucket, now);
        self.known.apply_write(bucket, now);
    }

    /// After a read or a failed condition: the row as it is, whatever was believed (it may have been made anew).
    pub(crate) fn apply_read(&self, bucket: Arc<Bucket>, now: Timestamp) {
        self.heed_cool_down(&bucket, now);
        self.known.apply_read(bucket, now);
    }

    /// What was taken before the vendor asked for a pause is not used during it.
    fn heed_cool_down(&self, bucket: &Bucket, now: Timestamp) {
        if bucket.blocked_until().is_some_and(|until| until > now) {
            self.stock.iter().for_each(|stock| stock.clear());
        }
    }

    /// A read that was sent at `asked`, which was `asked_at`, found no row: for a moment, nobody asks the table again. If the bucket was made
    /// since, or another reply showed it, this one is of before and tells nothing.
    pub(crate) fn missed(&self, asked: Instant, asked_at: Timestamp) {
        let was_seen = self.reading().is_some_and(|reading| reading.is_read_since(asked_at));
        if !was_seen && !self.was_made_since(asked) {
            self.gone();
            self.known.missing(asked_at);
        }
    }

    /// The bucket is made, has other limits, or is gone: nothing that was known of it counts.
    pub(crate) fn forget(&self) {
        self.stock.iter().for_each(|stock| stock.clear());
        self.forget_abandoned();
        self.known.forget();
    }

    /// This process gave `cost` back: those in line for it may take it without asking first.
    pub(crate) fn slot_freed(&self, cost: Cost) {
        self.known.slot_freed(cost);
        self.wake_rows();
    }

    /// Whether there may be a start that another caller left.
    pub(crate) fn has_abandoned(&self) -> bool {
        !self.abandoned.lock().is_empty()
    }

    /// Keeps a booked start that its caller left, for the next.
    pub(crate) fn abandon(&self, part: Part) {
        self.abandoned.lock().push(part);
    }

    /// A start that another caller left, at the same cost, not past and not later than `latest`; the earliest there is.
    pub(crate) fn take_over(&self, cost: Cost, now: Timestamp, latest: Timestamp) -> Option<Part> {
        let mut abandoned = self.abandoned.lock();
        abandoned.retain(|part| part.start_at > now);
        let fits = |part: &Part| part.cost == cost && part.start_at <= latest;
        let (at, _) =
            abandoned.iter().enumerate().filter(|(_, part)| fits(part)).min_by_key(|(_, part)| part.start_at)?;
        Some(abandoned.swap_remove(at))
    }

    /// The bucket was removed: nothing that was known of it counts, and its gauges do not stand still at what it was.
    pub(crate) fn gone(&self) {
        self.forget();
        self.untell();
    }

    pub(super) fn forget_abandoned(&self) {
        self.abandoned.lock().clear();
    }

    /// Whether more than `references` refer to it, or it keeps a start that is still to come.
    pub(super) fn is_in_use(self: &Arc<Self>, references: usize, now: Timestamp) -> bool {
        let mut abandoned = self.abandoned.lock();
        abandoned.retain(|part| part.start_at > now);
        !abandoned.is_empty() || Arc::strong_count(self) > references
    }

    pub(super) fn was_in_sets(&self) -> bool {
        !self.rows.lock().is_empty()
    }

    /// It is in the set of this lane, and wakes those who wait there.
    pub(super) fn is_in_set(&self, lane: &Arc<RowLane>) {
        let mut rows = self.rows.lock();
        if rows.len() == rows.capacity() {
            rows.retain(|lane| lane.strong_count() > 0);
        }
        rows.push(Arc::downgrade(lane));
    }

    /// A sweep of this process gave slots back: those in line look again.
    pub(crate) fn slots_reclaimed(&self) {
        self.doubt();
        self.wake_rows();
        self.inline.get().into_iter().for_each(|lane| lane.wake());
    }

    fn wake_rows(&self) {
        self.rows.lock().iter().filter_map(Weak::upgrade).for_each(|lane| lane.wake());
    }
}

#[cfg(test)]
mod tests;
