//! Reads the table while somebody looks, and keeps what it read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::page::nonce;
use crate::failure::Failure;
use crate::view::{Reader, View};

/// One who has not asked for so long does not look any more, and the table is left alone.
const WATCHED_FOR: Duration = Duration::from_secs(60);
/// The first to ask after a pause waits this long for a reading that is not old.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was read.
#[derive(Debug)]
pub(super) struct Watcher {
    view: Mutex<View>,
    /// When somebody asked last.
    asked: watch::Sender<Option<Instant>>,
    /// When the last reading ended, whatever came of it.
    read: watch::Sender<Option<Instant>>,
    instance: String,
}

impl Watcher {
    pub(super) fn new(table: &str) -> Result<Self, Failure> {
        let (asked, read) = (watch::Sender::new(None), watch::Sender::new(None));
        Ok(Self { view: Mutex::new(View::new(table)), asked, read, instance: nonce()? })
    }

    /// Tells this process from one before it, whose series a page may still show.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Reads on until it is dropped.
    pub(super) async fn read_on(self: Arc<Self>, mut reader: Reader) {
        let mut asked = self.asked.subscribe();
        // The sender is this struct's own, so there is no error to wait for.
        while asked.wait_for(|asked| is_within(*asked, WATCHED_FOR)).await.is_ok() {
            let reading = reader.next().await;
            self.locked().take_in(reading);
            self.read.send_replace(Some(Instant::now()));
        }
    }

    /// What was read last. It counts as looking; after a pause it waits for a reading.
    pub(super) async fn look(&self) -> MutexGuard<'_, View> {
        self.asked.send_replace(Some(Instant::now()));
        let mut read = self.read.subscribe();
        let _ = timeout(PATIENCE, read.wait_for(|read| is_within(*read, WATCHED_FOR))).await;
        self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_within(at: Option<Instant>, span: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < span)
}
