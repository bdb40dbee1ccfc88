//! Reads the bucket and its load row for admission: in one request, one at a time, and in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_core::schema::KEY;
use sluice_core::{Load, Timestamp};
use sluice_table::{Item, value_text};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::admission::watched::watched;
use crate::api::error::AcquireError;
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, check_not_missing, known_since, refresh};
use crate::lane::task::boxed;

/// An older reading is read again before a verdict. Smaller reads more; larger judges by an older state.
const YOUNG: Duration = Duration::from_secs(1);

/// While admission is in use, the bucket and its load row are read at least this often, so that completions
/// are seen even when nobody asks.
const REFRESH_EVERY: Duration = Duration::from_secs(15);

/// How long the background reads continue after the last question.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The bucket as a reply of the last second showed it, and with it a load row that is not much older.
pub(super) async fn young(inner: &Arc<Inner>, entry: &Arc<Entry>) -> Result<BucketReading, AcquireError> {
    watched(entry).asked(inner.now());
    if entry.limit().is_some_and(|limit| !limit.is_concurrent()) {
        return known_since(inner, entry, YOUNG).await;
    }
    if let Some(reading) = young_one(entry, inner.now()) {
        return Ok(reading);
    }
    check_not_missing(inner, entry)?;
    let watched = watched(entry);
    // The first reader reads for all callers. A read that hangs delays no caller for longer than one attempt.
    let _reading = timeout(inner.store.attempt().of_rows(), watched.reading.lock()).await;
    let reading = match young_one(entry, inner.now()) {
        Some(reading) => reading,
        None => {
            check_not_missing(inner, entry)?;
            read_both(inner, entry).await?
        }
    };
    if reading.bucket.limit().is_concurrent() {
        keep_young(inner, entry);
    }
    Ok(reading)
}

fn young_one(entry: &Entry, now: Timestamp) -> Option<BucketReading> {
    // The background task reads the load row in time; the factor allows for a process that did not run.
    entry.load.within(2 * REFRESH_EVERY, now)?;
    // A reading from before admission was in use has not been compared with what a sweep found: read again.
    entry.reading().filter(|reading| reading.is_younger_than(YOUNG, now) && watched(entry).has_seen())
}

async fn read_both(inner: &Inner, entry: &Entry) -> Result<BucketReading, AcquireError> {
    let load_key = Load::key(&entry.dimension);
    let rows = inner.store.read_all(&[entry.dimension.to_string(), load_key.clone()]).await?;
    let row = |key: &str| rows.iter().find(|row| value_text(row, KEY) == key);
    // First, since the first reading of the bucket is compared with the load row. If there is no load row, no
    // sweep has measured yet.
    let _ = entry.apply_load(row(&load_key).unwrap_or(&Item::new()), inner.now());
    match row(entry.dimension.as_str()) {
        Some(row) => drop(apply_read(inner, entry, row)?),
        // The bucket is gone, or throttling kept its row out of the reply.
        None => drop(refresh(inner, entry).await?),
    }
    match entry.reading() {
        Some(reading) => Ok(reading),
        None => refresh(inner, entry).await,
    }
}

/// Keeps reading in the background, in a task that holds the client weakly.
fn keep_young(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if watched(entry).begin_refreshing() {
        let refreshing = Refreshing { inner: Arc::downgrade(inner), entry: Arc::clone(entry) };
        runtime.spawn(boxed(refreshing.run()));
    }
}

/// The background reads of one bucket. If the runtime drops the task, the next question creates another.
struct Refreshing {
    inner: Weak<Inner>,
    entry: Arc<Entry>,
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        watched(&self.entry).end_refreshing();
    }
}

impl Refreshing {
    async fn run(self) {
        loop {
            tokio::time::sleep(REFRESH_EVERY).await;
            let Some(inner) = self.inner.upgrade() else { return };
            if watched(&self.entry).is_unasked_for(KEPT_FOR, inner.now()) {
                return;
            }
            let watched = watched(&self.entry);
            let _reading = watched.reading.lock().await;
            if let Err(error) = read_both(&inner, &self.entry).await {
                tracing::debug!(event = "admission.unknown", dimension = %self.entry.dimension, %error);
            }
        }
    }
}
