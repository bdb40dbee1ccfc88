//! Reads the table while somebody looks at the page, and keeps the readings.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sluice_sdk::Client;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::page::nonce;
use crate::failure::Failure;
use crate::view::{SurveyReader, View, seconds};

/// A page that has not asked for this long counts as closed; without pages, the table is not read.
const WATCHED_FOR: Duration = Duration::from_secs(60);
/// How long the first request after a pause waits for a new reading.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Watcher {
    client: Client,
    view: Mutex<View>,
    /// When a page last asked.
    asked: watch::Sender<Option<Instant>>,
    /// When the last reading ended, whether it succeeded or not.
    read: watch::Sender<Option<Instant>>,
    instance: String,
}

impl Watcher {
    pub(super) fn new(client: Client) -> Result<Self, Failure> {
        let (asked, read) = (watch::Sender::new(None), watch::Sender::new(None));
        let view = Mutex::new(View::new(client.table()));
        Ok(Self { client, view, asked, read, instance: nonce()? })
    }

    /// The table's time, in seconds since the epoch.
    pub(super) fn now(&self) -> f64 {
        seconds(self.client.now())
    }

    /// Identifies this process, because a page may still show the series of an earlier one.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Reads the table until dropped, while a page asks.
    pub(super) async fn read_on(self: Arc<Self>, mut reader: SurveyReader) {
        let mut asked = self.asked.subscribe();
        // The sender belongs to this struct, so no error can occur.
        while asked.wait_for(|asked| is_within(*asked, WATCHED_FOR)).await.is_ok() {
            let reading = reader.next().await;
            self.locked().take_in(reading);
            self.read.send_replace(Some(Instant::now()));
        }
    }

    /// The last reading. The call counts as a page that asks; after a pause, it waits for a new reading.
    pub(super) async fn look(&self) -> MutexGuard<'_, View> {
        self.asked.send_replace(Some(Instant::now()));
        let mut read = self.read.subscribe();
        let _ = timeout(PATIENCE, read.wait_for(|read| is_within(*read, WATCHED_FOR))).await;
        self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, View> {
        self.view.lock()
    }
}

fn is_within(at: Option<Instant>, span: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < span)
}

#[cfg(test)]
mod tests {
    use sluice_testkit::{EmbeddedDynamo, Operation};
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn watched() -> (EmbeddedDynamo, Arc<Watcher>) {
        let dynamo = EmbeddedDynamo::with_table("limits").await.unwrap();
        let client = dynamo.client("limits");
        let watcher = Arc::new(Watcher::new(client.clone()).unwrap());
        tokio::spawn(Arc::clone(&watcher).read_on(SurveyReader::new(client, SECOND)));
        (dynamo, watcher)
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_read_while_somebody_looks_and_left_alone_after() {
        let (dynamo, watcher) = watched().await;
        let readings = || dynamo.meter().of(Operation::Scan).requests;
        sleep(SECOND * 600).await;
        assert_eq!(readings(), 0, "nobody has looked yet");
        for _ in 0..30 {
            assert!(watcher.look().await.picture.is_some());
            sleep(SECOND).await;
        }
        let while_looking = readings();
        assert!((25..=32).contains(&while_looking), "one a second: {while_looking}");
        sleep(SECOND * 600).await;
        let after = readings();
        assert!(after <= while_looking + 61, "for a minute more at most: {after}");
        sleep(SECOND * 6_000).await;
        assert_eq!(readings(), after);
        drop(watcher.look().await);
        assert_eq!(readings(), after + 1, "who comes back is shown no old picture");
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_hangs_keeps_nobody_waiting() {
        let (dynamo, watcher) = watched().await;
        dynamo.faults().always(Operation::Scan, sluice_testkit::Fault::LoseRequest);
        let began = Instant::now();
        assert!(watcher.look().await.picture.is_none());
        assert!(began.elapsed() <= PATIENCE);
        sleep(SECOND * 30).await;
        assert!(watcher.look().await.trouble.is_some());
    }
}
