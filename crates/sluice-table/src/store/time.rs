//! DynamoDB's time for a write: at once if it is known, otherwise after a read that all callers share.

use sluice_core::Timestamp;
use sluice_core::schema::DIRECTORY_KEY;
use tokio::time::timeout;

use super::connection::{Store, WhileOut};
use super::error::StoreError;
use super::learning::Role;
use crate::operation::Operation;

/// The most rounds: one is enough, unless this clock is set right after the reply, or the reader is slow or
/// leaves.
const ROUNDS: u32 = 3;

impl Store {
    /// DynamoDB's time, for a write: at once if known, otherwise after a read, which callers share. Takes at
    /// most three times the time of a request.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer, or its replies take over 3 s.
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.link.clock.known() {
            return Ok(now);
        }
        let (mut asked_at, mut waited) = (i64::MAX, None);
        for _ in 0..ROUNDS {
            asked_at = self.link.clock.steady_micros();
            let outcome = match self.link.learning.role(waited.as_ref()) {
                Role::Reads(sender) => {
                    // An error reply contains the time too.
                    let outcome = self.read(DIRECTORY_KEY).await.map(drop);
                    sender.send_replace(Some(outcome.clone()));
                    Some(outcome)
                }
                // The caller that reads may wait for the return of DynamoDB.
                Role::Waits(_) if self.is_out() && self.while_out == WhileOut::Fails => {
                    return Err(self.link.breaker.error(Operation::GetItem.as_str(), false));
                }
                Role::Waits(mut read) => {
                    let outcome = async {
                        read.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
                    };
                    let outcome = timeout(self.longest_request(), outcome).await;
                    waited = outcome.is_err().then_some(read);
                    outcome.ok().flatten()
                }
            };
            match (self.link.clock.known(), outcome) {
                (Some(now), _) => return Ok(now),
                (None, Some(Err(error))) => return Err(error),
                (None, _) => {}
            }
        }
        self.link.clock.known_since(asked_at).ok_or_else(|| StoreError::Unavailable {
            operation: "GetItem",
            message: String::from("DynamoDB's time is not known: its replies take over 3 s"),
            maybe_applied: false,
        })
    }
}
