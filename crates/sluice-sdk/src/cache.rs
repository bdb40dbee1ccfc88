//! What the process last saw of each bucket. It saves reads, and may refuse; it never grants.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_core::{Bucket, Cost, Dimension, Limit, Load, Remaining, Timestamp};

use crate::admission::Watched;
use crate::attempt::inline::InlineLane;
use crate::attempt::rows::RowLane;
use crate::attempt::tokens::TokenLane;
use crate::give_back::ReleaseLane;
use crate::grant::Part;
use crate::heal::Wanted;
use crate::load::LoadSeen;
use crate::prefetch::Stock;
use crate::rate_limited::RateLimited;
use crate::seldom::Seldom;
use crate::settle::SettleLane;
use crate::telemetry::{self, BucketLabel, Meters, Named};

mod buckets;
mod first_read;
mod presence;

pub(crate) use buckets::Cache;
pub(crate) use first_read::FirstRead;
use presence::{Presence, is_within};

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

/// One bucket, shared by all that use it in this process.
pub(crate) struct Entry {
    pub(crate) dimension: Dimension,
    reading: Mutex<Option<Reading>>,
    /// Whether the table has it, as far as it was looked for.
    presence: Presence,
    /// Whether it was used since the cache last looked for one to forget.
    is_marked: AtomicBool,
    /// Booked starts whose callers went away and that could not be given back, since others had booked behind them.
    abandoned: Mutex<Vec<Part>>,
    /// When a write that moves the anchor last failed because another had moved it, and how long it was under way.
    anchor_conflict: Mutex<Option<(Timestamp, Duration)>>,
    /// Held while the row is read for the first time, so that many callers read it once.
    pub(crate) loading: tokio::sync::Mutex<FirstRead>,
    /// The reply to the latest call. Held while a vendor's reply is held against the bucket.
    pub(crate) observing: Seldom<Box<tokio::sync::Mutex<Option<Remaining>>>>,
    /// The 429s of late.
    pub(crate) rate_limited: Seldom<Box<RateLimited>>,
    /// Who takes tokens.
    pub(crate) tokens: Seldom<Arc<TokenLane>>,
    /// Who takes slots with inline leases, and gives them back.
    pub(crate) inline: Seldom<Arc<InlineLane>>,
    /// Who gives back slots with lease rows.
    pub(crate) releases: Seldom<Arc<ReleaseLane>>,
    /// Calls that are settled.
    pub(crate) settles: Seldom<Arc<SettleLane>>,
    /// How much is pending, and how fast it departs.
    pub(crate) load: LoadSeen,
    /// What admission sees of it. Made by its first question alone: everyone else goes by `get`.
    pub(crate) admission: Seldom<Box<Watched>>,
    /// Whether somebody wants slots that it refuses.
    pub(crate) wanted: Seldom<Box<Wanted>>,
    /// The lanes of sets that it is in, for those who wait there for its slots.
    rows: Mutex<Vec<Weak<RowLane>>>,
    /// Tokens taken ahead of demand, where the client does.
    pub(crate) stock: Option<Box<Stock>>,
    label: BucketLabel,
    pub(crate) meters: Meters,
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

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.dimension.fmt(f)
    }
}

impl Entry {
    fn new(dimension: Dimension, stock: Option<Box<Stock>>, named: Named) -> Self {
        Self {
            dimension,
            reading: Mutex::default(),
            presence: Presence::default(),
            is_marked: AtomicBool::new(false),
            abandoned: Mutex::default(),
            anchor_conflict: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            observing: Seldom::default(),
            rate_limited: Seldom::default(),
            tokens: Seldom::default(),
            inline: Seldom::default(),
            releases: Seldom::default(),
            settles: Seldom::default(),
            load: LoadSeen::default(),
            admission: Seldom::default(),
            wanted: Seldom::default(),
            rows: Mutex::default(),
            stock,
            label: BucketLabel::new(named),
            meters: Meters::default(),
        }
    }

    /// Its limit, as far as is known.
    pub(crate) fn limit(&self) -> Option<Limit> {
        locked(&self.reading).as_ref().map(|reading| *reading.bucket.limit())
    }

    pub(crate) fn reading(&self) -> Option<Reading> {
        locked(&self.reading).clone()
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
        Some(self.label()).filter(|label| **label != *telemetry::OTHER)
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
        if *label != *telemetry::OTHER {
            telemetry::load(label, &self.meters, load.pending(), load.drain_rate());
        }
    }

    /// Tells recorders that it is gone.
    pub(crate) fn untell(&self) {
        if let Some(label) = self.own_label() {
            telemetry::gone(label, &self.meters);
        }
    }

    /// After a write whose reply showed the row. Replies may overtake each other: an older version does not replace a newer one.
    pub(crate) fn wrote(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let heard = self.heed_cool_down(&bucket, now);
        let mut reading = locked(&self.reading);
        if reading.as_ref().is_none_or(|known| known.bucket.version() <= bucket.version()) {
            self.watch(&bucket, now);
            *reading = Some(Reading { bucket, seen_at: now, read_at: now });
        }
        drop(reading);
        heard.then(|| telemetry::cool_down_heard(self.label()));
    }

    /// After a transaction on a rate bucket, which shows no row: what it must be, at most. What is known of the bucket grows no
    /// younger by that: others may have given back.
    pub(crate) fn predicted(&self, bucket: Arc<Bucket>) {
        let mut reading = locked(&self.reading);
        if let Some(known) = reading.as_mut().filter(|known| known.bucket.version() <= bucket.version()) {
            known.bucket = bucket;
        }
    }

