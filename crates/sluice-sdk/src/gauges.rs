//! Gauges of buckets that are not in use: a task reads their rows and reports what they hold.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Load;
use sluice_core::schema::KEY;
use sluice_table::{Attributes, Item, StoreError, value_text};
use tokio::task::JoinHandle;

use crate::call::tracker::registry::Trackers;
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::parse;
use crate::lane::task::boxed;
use crate::telemetry;

/// The shortest time between two reads: a mistake in the unit must not read the table all the time.
const SHORTEST: Duration = Duration::from_millis(100);

/// Keeps a client's gauges up to date while this guard lives: see [`Client::publish_gauges`].
#[derive(Debug)]
#[must_use = "if this value is dropped, the process stops publishing gauges"]
pub struct Gauges {
    _task: Arc<Task>,
}

/// The task. It ends when its last guard is dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task of a client, while there is one.
#[derive(Debug, Default)]
pub(crate) struct Publishing(Mutex<Weak<Task>>);

impl Client {
    /// Reports the gauges of every bucket that this process has met, now and each time `every` has passed:
    /// `sluice.bucket.*`, `sluice.load.*`, the trackers, and the clock offset. Ends when the guard or the
    /// last clone of the client is dropped. A second guard shares the task and interval of the first.
    ///
    /// Reads with `BatchGetItem`, at most 100 rows at a time: one read unit for each bucket, and another for
    /// the load of each concurrency bucket. Ten rate buckets every 15 s are 1.7 million read units a month.
    /// If the role lacks `dynamodb:BatchGetItem`, the gauges report what the process saw last.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn publish_gauges(&self, every: Duration) -> Gauges {
        let publishing = self.inner.extensions.of::<Publishing>();
        let mut publishing = publishing.0.lock();
        // A task that ended with its runtime does not count.
        if let Some(task) = publishing.upgrade().filter(|task| !task.0.is_finished()) {
            return Gauges { _task: task };
        }
        let publish = publish(Arc::downgrade(&self.inner), every.max(SHORTEST));
        let task = Arc::new(Task(tokio::spawn(boxed(publish))));
        *publishing = Arc::downgrade(&task);
        Gauges { _task: task }
    }
}

async fn publish(client: Weak<Inner>, every: Duration) {
    let mut has_warned = false;
    // The task holds the client only while it reads: between two reads the last clone may be dropped.
    while let Some(inner) = client.upgrade() {
        if let Err(error) = refresh(&inner).await
            && !has_warned
        {
            has_warned = true;
            tracing::warn!(event = "gauges.unread", %error, "gauges show what this process saw last");
        }
        drop(inner);
        tokio::time::sleep(every).await;
    }
}

/// Reports every gauge once. If the rows cannot be read, the buckets are reported as last seen.
async fn refresh(inner: &Inner) -> Result<(), StoreError> {
    let trackers = inner.extensions.of::<Trackers>().totals();
    if trackers.trackers > 0 {
        telemetry::trackers(
            trackers.reservations,
            trackers.capacity,
            (trackers.stale_entries, trackers.entries),
        );
    }
    if let Some(offset) = inner.store.clock().offset() {
        sluice_table::publish_clock_offset(offset);
    }
    let mut entries = inner.cache.entries();
    entries.iter().for_each(|entry| entry.unsettled.publish(entry));
    entries.retain(|entry| entry.own_label().is_some());
    // One row, however many shares see it: DynamoDB takes no key twice.
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.dimension.clone()));
    let rows = |entry: &Arc<Entry>| {
        // The kind is unknown for a bucket that this process never read, as when it only sweeps.
        let has_load = entry.limit().is_none_or(|limit| limit.is_concurrent());
        [Some(entry.dimension.to_string()), has_load.then(|| Load::key(&entry.dimension))]
    };
    let keys: Vec<String> = entries.iter().flat_map(rows).flatten().collect();
    if keys.is_empty() {
        return Ok(());
    }
    let rows = match inner.store.read_all(&keys).await {
        Ok(rows) => rows,
        Err(error) => {
            entries.iter().for_each(|entry| publish_last_seen(inner, entry));
            return Err(error);
        }
    };
    let rows: HashMap<String, &Item> = rows.iter().map(|row| (value_text(row, KEY), row)).collect();
    for entry in &entries {
        let name = entry.dimension.as_str();
        if let Some(row) = rows.get(name) {
            publish_one(inner, entry, row, rows.get(&Load::key(&entry.dimension)).copied());
        } else if entry.meters.is_published() && matches!(inner.store.read(name).await, Ok(None)) {
            // Read again by itself: a batch also leaves out rows that throttling held back.
            entry.forget_removed();
        }
    }
    Ok(())
}

/// Reports the gauges of one bucket: none if its row cannot be read, which the sweep counts and
/// `sluice doctor` reports. A load row, which may outlive its bucket, is reported only beside it.
fn publish_one(inner: &Inner, entry: &Entry, row: &Item, load: Option<&Item>) {
    let Ok(bucket) = parse(entry, row) else { return };
    entry.publish_level_of(&bucket, inner.now());
    if bucket.limit().is_concurrent()
        && let Some(load) = load.and_then(|row| Load::read(&entry.dimension, &Attributes(row)).ok())
    {
        entry.publish_load(&load);
    }
}

fn publish_last_seen(inner: &Inner, entry: &Entry) {
    entry.publish_level(inner.now());
}
