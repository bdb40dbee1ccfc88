//! The one loop that sends a request again.

use std::sync::atomic::Ordering;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::answer::{Failed, ServiceAnswer};
use super::connection::Store;
use super::error;
use super::request::MeteredReply;
use super::written::{Attempted, Resend};
use crate::operation::Operation;
use crate::requests::retried;
use crate::retry::{Backoff, Fate, random_up_to};

impl Store {
    /// Waits before the next try after a conflict.
    pub async fn back_off(&self, attempt: u32) {
        tokio::time::sleep(Backoff::DEFAULT.delay(attempt, random_up_to)).await;
    }

    pub(super) async fn answer_with_retries<T, E, Send>(
        &self,
        operation: Operation,
        resend: Resend,
        send: impl Fn() -> Send,
    ) -> Result<T, Failed>
    where
        Send: Future<Output = Result<T, SdkError<E>>>,
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
        Send: Future<Output = Result<T, SdkError<E>>>,
        T: MeteredReply,
        E: ProvideErrorMetadata + ServiceAnswer + std::error::Error + std::marker::Send + Sync + 'static,
    {
        // A request that was signed by a wrong clock does not count as a try: its reply gives the time.
        let (mut was_skewed, mut maybe_applied) = (false, false);
        for attempt in 0.. {
            self.requests.fetch_add(1, Ordering::Relaxed);
            // On the heap: inside its callers' futures, the nesting is deeper than the compiler accepts.
            let error = match self.send_once(operation, attempt, Box::pin(send())).await {
                Ok(reply) => return Attempted { answer: Ok(reply), maybe_applied },
                Err(error) => error,
            };
            if let SdkError::ServiceError(context) = &error
                && let Some(answer) = context.err().answer()
            {
                return Attempted { answer: Err(answer), maybe_applied };
            }
            if !was_skewed && error::is_clock_skew(&error) {
                was_skewed = true;
                retried(operation);
                continue;
            }
            let fate = error::fate(&error);
            maybe_applied |= fate == Fate::Ambiguous && !operation.reads();
            let stop = !fate.is_transient()
                || attempt >= self.max_retries + u32::from(was_skewed)
                || match resend {
                    Resend::Always => false,
                    Resend::UnlessAmbiguous => fate == Fate::Ambiguous,
                    Resend::UnlessContended => !maybe_applied && matches!(fate, Fate::Conflict | Fate::Throttled),
                };
            if stop {
                if fate.is_transient() && resend == Resend::UnlessContended {
                    retried(operation);
                }
                let error = error::describe(operation.as_str(), &self.table, maybe_applied, error);
                return Attempted { answer: Err(Failed::Store(error)), maybe_applied };
            }
            retried(operation);
            tracing::debug!(event = "dynamodb.retry", operation = operation.as_str(), attempt, ?fate);
            self.back_off(attempt).await;
        }
        unreachable!("the loop returns")
    }
}
