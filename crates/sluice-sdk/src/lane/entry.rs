//! A bucket that this process uses: what is known of it, and the lanes that take from it and give back.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_core::{Bucket, COMMON, Cost, Dimension, ShareName, Timestamp};
use sluice_vendors::Profile;
use tokio::time::Instant;

use crate::bucket::known::Known;
use crate::bucket::near_limit::{NearLimit, WarnAt};
use crate::bucket::noted_use::NotedUse;
use crate::lane::inline::InlineLane;
use crate::lane::part::Part;
use crate::lane::prefetch::Stock;
use crate::lane::release::ReleaseLane;
use crate::lane::rows::RowLane;
use crate::lane::settle::SettleLane;
use crate::lane::tokens::TokenLane;
use crate::lane::unsettled::Unsettled;
use crate::lazy::Lazy;
use crate::telemetry::label::NamedBuckets;

pub(crate) struct Entry {
    known: Known,
    /// How the vendor's replies are read, and how it counts.
    pub(crate) vendor: Arc<Profile>,
    /// Booked starts of callers that left. They cannot be given back: others have booked behind them.
    abandoned: Lazy<Box<Mutex<Vec<Part>>>>,
    /// The lane of callers that take tokens.
    pub(crate) tokens: Lazy<Arc<TokenLane>>,
    /// The lane of callers that take slots with inline leases or give them back.
    pub(crate) inline: Lazy<Arc<InlineLane>>,
    /// The lane of callers that give back slots with lease rows.
    pub(crate) releases: Lazy<Arc<ReleaseLane>>,
    /// The lane of calls that are settled.
    pub(crate) settles: Lazy<Arc<SettleLane>>,
    /// The lanes of the sets that contain this bucket, for callers that wait there for its slots.
    rows: Lazy<Box<Mutex<Vec<Weak<RowLane>>>>>,
    /// Tokens taken ahead of demand, if the client prefetches for this bucket.
    pub(crate) stock: Option<Box<Stock>>,
    /// What calls kept because nobody said what they used.
    pub(crate) unsettled: Unsettled,
    /// What this process used and has not noted yet.
    pub(crate) noted_use: NotedUse,
    near_limit: NearLimit,
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
    pub(super) fn new(
        (dimension, share): (Dimension, Option<ShareName>),
        vendor: Arc<Profile>,
        stock: Option<Box<Stock>>,
        named: NamedBuckets,
        warn_at: Arc<WarnAt>,
    ) -> Self {
        Self {
            known: Known::new(dimension, share, named),
            vendor,
            abandoned: Lazy::default(),
            tokens: Lazy::default(),
            inline: Lazy::default(),
            releases: Lazy::default(),
            settles: Lazy::default(),
            rows: Lazy::default(),
            stock,
            unsettled: Unsettled::default(),
            noted_use: NotedUse::default(),
            near_limit: NearLimit::new(warn_at),
        }
    }

    /// Stores the row of a write's reply, unless a newer version is known: replies may overtake each other.
    pub(crate) fn apply_write(&self, bucket: Arc<Bucket>, now: Timestamp) {
        self.apply_cool_down(&bucket, now);
        self.known.apply_write(Arc::clone(&bucket), now);
        self.near_limit.look(&bucket, now, || self.label());
    }

    /// Stores the row of a read or a failed condition, whatever was known: the bucket may have been
    /// recreated.
    pub(crate) fn apply_read(&self, bucket: Arc<Bucket>, now: Timestamp) {
        self.apply_cool_down(&bucket, now);
        self.known.apply_read(Arc::clone(&bucket), now);
        self.near_limit.look(&bucket, now, || self.label());
    }

    /// Warns if most of the limit is used, after a transaction: it does not show the row.
    pub(crate) fn look_near(&self, now: Timestamp) {
        if let Some(reading) = self.reading() {
            self.near_limit.look(&reading.bucket, now, || self.label());
        }
    }

    /// Tokens in stock that were taken before the vendor asked for a cool-down are not used during it.
    fn apply_cool_down(&self, bucket: &Bucket, now: Timestamp) {
        if bucket.blocked_until().is_some_and(|until| until > now) {
            self.stock.iter().for_each(|stock| stock.clear());
        }
    }

