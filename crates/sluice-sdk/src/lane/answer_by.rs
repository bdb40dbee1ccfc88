//! The longest time to an answer, for callers that do not wait: one timer around all that an attempt does.

use std::pin::Pin;
use std::time::Duration;

use sluice_table::{CREDENTIALS_TIMEOUT, Heard, HeardSince, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::lane::inner::Inner;

/// A timer that fires later than this was held up with its process, as in a Lambda function between two
/// invocations: the replies may be there.
const LATE: Duration = Duration::from_millis(500);

/// The time by which a caller has its answer.
pub(crate) struct AnswerBy<'a> {
    inner: &'a Inner,
    heard: Heard,
    until: Instant,
    has_more_time: bool,
}

impl<'a> AnswerBy<'a> {
    /// For a caller that comes now.
    pub(crate) fn new(inner: &'a Inner) -> Self {
        let until = Instant::now() + inner.store.answer_within();
        Self { inner, heard: inner.store.heard(), until, has_more_time: false }
    }

    /// Waits for `work`, until the time for the answer has passed. What `work` has sent goes on: its grant
    /// goes to the next in the queue, or back. A caller gets more time once: for credentials that are
    /// fetched, or if its process stood still. `work` is pinned by its caller: a future that is handed on by
    /// value is copied, and kept twice. After an error the
    /// caller drops it before it waits for anything else.
    ///
    /// # Errors
    /// If DynamoDB has answered anything since the caller came, `Contended`; otherwise `Unavailable`.
    pub(crate) async fn wait<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, StoreError> {
        loop {
            // Polls the work first, and once: an answer that needs no request sets no timer, and a leader
            // that yields to other callers is not polled again at once.
            if let Ok(answer) = timeout_at(self.until, work.as_mut()).await {
                return Ok(answer);
            }
            let (now, since) = (Instant::now(), self.inner.store.heard_since(self.heard));
            let more = match since {
                HeardSince::FetchedCredentials => CREDENTIALS_TIMEOUT,
                _ if now > self.until + LATE => self.inner.store.answer_within(),
                _ => Duration::ZERO,
            };
            if self.has_more_time || more.is_zero() {
                return Err(self.late(since));
            }
            (self.has_more_time, self.until) = (true, now + more);
        }
    }

    fn late(&self, since: HeardSince) -> StoreError {
        let operation = "acquire";
        let within = self.inner.store.answer_within().as_secs_f64();
        let message = format!("no answer within {within} s (SLUICE_ANSWER_WITHIN)");
        match since {
            HeardSince::Answered => StoreError::Contended { operation, message },
            HeardSince::FetchedCredentials | HeardSince::Silent => {
                StoreError::Unavailable { operation, message, maybe_applied: true }
            }
        }
    }
}
