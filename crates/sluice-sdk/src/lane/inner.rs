//! What all clones of a client share, and the entries of its buckets by their names.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use sluice_core::{Bucket, COMMON, Dimension, RatePlanner, ShareName, SlotShare, Timestamp};
use sluice_table::{Store, StoreError};

use crate::api::refusal::RetryIn;
use crate::api::request::{Ask, Payer};
use crate::config::Config;
use crate::extensions::Extensions;
use crate::lane::background::Background;
use crate::lane::cache::Cache;
use crate::lane::entry::Entry;
use crate::lane::fallback::Fallback;

/// What all clones of a client share.
pub(crate) struct Inner {
    pub(crate) store: Store,
    /// The same connection, for what can wait for DynamoDB's return: releases, settlements, renewals.
    pub(crate) patient: Store,
    pub(crate) config: Config,
    pub(crate) cache: Cache,
    pub(crate) fallback: Fallback,
    pub(crate) background: Background,
    /// Learns that callers want slots.
    pub(crate) refusals: Box<dyn Refusals>,
    /// State that features keep for the client.
    pub(crate) extensions: Extensions,
}

/// Learns that callers want slots of a bucket that has none for them.
pub(crate) trait Refusals: Send + Sync {
    /// A caller was refused, and may come back after the wait in `retry`.
    fn refused(&self, inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn);

    /// A caller in the queue looked without success, and will look again.
    fn waits(&self, inner: &Arc<Inner>, entry: &Arc<Entry>, retry: &RetryIn);
}

/// Shares that callers named and that the bucket does not have.
#[derive(Debug, Default)]
struct UnknownShares(Mutex<HashSet<String>>);

/// Names may come from input.
const MOST_UNKNOWN: usize = 100;

impl UnknownShares {
    /// Logs each name once.
    fn report(&self, bucket: &Bucket, share: &str) {
        let mut names = self.0.lock();
        if names.len() < MOST_UNKNOWN && !names.contains(share) {
            names.insert(share.to_owned());
            let of_slots = bucket.slot_shares().iter().map(|share| share.name.as_str());
            let shares: Vec<&str> = bucket.shares().map(ShareName::as_str).chain(of_slots).collect();
            tracing::warn!(event = "share.unknown", dimension = %bucket.dimension(), share, shares = shares.join(" "),
                "the bucket does not have this share: its callers take from the common line");
        }
    }
}

/// Prints less than the client has learned: the reader of a printed grant wants to see the grant.
impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("table", &self.store.table()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns DynamoDB's time, as far as known: for what is refused, measured or shown.
    pub(crate) fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Returns DynamoDB's time, for what is about to be written.
    ///
    /// # Errors
    /// [`StoreError`] if the time is not known and the table does not answer.
    pub(crate) async fn time(&self) -> Result<Timestamp, StoreError> {
        self.store.time().await
    }

    pub(crate) fn refused(self: &Arc<Self>, entry: &Arc<Entry>, retry: &RetryIn) {
        self.refusals.refused(self, entry, retry);
    }

    pub(crate) fn waits(self: &Arc<Self>, entry: &Arc<Entry>, retry: &RetryIn) {
        self.refusals.waits(self, entry, retry);
    }

    /// The bucket as the client's own share sees it.
    pub(crate) fn entry(&self, dimension: &Dimension) -> Arc<Entry> {
        self.entry_of(dimension, self.config.share.as_ref())
    }

    /// The bucket as a share sees it. A bucket that is known to lack the share is seen from its common line:
    /// all such callers share its lanes. A share of slots has a row of its own, which is a bucket.
    pub(crate) fn entry_of(&self, dimension: &Dimension, share: Option<&ShareName>) -> Arc<Entry> {
        if let Some(instead) = share.and_then(|share| self.instead(dimension.as_str(), share.as_str())) {
            return instead;
        }
        self.cache.entry(dimension, share, || self.now())
    }

    /// The entry of a share that the bucket has, as a reply showed.
    pub(crate) fn line_of(&self, dimension: &Dimension, share: Option<&ShareName>) -> Arc<Entry> {
        self.cache.entry(dimension, share, || self.now())
    }

    /// The entry to use instead, if the bucket's row is known to have no line for the share: that of the
    /// share's own row, or that of the common line if the bucket has no such share.
    fn instead(&self, dimension: &str, share: &str) -> Option<Arc<Entry>> {
        let common = self.cache.get(dimension, None)?;
        let bucket = common.reading()?.bucket;
        if bucket.shares().any(|name| name.as_str() == share) {
            return None;
        }
        if let Some(share) = bucket.slot_share(share) {
            return Some(self.row_of(&bucket, share));
        }
        let is_changing = bucket.slot_shares().iter().any(|named| named.name.as_str() == share);
        if (bucket.has_shares() || !bucket.slot_shares().is_empty()) && !is_changing {
            common.extensions.of::<UnknownShares>().report(&bucket, share);
        }
        Some(common)
    }

    /// The row of a share of a concurrency bucket.
    pub(crate) fn row_of(&self, bucket: &Bucket, share: &SlotShare) -> Arc<Entry> {
        let entry = self.cache.entry(&share.row, None, || self.now());
        entry.is_row_of(bucket.dimension(), &share.name);
        entry
    }

    /// The bucket as the share sees it that pays for this ask.
    pub(crate) fn entry_for(&self, ask: &Ask) -> Arc<Entry> {
        match &ask.share {
            Payer::Client => self.entry(&ask.dimension),
            Payer::Named(share) => self.entry_of(&ask.dimension, share.as_ref()),
        }
    }

    /// As [`entry_for`](Self::entry_for), by names as a caller wrote them; `None` for a bucket that was not
    /// met yet.
    pub(crate) fn known_entry(&self, dimension: &str, share: Option<&str>) -> Option<Arc<Entry>> {
        let share = share.or_else(|| self.config.share.as_ref().map(ShareName::as_str));
        let share = share.filter(|share| *share != COMMON);
        share.and_then(|share| self.instead(dimension, share)).or_else(|| self.cache.get(dimension, share))
    }

    /// The bucket as any share sees it that this process has met.
    pub(crate) fn any_entry(&self, dimension: &Dimension) -> Option<Arc<Entry>> {
        self.known_entry(dimension.as_str(), None)
            .or_else(|| self.cache.entries_of(dimension).into_iter().next())
    }

    /// All that this process knows of a bucket: as each share sees it, the client's own first.
    pub(crate) fn entries_of(&self, dimension: &Dimension) -> Vec<Arc<Entry>> {
        // The row of the client's own share of slots is another bucket.
        let own = Some(self.entry(dimension)).filter(|own| own.dimension == *dimension);
        let own = own.unwrap_or_else(|| self.entry_of(dimension, None));
        let others = self.cache.entries_of(dimension).into_iter().filter(|entry| !Arc::ptr_eq(entry, &own));
        let mut entries: Vec<_> = others.collect();
        entries.insert(0, own);
        entries
    }

    /// What was taken ahead is not used: the bucket was lowered or refilled since.
    pub(crate) fn clear_stock(&self, dimension: &Dimension) {
        for entry in self.entries_of(dimension) {
            entry.stock.iter().for_each(|stock| stock.clear());
        }
    }

    /// Returns the planner for a reading of a rate bucket, at `now`. Every write that grants tokens is
    /// planned by it. The local share (`fallback`) plans without it: its buckets are in no table.
    pub(crate) fn planner<'a>(&self, bucket: &'a Bucket, now: Timestamp) -> RatePlanner<'a> {
        RatePlanner::at(bucket, now, || self.store.clock().future_anchor())
    }
}
