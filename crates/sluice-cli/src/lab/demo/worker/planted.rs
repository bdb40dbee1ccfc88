//! What callers with Sluice do wrong on purpose.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::StatusCode;
use sluice_sdk::{Clock, Decision};
use tokio::time::{Instant, sleep};

use super::{JobEnd, Planted, Worker};
use crate::lab::demo::limits::Api;

/// A delay that no machine is taken for, as it comes at each start.
const LATE: Duration = Duration::from_millis(500);
/// Keeps callers that nothing holds back from using up the machine.
const PAUSE: Duration = Duration::from_millis(100);

impl Worker {
    /// Calls without slots.
    pub(super) async fn call_until_stop(&self, of: usize, api: &Api) {
        while Clock::system().now() < self.stop {
            let wanted = Instant::now();
            self.counts.granted.fetch_add(1, Relaxed);
            match self.try_once(api).await {
                Ok(None) => self.ended(of, wanted, JobEnd::Done),
                Ok(Some(_)) => sleep(PAUSE).await,
                Err(error) => self.failed(&error).await,
            }
        }
    }

    pub(super) async fn start_late(&self) {
        if self.planted == Some(Planted::LateStarts) {
            sleep(LATE).await;
        }
    }

    /// What a caller decides that does not pass the reply to Sluice; `None` if it is not planted.
    pub(super) fn deaf(&self, status: StatusCode) -> Option<Decision> {
        (self.planted == Some(Planted::Deaf)).then_some(match status {
            StatusCode::TOO_MANY_REQUESTS => Decision::RetryInline { wait: PAUSE },
            _ => Decision::NotRefused,
        })
    }
}
