//! What the process last saw of a bucket. It saves reads and may refuse callers; it never grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Bucket, Cost, Dimension, Limit, Load, ShareName, Timestamp};
use tokio::time::Instant;

use crate::bucket::first_read::FirstRead;
use crate::bucket::load::LoadSeen;
use crate::bucket::presence::{Presence, is_within};
use crate::extensions::Extensions;
use crate::lazy::Lazy;
use crate::telemetry;
use crate::telemetry::label::{BucketLabel, NamedBuckets, OTHER};
use crate::telemetry::meters::Meters;

/// How long a reading may refuse callers without a request. Larger saves requests, but learns later of tokens
/// that other processes gave back; smaller costs a failed write each time.
const RATE_MEMORY: Duration = Duration::from_secs(1);
/// The same for a concurrency bucket, whose slots another process may release at any moment.
const SLOT_MEMORY: Duration = Duration::from_millis(200);

/// How long a bucket counts as contended after writers made each other fail. Larger keeps headroom in quiet
/// times; smaller meets the conflict again.
const CONTENTION_MEMORY: Duration = Duration::from_secs(10);

/// The least headroom of a contended bucket. If four times the time that a write was under way is more, that
/// is the headroom.
const HEADROOM: Duration = Duration::from_millis(100);

type AnchorConflict = Mutex<Option<(Timestamp, Duration)>>;

pub(crate) struct Known {
    pub(crate) dimension: Dimension,
    /// The share that the bucket is seen from. A bucket that does not have it is seen from its common line.
    pub(crate) share: Option<ShareName>,
    /// The concurrency bucket and its share that this is the row of, once that is known.
    share_of: OnceLock<Box<(Dimension, ShareName)>>,
    reading: Mutex<Option<BucketReading>>,
    presence: Presence,
    /// Whether the bucket was used since the cache last looked for an entry to forget.
    is_marked: AtomicBool,
    /// When a write last failed because another had moved the anchor, and how long it was under way.
    anchor_conflict: Lazy<Box<AnchorConflict>>,
    /// Held during the first read of the row, so that many callers share one read.
    pub(crate) loading: tokio::sync::Mutex<FirstRead>,
    pub(crate) load: Lazy<Box<LoadSeen>>,
    /// What follows the bucket over time, if anything does.
    watch: OnceLock<Arc<dyn Watch>>,
    /// State that features keep for the bucket.
    pub(crate) extensions: Lazy<Box<Extensions>>,
    label: BucketLabel,
    pub(crate) meters: Meters,
}

/// Follows a bucket over time.
pub(crate) trait Watch: Send + Sync {
    /// A reply showed the bucket. `load` returns the load row as last seen.
    fn apply_read(&self, bucket: &Bucket, load: &dyn Fn() -> Option<Arc<Load>>, now: Timestamp);

    /// This process gave back a slot of the bucket.
    fn completed(&self, now: Timestamp);
}

/// A bucket as a reply showed it.
#[derive(Clone, Debug)]
pub(crate) struct BucketReading {
    pub(crate) bucket: Arc<Bucket>,
    /// When a reply last showed the row, unless the reading has been doubted since.
    seen_at: Timestamp,
    /// When a reply last showed the row.
    read_at: Timestamp,
}

impl BucketReading {
    fn new(bucket: Arc<Bucket>, now: Timestamp) -> Self {
        Self { bucket, seen_at: now, read_at: now }
    }

    /// Whether the limits in the reading may be long out of date.
    pub(crate) fn is_unread(&self, now: Timestamp) -> bool {
        self.bucket.limit().is_concurrent() && now.since(self.read_at) > UNREAD_AT_MOST
    }

    /// Whether a reply has shown the row within `span`.
    pub(crate) fn is_younger_than(&self, span: Duration, now: Timestamp) -> bool {
        is_within(span, self.read_at, now)
    }

    /// How long ago a reply last showed the row.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        now.since(self.read_at)
    }

    /// Whether the reading has been doubted since a reply showed the row.
    pub(crate) fn is_doubted(&self) -> bool {
        self.seen_at < self.read_at
    }

    /// Whether a reply showed the row at `at` or later.
    pub(crate) fn is_read_since(&self, at: Timestamp) -> bool {
        self.read_at >= at
    }

    /// Whether the reading is young enough to refuse callers.
    pub(crate) fn may_refuse(&self, now: Timestamp) -> bool {
        let memory = if self.bucket.limit().is_concurrent() { SLOT_MEMORY } else { RATE_MEMORY };
        is_within(memory, self.seen_at, now)
    }
}