    /// Notes that a read found no row. The read was sent at `asked`, which was `asked_at` by the time of the
    /// table. For a moment, nobody asks the table again. If the bucket was created since, or another reply
    /// showed it since, this reply is out of date and changes nothing.
    pub(crate) fn note_missing(&self, asked: Instant, asked_at: Timestamp) {
        let was_seen = self.reading().is_some_and(|reading| reading.is_read_since(asked_at));
        if !was_seen && !self.was_made_since(asked) {
            self.forget_removed();
            self.known.set_missing(asked_at);
        }
    }

    /// Forgets everything that was known of the bucket: it was created, got other limits, or is gone.
    pub(crate) fn forget(&self) {
        self.stock.iter().for_each(|stock| stock.clear());
        self.forget_abandoned();
        self.known.forget();
    }

    /// Notes that this process gave back `cost`. Callers that wait may take it without a read first.
    pub(crate) fn slot_freed(&self, cost: Cost) {
        self.known.slot_freed(cost);
        self.wake_rows();
        self.inline.get().into_iter().for_each(|lane| lane.wake());
    }

    /// The line that the bucket is seen from, if it is known to have shares.
    pub(crate) fn line(&self) -> Option<String> {
        let bucket = self.reading().map(|reading| reading.bucket).filter(|bucket| bucket.has_shares())?;
        Some(bucket.share().map_or(COMMON, ShareName::as_str).to_owned())
    }

    /// Whether another caller may have left a start.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.abandoned.get().is_some_and(|abandoned| !abandoned.lock().is_empty())
    }

    /// Keeps a booked start that its caller left, for the next caller.
    pub(crate) fn abandon(&self, part: Part) {
        self.abandoned.lock().push(part);
    }

    /// Returns the earliest start of the same cost that another caller left, not past nor after `latest`.
    pub(crate) fn take_over(&self, cost: Cost, now: Timestamp, latest: Timestamp) -> Option<Part> {
        let mut abandoned = self.abandoned.get()?.lock();
        abandoned.retain(|part| part.start_at > now);
        let fits = |part: &Part| part.cost == cost && part.start_at <= latest;
        let (at, _) = abandoned
            .iter()
            .enumerate()
            .filter(|(_, part)| fits(part))
            .min_by_key(|(_, part)| part.start_at)?;
        Some(abandoned.swap_remove(at))
    }

    /// Notes that the bucket was removed: forgets it, and its gauges do not keep their last values.
    pub(crate) fn forget_removed(&self) {
        self.forget();
        self.clear_gauges();
    }

    pub(super) fn forget_abandoned(&self) {
        self.abandoned.get().into_iter().for_each(|abandoned| abandoned.lock().clear());
    }

    /// Whether more than `references` references exist, or the entry keeps a start that is still to come.
    pub(super) fn is_in_use(self: &Arc<Self>, references: usize, now: Timestamp) -> bool {
        let keeps_start = self.abandoned.get().is_some_and(|abandoned| {
            let mut abandoned = abandoned.lock();
            abandoned.retain(|part| part.start_at > now);
            !abandoned.is_empty()
        });
        keeps_start || Arc::strong_count(self) > references
    }

    pub(super) fn was_in_sets(&self) -> bool {
        self.rows.get().is_some_and(|rows| !rows.lock().is_empty())
    }

    /// Notes that the bucket is in the set of this lane. The bucket wakes the callers that wait there.
    pub(super) fn is_in_set(&self, lane: &Arc<RowLane>) {
        let mut rows = self.rows.lock();
        if rows.len() == rows.capacity() {
            rows.retain(|lane| lane.strong_count() > 0);
        }
        rows.push(Arc::downgrade(lane));
    }

    /// Notes that a sweep of this process gave slots back: callers in the queues look again.
    pub(crate) fn slots_reclaimed(&self) {
        self.doubt();
        self.wake_rows();
        self.inline.get().into_iter().for_each(|lane| lane.wake());
    }

    fn wake_rows(&self) {
        let Some(rows) = self.rows.get() else { return };
        rows.lock().iter().filter_map(Weak::upgrade).for_each(|lane| lane.wake());
    }
}

#[cfg(test)]
mod tests;
