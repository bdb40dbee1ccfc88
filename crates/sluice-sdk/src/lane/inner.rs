use std::sync::Arc;

use sluice_core::{Bucket, Dimension, RatePlanner, Timestamp};
use sluice_table::{Store, StoreError};

use crate::api::refusal::RetryIn;
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

    pub(crate) fn entry(&self, dimension: &Dimension) -> Arc<Entry> {
        self.cache.entry(dimension, || self.now())
    }

    /// Returns the planner for a reading of a rate bucket, at `now`. Every write that grants tokens is
    /// planned by it. The local share (`fallback`) plans without it: its buckets are in no table.
    pub(crate) fn planner<'a>(&self, bucket: &'a Bucket, now: Timestamp) -> RatePlanner<'a> {
        RatePlanner::at(bucket, now, || self.store.clock().future_anchor())
    }
}
