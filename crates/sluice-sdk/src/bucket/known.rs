//! What the process last saw of a bucket. It saves reads, and may refuse; it never grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Bucket, Cost, Dimension, Limit, Load, Timestamp};
use tokio::time::Instant;

use crate::bucket::first_read::FirstRead;
use crate::bucket::load::LoadSeen;
use crate::bucket::presence::{Presence, is_within};
use crate::extensions::Extensions;
use crate::telemetry;
use crate::telemetry::label::{BucketLabel, Named, OTHER};
use crate::telemetry::meters::Meters;

/// How long a reading may refuse callers without a request. Larger saves requests and hears later of tokens given back by
/// other processes; smaller costs a failed write each time.
const RATE_MEMORY: Duration = Duration::from_secs(1);
/// The same for concurrency, where another process may release at any moment.
const SLOT_MEMORY: Duration = Duration::from_millis(200);

/// How long a bucket counts as contended after writers failed each other. Larger keeps headroom in quiet times; smaller meets
/// the conflict again.
const CONTENTION_MEMORY: Duration = Duration::from_secs(10);

/// The least headroom of a contended bucket; four times what a write was under way, where that is more.
const HEADROOM: Duration = Duration::from_millis(100);

/// What the process knows of one bucket.
pub(crate) struct Known {
    pub(crate) dimension: Dimension,
    reading: Mutex<Option<Reading>>,
    /// Whether the table has it, as far as it was looked for.
    presence: Presence,
    /// Whether it was used since the cache last looked for one to forget.
    is_marked: AtomicBool,
    /// When a write that moves the anchor last failed because another had moved it, and how long it was under way.
    anchor_conflict: Mutex<Option<(Timestamp, Duration)>>,
    /// Held while the row is read for the first time, so that many callers read it once.
    pub(crate) loading: tokio::sync::Mutex<FirstRead>,
    /// How much is pending, and how fast it departs.
    pub(crate) load: LoadSeen,
    /// Who follows the bucket over time, if anyone does.
    watch: OnceLock<Arc<dyn Watch>>,
    /// What features keep of it.
    pub(crate) extensions: Extensions,
    label: BucketLabel,
    pub(crate) meters: Meters,
}

/// Follows a bucket over time.
pub(crate) trait Watch: Send + Sync {
    /// A reply showed the bucket, whose load row was last seen as `load` returns.
    fn apply_read(&self, bucket: &Bucket, load: &dyn Fn() -> Option<Arc<Load>>, now: Timestamp);

    /// This process gave a slot of it back.
    fn completed(&self, now: Timestamp);
}

/// A bucket as a reply showed it.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) bucket: Arc<Bucket>,
    /// When a reply last showed the row, unless it is doubted since.
    seen_at: Timestamp,
    /// When a reply last showed the row.
    read_at: Timestamp,
}

impl Reading {
    /// Whether the limits in it may be long out of date.
    pub(crate) fn is_unread(&self, now: Timestamp) -> bool {
        self.bucket.limit().is_concurrent() && now.since(self.read_at) > UNREAD_AT_MOST
    }

    /// Whether a reply has shown the row within `span`.
    pub(crate) fn is_younger_than(&self, span: Duration, now: Timestamp) -> bool {
        is_within(span, self.read_at, now)
    }

    /// Whether a reply showed the row at `at` or later.
    pub(crate) fn is_read_since(&self, at: Timestamp) -> bool {
        self.read_at >= at
    }

    /// Whether it is young enough to refuse by.
    pub(crate) fn may_refuse(&self, now: Timestamp) -> bool {
        let memory = if self.bucket.limit().is_concurrent() { SLOT_MEMORY } else { RATE_MEMORY };
        is_within(memory, self.seen_at, now)
    }
}

/// A transaction does not show the row. This long after a reply did, a concurrency bucket is read again, so that changed limits
/// are heard of by a process that is never refused.
const UNREAD_AT_MOST: Duration = Duration::from_secs(60);

impl Known {
    pub(crate) fn new(dimension: Dimension, named: Named) -> Self {
        Self {
            dimension,
            reading: Mutex::default(),
            presence: Presence::default(),
            is_marked: AtomicBool::new(false),
            anchor_conflict: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            load: LoadSeen::default(),
            watch: OnceLock::new(),
            extensions: Extensions::default(),
            label: BucketLabel::new(named),
            meters: Meters::default(),
        }
    }