/// A concurrency bucket is read again after this: a transaction does not show the row, and limits may change.
const UNREAD_AT_MOST: Duration = Duration::from_secs(60);

impl Known {
    pub(crate) fn new(dimension: Dimension, share: Option<ShareName>, named: NamedBuckets) -> Self {
        Self {
            dimension,
            share,
            share_of: OnceLock::new(),
            reading: Mutex::default(),
            presence: Presence::default(),
            is_marked: AtomicBool::new(false),
            anchor_conflict: Lazy::default(),
            loading: tokio::sync::Mutex::default(),
            load: Lazy::default(),
            watch: OnceLock::new(),
            extensions: Lazy::default(),
            label: BucketLabel::new(named),
            meters: Meters::default(),
        }
    }

    /// Notes that this is the row of a share of a concurrency bucket.
    pub(crate) fn is_row_of(&self, bucket: &Dimension, share: &ShareName) {
        self.share_of.get_or_init(|| Box::new((bucket.clone(), share.clone())));
    }

    /// The concurrency bucket and the share whose row this is.
    pub(crate) fn share_of(&self) -> Option<&(Dimension, ShareName)> {
        self.share_of.get().map(|of| &**of)
    }

    /// The bucket as callers name it: they name no rows of shares.
    pub(crate) fn asked(&self) -> &Dimension {
        self.share_of().map_or(&self.dimension, |(bucket, _)| bucket)
    }

    /// The share that callers named, or the client.
    pub(crate) fn payer(&self) -> Option<&ShareName> {
        self.share_of().map_or(self.share.as_ref(), |(_, share)| Some(share))
    }

