//! Reading the bucket and its load row for admission: by one request, at most one at a time, and in the background while it is in
//! use.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_core::schema::KEY;
use sluice_core::{Load, Timestamp};
use sluice_table::{Item, value_text};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::admission::watched::watched;
use crate::api::error::AcquireError;
use crate::bucket::known::Reading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{apply_read, is_not_missing, known_since, refresh};

/// A bucket that was read longer ago is read again before it is judged by. Smaller reads more; larger judges by what was.
const YOUNG: Duration = Duration::from_secs(1);

/// While admission is in use, bucket and load row are read at least so often, so that completions are seen when nobody asks.
const REFRESH_EVERY: Duration = Duration::from_secs(15);

/// So long after the last question.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The bucket as a reply of the last second showed it, and with it a load row that is not much older.
pub(super) async fn young(inner: &Arc<Inner>, entry: &Arc<Entry>) -> Result<Reading, AcquireError> {
    watched(entry).asked(inner.now());
    if entry.limit().is_some_and(|limit| !limit.is_concurrent()) {
        return known_since(inner, entry, YOUNG).await;
    }
    if let Some(reading) = young_one(entry, inner.now()) {
        return Ok(reading);
    }
    is_not_missing(inner, entry)?;
    let watched = watched(entry);
    // Whoever reads first reads for all; a read that hangs holds nobody up for longer than one attempt.
    let _reading = timeout(inner.store.attempt().of_rows(), watched.reading.lock()).await;
    let reading = match young_one(entry, inner.now()) {
        Some(reading) => reading,
        None => {
            is_not_missing(inner, entry)?;
            read_both(inner, entry).await?
        }
    };
    if reading.bucket.limit().is_concurrent() {
        keep_young(inner, entry);
    }
    Ok(reading)
}

fn young_one(entry: &Entry, now: Timestamp) -> Option<Reading> {
    // The background reads it in time; a little more for a process that was not run.
    entry.load.within(2 * REFRESH_EVERY, now)?;
    // A reading of before admission was in use is not compared with what a sweep found.
    entry.reading().filter(|reading| reading.is_younger_than(YOUNG, now) && watched(entry).has_seen())
}

async fn read_both(inner: &Inner, entry: &Entry) -> Result<Reading, AcquireError> {
    let load_key = Load::key(&entry.dimension);
    let rows = inner.store.read_all(&[entry.dimension.to_string(), load_key.clone()]).await?;
    let row = |key: &str| rows.iter().find(|row| value_text(row, KEY) == key);
    // First, since the first reading of the bucket is compared with it. Where there is none, no sweep has measured yet.
    let _ = entry.saw_load(row(&load_key).unwrap_or(&Item::new()), inner.now());
    match row(entry.dimension.as_str()) {
        Some(row) => drop(apply_read(inner, entry, row)?),
        // Gone, or kept back by throttling.
        None => drop(refresh(inner, entry).await?),
    }
    match entry.reading() {
        Some(reading) => Ok(reading),
        None => refresh(inner, entry).await,
    }
}

/// Reads on in the background, on a task that holds the client weakly.
fn keep_young(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if watched(entry).begin_refreshing() {
        let refreshing = Refreshing { inner: Arc::downgrade(inner), entry: Arc::clone(entry) };
        runtime.spawn(refreshing.run());
    }
}

/// Dropped, as with its runtime, the next question makes another.
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