    /// After a transaction that took slots. What else is known of the bucket grows no younger by that: others may have given back.
    pub(crate) fn slots_taken(&self, total: Cost) {
        if let Some(known) = locked(&self.reading).as_mut() {
            known.bucket = Arc::new(known.bucket.after_taking(total));
        }
    }

    /// After a read or a failed condition: the row as it is, whatever was believed (it may have been made anew).
    pub(crate) fn saw(&self, bucket: Arc<Bucket>, now: Timestamp) {
        let heard = self.heed_cool_down(&bucket, now);
        self.watch(&bucket, now);
        *locked(&self.reading) = Some(Reading { bucket, seen_at: now, read_at: now });
        // By now the bucket has a name in metrics.
        heard.then(|| telemetry::cool_down_heard(self.label()));
    }

    fn watch(&self, bucket: &Bucket, now: Timestamp) {
        self.admission.get().into_iter().for_each(|watched| watched.saw(bucket, || self.load.last(), now));
    }

    /// Whether there may be a start that another caller left.
    pub(crate) fn has_abandoned(&self) -> bool {
        !locked(&self.abandoned).is_empty()
    }

    /// What was taken before the vendor asked for a pause is not used during it. Whether the pause was not known before.
    fn heed_cool_down(&self, bucket: &Bucket, now: Timestamp) -> bool {
        let Some(until) = bucket.blocked_until().filter(|until| *until > now) else { return false };
        self.stock.iter().for_each(|stock| stock.clear());
        let known = self.reading().and_then(|reading| reading.bucket.blocked_until());
        known.is_none_or(|known| known < until)
    }

    /// Keeps a booked start that its caller left, for the next.
    pub(crate) fn abandon(&self, part: Part) {
        locked(&self.abandoned).push(part);
    }

    /// A start that another caller left, at the same cost, not past and not later than `latest`; the earliest there is.
    pub(crate) fn take_over(&self, cost: Cost, now: Timestamp, latest: Timestamp) -> Option<Part> {
        let mut abandoned = locked(&self.abandoned);
        abandoned.retain(|part| part.start_at > now);
        let fits = |part: &Part| part.cost == cost && part.start_at <= latest;
        let (at, _) =
            abandoned.iter().enumerate().filter(|(_, part)| fits(part)).min_by_key(|(_, part)| part.start_at)?;
        Some(abandoned.swap_remove(at))
    }

    /// Another process moved the anchor at the same time.
    pub(crate) fn anchor_conflict(&self, now: Timestamp, under_way: Duration) {
        *locked(&self.anchor_conflict) = Some((now, under_way));
    }

    /// The headroom that full writes should leave: none, unless such conflicts are so recent that more are to be expected.
    pub(crate) fn headroom(&self, now: Timestamp) -> Duration {
        match *locked(&self.anchor_conflict) {
            Some((at, under_way)) if now.since(at) < CONTENTION_MEMORY => HEADROOM.max(under_way * 4),
            _ => Duration::ZERO,
        }
    }

    /// The bucket was removed: nothing that was known of it counts, and its gauges do not stand still at what it was.
    pub(crate) fn gone(&self) {
        self.forget();
        self.untell();
    }

    /// The bucket is made, has other limits, or is gone: nothing that was known of it counts.
    pub(crate) fn forget(&self) {
        self.stock.iter().for_each(|stock| stock.clear());
        self.forget_abandoned();
        *locked(&self.reading) = None;
        self.presence.doubt();
    }

    fn forget_abandoned(&self) {
        locked(&self.abandoned).clear();
    }

    /// Whether more than `references` refer to it, or it keeps a start that is still to come.
    fn is_in_use(self: &Arc<Self>, references: usize, now: Timestamp) -> bool {
        let mut abandoned = locked(&self.abandoned);
        abandoned.retain(|part| part.start_at > now);
        !abandoned.is_empty() || Arc::strong_count(self) > references
    }

    fn was_in_sets(&self) -> bool {
        !locked(&self.rows).is_empty()
    }

    /// It is in the set of this lane, and wakes those who wait there.
    fn is_in_set(&self, lane: &Arc<RowLane>) {
        let mut rows = locked(&self.rows);
        if rows.len() == rows.capacity() {
            rows.retain(|lane| lane.strong_count() > 0);
        }
        rows.push(Arc::downgrade(lane));
    }

    /// What was read no longer refuses anyone.
    pub(crate) fn doubt(&self) {
        if let Some(reading) = locked(&self.reading).as_mut() {
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
    }

    /// This process gave `cost` back: those in line for it may take it without asking first.
    pub(crate) fn slot_freed(&self, cost: Cost) {
        if let Some(reading) = locked(&self.reading).as_mut() {
            reading.bucket = Arc::new(reading.bucket.after_giving_back(cost));
            reading.seen_at = Timestamp::from_micros(i64::MIN);
        }
        self.wake_rows();
    }

    /// A sweep of this process gave slots back: those in line look again.
    pub(crate) fn slots_reclaimed(&self) {
        self.doubt();
        self.wake_rows();
        self.inline.get().into_iter().for_each(|lane| lane.wake());
    }

    fn wake_rows(&self) {
        locked(&self.rows).iter().filter_map(Weak::upgrade).for_each(|lane| lane.wake());
    }
}

/// The data under these locks is replaced whole, so that a panic elsewhere cannot leave it half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests;