    /// Its limit, as far as is known.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.reading.lock().as_ref().map(|reading| *reading.bucket.limit())
    }

    pub(crate) fn reading(&self) -> Option<Reading> {
        self.reading.lock().clone()
    }

    /// Its name in metrics, which it shares with others where a process has met too many.
    pub(crate) fn label(&self) -> ::metrics::SharedString {
        self.label.of(&self.dimension, || self.reading().is_some())
    }

    /// The same for a bucket that a sweep found rows of, though this process never read its own.
    pub(crate) fn swept_label(&self) -> ::metrics::SharedString {
        self.label.of(&self.dimension, || true)
    }

    /// The same where no other bucket has it: what is so of one bucket must not overwrite what is so of another.
    pub(crate) fn own_label(&self) -> Option<::metrics::SharedString> {
        Some(self.label()).filter(|label| **label != *OTHER)
    }

    /// Tells recorders what it holds, as last seen and refilled since.
    pub(crate) fn tell_level(&self, now: Timestamp) {
        if let Some(reading) = self.reading() {
            self.tell_level_of(&reading.bucket, now);
        }
    }

    /// The same of a row as it was read.
    pub(crate) fn tell_level_of(&self, bucket: &Bucket, now: Timestamp) {
        if let Some(label) = self.own_label() {
            telemetry::level(label, &self.meters, bucket.level(now), bucket.limit().capacity());
        }
    }

    /// Tells recorders what its load row says. A bucket that was measured is there, though this process may never have read its row.
    pub(crate) fn tell_load(&self, load: &Load) {
        let label = self.swept_label();
        if *label != *OTHER {
            telemetry::load(label, &self.meters, load.pending(), load.drain_rate());
        }
    }

    /// Tells recorders that it is gone.
    pub(crate) fn untell(&self) {
        if let Some(label) = self.own_label() {
            telemetry::gone(label, &self.meters);
        }
    }

    /// After a transaction on a rate bucket, which shows no row: what it must be, at most. What is known of the bucket grows no
    /// younger by that: others may have given back.
    pub(crate) fn predicted(&self, bucket: Arc<Bucket>) {
        let mut reading = self.reading.lock();
        if let Some(known) = reading.as_mut().filter(|known| known.bucket.version() <= bucket.version()) {
            known.bucket = bucket;
        }
    }

    /// After a transaction that took slots. What else is known of the bucket grows no younger by that: others may have given back.
    pub(crate) fn slots_taken(&self, total: Cost) {
        if let Some(known) = self.reading.lock().as_mut() {
            known.bucket = Arc::new(known.bucket.after_taking(total));
        }
    }

    /// Another process moved the anchor at the same time.
    pub(crate) fn anchor_conflict(&self, now: Timestamp, under_way: Duration) {
        *self.anchor_conflict.lock() = Some((now, under_way));
    }

    /// The headroom that full writes should leave: none, unless such conflicts are so recent that more are to be expected.
    pub(crate) fn headroom(&self, now: Timestamp) -> Duration {
        match *self.anchor_conflict.lock() {
            Some((at, under_way)) if now.since(at) < CONTENTION_MEMORY => HEADROOM.max(under_way * 4),
            _ => Duration::ZERO,
        }
    }

    /// What was read no longer refuses anyone.
    pub(crate) fn doubt(&self) {
        if let Some(reading) = self.reading.lock().as_mut() {
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
    }

    /// After a write whose reply showed the row. An older version does not replace a newer one.
    pub(crate) fn apply_write(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let is_news = self.has_new_cool_down(&bucket, now);
        let mut reading = self.reading.lock();
        if reading.as_ref().is_none_or(|known| known.bucket.version() <= bucket.version()) {
            self.tell_watch(&bucket, now);
            *reading = Some(Reading { bucket, seen_at: now, read_at: now });
        }
        drop(reading);
        is_news.then(|| telemetry::cool_down_heard(self.label()));
    }

    /// After a read or a failed condition: the row as it is.
    pub(crate) fn apply_read(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let is_news = self.has_new_cool_down(&bucket, now);
        self.tell_watch(&bucket, now);
        *self.reading.lock() = Some(Reading { bucket, seen_at: now, read_at: now });
        // By now the bucket has a name in metrics.
        is_news.then(|| telemetry::cool_down_heard(self.label()));
    }

    /// Whether the vendor asked for a pause that was not known before.
    fn has_new_cool_down(&self, bucket: &Bucket, now: Timestamp) -> bool {
        let Some(until) = bucket.blocked_until().filter(|until| *until > now) else { return false };
        let known = self.reading().and_then(|reading| reading.bucket.blocked_until());
        known.is_none_or(|known| known < until)
    }

    /// Tells `watch` of every reply from now on, if nobody else is told.
    pub(crate) fn watched_by(&self, watch: impl FnOnce() -> Arc<dyn Watch>) {
        self.watch.get_or_init(watch);
    }

    fn tell_watch(&self, bucket: &Bucket, now: Timestamp) {
        self.watch.get().into_iter().for_each(|watch| watch.apply_read(bucket, &|| self.load.last(), now));
    }

    /// This process gave a slot back.
    pub(crate) fn completed(&self, now: impl FnOnce() -> Timestamp) {
        if let Some(watch) = self.watch.get() {
            watch.completed(now());
        }
    }

    /// Nothing that was known of it counts.
    pub(crate) fn forget(&self) {
        *self.reading.lock() = None;
        self.presence.doubt();
    }

    /// This process gave `cost` back.
    pub(crate) fn slot_freed(&self, cost: Cost) {
        if let Some(reading) = self.reading.lock().as_mut() {
            reading.bucket = Arc::new(reading.bucket.after_giving_back(cost));
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
    }

    /// A read of `asked_at` found no row.
    pub(crate) fn missing(&self, asked_at: Timestamp) {
        self.presence.missed(asked_at);
    }

    /// Whether the table was seen not to have it a moment ago.
    pub(crate) fn is_unknown(&self, now: Timestamp) -> bool {
        self.presence.is_missing(now)
    }

    /// This process has made the bucket, or found it made.
    pub(crate) fn is_made(&self) {
        self.presence.made();
    }

    /// Whether it has since.
    pub(crate) fn was_made_since(&self, asked: Instant) -> bool {
        self.presence.was_made_since(asked)
    }

    /// It was used. Written once for each turn of the cache's queue: a line of memory that all threads write would be shared by none.
    pub(crate) fn mark(&self) {
        if !self.is_marked.load(Ordering::Relaxed) {
            self.is_marked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since this was asked last.
    pub(crate) fn take_mark(&self) -> bool {
        self.is_marked.swap(false, Ordering::Relaxed)
    }
}
