//! DynamoDB's time for what is about to be written: at once if it is known, else after a read that all callers share.

use std::sync::{Mutex, PoisonError};

use sluice_core::Timestamp;
use sluice_core::schema::DIRECTORY_KEY;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Store, StoreError};

/// Rounds that are tried, of a read of this caller or another's. One is enough, unless this machine's clock is set right after the reply,
/// the reply takes too long, or the caller that reads leaves.
const ROUNDS: u32 = 3;

/// The read that is under way to learn the time, if one is. When the clocks of a fleet are set at once, each of its processes asks once.
#[derive(Debug, Default)]
pub(super) struct Learning(Mutex<Option<watch::Receiver<Option<Outcome>>>>);

/// What became of a read: an error that told no time.
type Outcome = Result<(), StoreError>;

/// What a caller does for the time.
enum Role {
    Reads(watch::Sender<Option<Outcome>>),
    Waits(watch::Receiver<Option<Outcome>>),
}

impl Learning {
    /// A caller that has `waited` in vain for the read that is under way begins another: nobody may drive that one any more. Others who
    /// waited for it share the new one.
    fn role(&self, waited: Option<&watch::Receiver<Option<Outcome>>>) -> Role {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // That of a caller that left is closed without an outcome.
        let is_stuck = |read: &watch::Receiver<_>| waited.is_some_and(|waited| waited.same_channel(read));
        let shared = under_way.as_ref().filter(|read| !is_stuck(read) && matches!(read.has_changed(), Ok(false)));
        if let Some(read) = shared {
            return Role::Waits(read.clone());
        }
        let (tells, read) = watch::channel(None);
        *under_way = Some(read);
        Role::Reads(tells)
    }
}

impl Store {
    /// DynamoDB's time, for what is about to be written. At once, unless it is not known: then after a read of the table. Callers
    /// that need it at the same time share one read. Takes three times the time of a request at most.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer, or its replies take over 3 s.
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.clock.known() {
            return Ok(now);
        }
        let (mut asked_at, mut waited) = (i64::MAX, None);
        for _ in 0..ROUNDS {
            asked_at = self.clock.steady_micros();
            let outcome = match self.learning.role(waited.as_ref()) {
                Role::Reads(tells) => {
                    // A refusal tells the time too.
                    let outcome = self.read(DIRECTORY_KEY).await.map(drop);
                    tells.send_replace(Some(outcome.clone()));
                    Some(outcome)
                }
                Role::Waits(mut read) => {
                    let told = async { read.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone()) };
                    let told = timeout(self.longest_request(), told).await;
                    waited = told.is_err().then_some(read);
                    told.ok().flatten()
                }
            };
            match (self.clock.known(), outcome) {
                (Some(now), _) => return Ok(now),
                (None, Some(Err(error))) => return Err(error),
                (None, _) => {}
            }
        }
        self.clock.known_since(asked_at).ok_or_else(|| StoreError::Unavailable {
            operation: "GetItem",
            message: String::from("DynamoDB's time cannot be told: its replies take over 3 s"),
            maybe_applied: false,
        })
    }
}