    /// The limit of the bucket, as far as it is known.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.reading.lock().as_ref().map(|reading| *reading.bucket.limit())
    }

    pub(crate) fn reading(&self) -> Option<BucketReading> {
        self.reading.lock().clone()
    }

    /// The bucket's name in metrics, shared with others if the process has met too many buckets.
    pub(crate) fn label(&self) -> ::metrics::SharedString {
        self.label.of(&self.dimension, || self.reading().is_some())
    }

    /// The same for a bucket of which a sweep found rows, even if this process never read its own row.
    pub(crate) fn swept_label(&self) -> ::metrics::SharedString {
        self.label.of(&self.dimension, || true)
    }

    /// The same, unless another bucket shares the name: values of two buckets must not overwrite each other.
    pub(crate) fn own_label(&self) -> Option<::metrics::SharedString> {
        Some(self.label()).filter(|label| **label != *OTHER)
    }

    /// Reports to recorders what the bucket holds, as last seen and refilled since.
    pub(crate) fn publish_level(&self, now: Timestamp) {
        if let Some(reading) = self.reading() {
            self.publish_level_of(&reading.bucket, now);
        }
    }

    /// The same for a row as it was read.
    pub(crate) fn publish_level_of(&self, bucket: &Bucket, now: Timestamp) {
        if let Some(label) = self.own_label() {
            telemetry::level(label, &self.meters, bucket.whole_level(now), bucket.whole_limit().capacity());
        }
    }

    /// Reports what the load row states. A measured bucket exists, even if this process never read its row.
    pub(crate) fn publish_load(&self, load: &Load) {
        let label = self.swept_label();
        if *label != *OTHER {
            telemetry::load(label, &self.meters, load.pending(), load.drain_rate());
        }
    }

    pub(crate) fn clear_gauges(&self) {
        if let Some(label) = self.own_label() {
            telemetry::gone(label, &self.meters);
        }
    }

    /// Stores what the bucket must be, at most, after a transaction on a rate bucket: a transaction does not
    /// show the row. The reading does not become younger, because others may have given back.
    pub(crate) fn predicted(&self, bucket: Arc<Bucket>) {
        let mut reading = self.reading.lock();
        if let Some(known) = reading.as_mut().filter(|known| known.bucket.version() <= bucket.version()) {
            known.bucket = bucket;
        }
    }

    /// The same for slots: `total` was taken.
    pub(crate) fn slots_taken(&self, total: Cost) {
        if let Some(known) = self.reading.lock().as_mut() {
            known.bucket = Arc::new(known.bucket.after_taking(total));
        }
    }

    /// Notes that another process moved the anchor at the same time.
    pub(crate) fn anchor_conflict(&self, now: Timestamp, under_way: Duration) {
        *self.anchor_conflict.lock() = Some((now, under_way));
    }

    /// The headroom that full writes should leave: none, unless conflicts are recent.
    pub(crate) fn headroom(&self, now: Timestamp) -> Duration {
        match self.anchor_conflict.get().and_then(|last| *last.lock()) {
            Some((at, under_way)) if now.since(at) < CONTENTION_MEMORY => HEADROOM.max(under_way * 4),
            _ => Duration::ZERO,
        }
    }

    /// From now on the reading refuses nobody.
    pub(crate) fn doubt(&self) {
        if let Some(reading) = self.reading.lock().as_mut() {
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
    }

    /// Stores the row that the reply to a write showed. An older version does not replace a newer one.
    pub(crate) fn apply_write(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let is_news = self.has_new_cool_down(&bucket, now);
        let mut reading = self.reading.lock();
        if reading.as_ref().is_none_or(|known| known.bucket.version() <= bucket.version()) {
            self.notify_watch(&bucket, now);
            *reading = Some(BucketReading::new(bucket, now));
        }
        drop(reading);
        is_news.then(|| telemetry::cool_down_seen(self.label()));
    }

    /// Stores the row as a read or a failed condition showed it.
    pub(crate) fn apply_read(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let is_news = self.has_new_cool_down(&bucket, now);
        self.notify_watch(&bucket, now);
        *self.reading.lock() = Some(BucketReading::new(bucket, now));
        // By now the bucket has a name in metrics.
        is_news.then(|| telemetry::cool_down_seen(self.label()));
    }

    /// Whether the vendor asked for a cool-down that was not known before.
    fn has_new_cool_down(&self, bucket: &Bucket, now: Timestamp) -> bool {
        let Some(until) = bucket.blocked_until().filter(|until| *until > now) else { return false };
        let known = self.reading().and_then(|reading| reading.bucket.blocked_until());
        known.is_none_or(|known| known < until)
    }

    /// Reports every reply to `watch` from now on, unless another watch is already set.
    pub(crate) fn watched_by(&self, watch: impl FnOnce() -> Arc<dyn Watch>) {
        self.watch.get_or_init(watch);
    }

    fn notify_watch(&self, bucket: &Bucket, now: Timestamp) {
        self.watch.get().into_iter().for_each(|watch| watch.apply_read(bucket, &|| self.load.last(), now));
    }

    pub(crate) fn completed(&self, now: impl FnOnce() -> Timestamp) {
        if let Some(watch) = self.watch.get() {
            watch.completed(now());
        }
    }

    pub(crate) fn forget(&self) {
        *self.reading.lock() = None;
        self.presence.doubt();
    }

    pub(crate) fn slot_freed(&self, cost: Cost) {
        if let Some(reading) = self.reading.lock().as_mut() {
            reading.bucket = Arc::new(reading.bucket.after_giving_back(cost));
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
    }

    pub(crate) fn set_missing(&self, asked_at: Timestamp) {
        self.presence.missed(asked_at);
    }

    /// Whether a read showed a moment ago that the table does not have the bucket.
    pub(crate) fn is_known_missing(&self, now: Timestamp) -> bool {
        self.presence.is_missing(now)
    }

    /// Notes that this process has created the bucket, or found it created.
    pub(crate) fn is_made(&self) {
        self.presence.made();
    }

    pub(crate) fn was_made_since(&self, asked: Instant) -> bool {
        self.presence.was_made_since(asked)
    }

    /// Marks the bucket as used. The mark is written at most once for each pass of the cache's queue: memory
    /// that all threads write cannot stay in the CPU caches of all of them.
    pub(crate) fn mark(&self) {
        if !self.is_marked.load(Ordering::Relaxed) {
            self.is_marked.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the bucket was used since the last call, and clears the mark.
    pub(crate) fn take_mark(&self) -> bool {
        self.is_marked.swap(false, Ordering::Relaxed)
    }
}
