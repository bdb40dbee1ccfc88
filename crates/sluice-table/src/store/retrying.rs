//! The one loop that sends a request again.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use tokio::time::Instant;

use super::answer::{Failed, ServiceAnswer};
use super::connection::{Store, WhileOut};
use super::error;
use super::request::MeteredReply;
use super::written::{Attempted, Resend};
use crate::operation::Operation;
use crate::requests::retried;
use crate::retry::{Backoff, Fate, longest_request, random_wait_up_to};

impl Store {
    /// Waits before the next try after a conflict.
    pub async fn back_off(&self, attempt: u32) {
        tokio::time::sleep(random_wait_up_to(Backoff::DEFAULT.ceiling(attempt))).await;
    }

    pub(super) async fn answer_with_retries<T, E, Send>(
        &self,
        operation: Operation,
        resend: Resend,
        send: impl Fn() -> Send,
    ) -> Result<T, Failed>
    where
        Send: Future<Output = Result<T, SdkError<E>>> + std::marker::Send,
        T: MeteredReply,
        E: ProvideErrorMetadata + ServiceAnswer + std::error::Error + std::marker::Send + Sync + 'static,
    {
        self.send_with_retries(operation, resend, send).await.answer
    }

    /// Sends a request until it is answered, fails for good, or has no tries left.
    pub(super) async fn send_with_retries<T, E, Send>(
        &self,
        operation: Operation,
        resend: Resend,
        send: impl Fn() -> Send,
    ) -> Attempted<T, Failed>
    where
        Send: Future<Output = Result<T, SdkError<E>>> + std::marker::Send,
        T: MeteredReply,
        E: ProvideErrorMetadata + ServiceAnswer + std::error::Error + std::marker::Send + Sync + 'static,
    {
        // A request that was signed by a wrong clock does not count as a try: its reply gives the time.
        let (mut was_skewed, mut maybe_applied, mut has_waited) = (false, false, false);
        let latest = Instant::now() + self.latest_attempt(operation);
        for attempt in 0.. {
            if self.is_out() {
                has_waited = true;
                if !self.may_send(latest).await {
                    let error = self.link.breaker.error(operation.as_str(), maybe_applied);
                    return Attempted {
                        answer: Err(Failed::Store(error)),
                        maybe_applied,
                        was_throttled: false,
                    };
                }
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            // Its type is hidden: inside its callers' futures, the nesting is deeper than the compiler accepts.
            let request: Pin<Box<dyn Future<Output = _> + std::marker::Send + '_>> = Box::pin(send());
            let error = match self.send_once(operation, attempt, request).await {
                Ok(reply) => return Attempted { answer: Ok(reply), maybe_applied, was_throttled: false },
                Err(error) => error,
            };
            if let SdkError::ServiceError(context) = &error
                && let Some(answer) = context.err().answer()
            {
                return Attempted { answer: Err(answer), maybe_applied, was_throttled: false };
            }
            if !was_skewed && error::is_clock_skew(&error) {
                was_skewed = true;
                retried(operation);
                continue;
            }
            let fate = error::fate(&error);
            maybe_applied |= fate == Fate::Ambiguous && !operation.reads();
            let stop = self.gives_up()
                || !fate.is_transient()
                || attempt >= self.link.max_retries + u32::from(was_skewed)
                || has_waited && Instant::now() > latest
                || match resend {
                    Resend::Always => false,
                    Resend::UnlessAmbiguous => fate == Fate::Ambiguous,
                    Resend::UnlessContended => {
                        !maybe_applied && matches!(fate, Fate::Conflict | Fate::Throttled)
                    }
                };
            if stop {
                if fate.is_transient() && resend == Resend::UnlessContended {
                    retried(operation);
                }
                let error = {
                    let to = (self.link.table.as_str(), self.link.dates.endpoint());
                    error::describe(operation.as_str(), to, maybe_applied, error)
                };
                let was_throttled = fate == Fate::Throttled;
                return Attempted { answer: Err(Failed::Store(error)), maybe_applied, was_throttled };
            }
            retried(operation);
            tracing::debug!(event = "dynamodb.retry", operation = operation.as_str(), attempt, ?fate);
            if !self.is_out() {
                self.back_off(attempt).await;
            }
        }
        unreachable!("the loop returns")
    }

    /// Whether DynamoDB is out, and a request does not wait for its return.
    fn gives_up(&self) -> bool {
        let is_out = self.is_out();
        if is_out {
            self.watch();
        }
        is_out && self.while_out == WhileOut::Fails
    }

    /// How long after its begin a request may send its last attempt, so that it ends in the time that it may
    /// take.
    fn latest_attempt(&self, operation: Operation) -> Duration {
        let attempt = match operation {
            Operation::Scan | Operation::BatchGetItem => self.link.attempt.of_many(),
            _ => self.link.attempt.of_rows(),
        };
        longest_request(attempt, self.link.max_retries).saturating_sub(attempt)
    }
}
