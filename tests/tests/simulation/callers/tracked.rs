//! Calls whose grant is kept by the tracker of their process, to be found at their end, or forgotten.

use std::time::Duration;

use sluice_sdk::Grant;
use tokio::time::sleep;

use super::{Caller, Need};

impl Caller {
    /// Stores the grant, and takes it at the end of the call, releases what is stale by hand, or forgets it.
    pub(super) async fn tracks(&mut self, id: &str, need: &Need, grant: Grant) {
        let Some(tracker) = self.process.tracker.clone() else { return };
        // Where the call outlasts the tracker's patience, what it held is given back before its end.
        self.universe.record(|record| record.released(id, self.universe.time()));
        let bucket = &need.parts[0].0;
        if let Err(error) = tracker.store(id, bucket, grant) {
            self.universe.act("the tracker is full", &self.process.name);
            let _ = error.into_grant().release().await;
            return;
        }
        let call = Duration::from_millis(self.rng.u64(0..1_500));
        match self.rng.u32(0..4) {
            0 => self.universe.act("a tracked grant is forgotten", &self.process.name),
            1 => {
                sleep(call).await;
                let _ = tracker.release_stale().await;
                for tracked in tracker.take_request(id) {
                    let _ = tracked.grant.release().await;
                }
            }
            _ => {
                sleep(call).await;
                match tracker.take(id, bucket) {
                    Some(tracked) => drop(tracked.grant.release().await),
                    None => self.universe.act("a tracked grant was stale", &self.process.name),
                }
            }
        }
    }
}
