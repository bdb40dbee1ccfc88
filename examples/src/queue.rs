//! What SQS and its event source mapping do for a Lambda function: delays, batches, deliveries that come
//! again, dead letters.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage, SqsMessageAttribute};
use futures_util::future::join_all;
use lambda_runtime::{Context, LambdaEvent};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// A queue in this process.
#[derive(Debug, Default)]
pub struct Queue(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    sent: usize,
    /// When each message is visible, and how often it was received.
    waiting: Vec<(Instant, u32, SqsMessage)>,
    in_flight: usize,
    dead: usize,
}

/// `maxReceiveCount` of the queue, and the batch size of the event source mapping.
const MAX_RECEIVES: u32 = 3;
const BATCH: usize = 10;
/// The timeout of the function, and how long a message that failed is invisible.
const TIMEOUT: Duration = Duration::from_secs(4);
const VISIBILITY: Duration = Duration::from_secs(1);

impl Queue {
    /// `SendMessage`, with a delay and one attribute.
    pub async fn send(&self, body: &str, delay_seconds: u32, ticket: Option<String>) {
        let mut attribute = SqsMessageAttribute::default();
        attribute.data_type = Some("String".into());
        attribute.string_value.clone_from(&ticket);
        let mut messages = self.0.lock().await;
        messages.sent += 1;
        let mut message = SqsMessage::default();
        message.message_id = Some(format!("message-{}", messages.sent));
        message.body = Some(body.into());
        if ticket.is_some() {
            message.message_attributes = HashMap::from([("ticket".into(), attribute)]);
        }
        let due = Instant::now() + Duration::from_secs(delay_seconds.into());
        messages.waiting.push((due, 0, message));
    }

    /// Invokes the function with batches until the queue is empty, `at_once` invocations side by side.
    /// Returns how many messages ended as dead letters.
    pub async fn drain(
        &self,
        at_once: usize,
        function: impl AsyncFn(LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, lambda_runtime::Error>,
    ) -> usize {
        let pollers = (0..at_once).map(async |_| {
            while let Some(batch) = self.receive().await {
                if batch.is_empty() {
                    sleep(Duration::from_millis(20)).await;
                    continue;
                }
                let mut event = SqsEvent::default();
                event.records = batch.iter().map(|(_, message)| message.clone()).collect();
                let mut context = Context::default();
                let deadline = SystemTime::now() + TIMEOUT;
                let since_epoch = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                context.deadline = u64::try_from(since_epoch.as_millis()).unwrap_or_default();
                let response = function(LambdaEvent::new(event, context)).await;
                self.finish(batch, response).await;
            }
        });
        join_all(pollers).await;
        self.0.lock().await.dead
    }

    /// A batch, empty while no message is due. `None` when all are done.
    async fn receive(&self) -> Option<Vec<(u32, SqsMessage)>> {
        let mut messages = self.0.lock().await;
        let now = Instant::now();
        let due: Vec<_> = messages.waiting.extract_if(.., |(due, ..)| *due <= now).take(BATCH).collect();
        messages.in_flight += due.len();
        let is_done = due.is_empty() && messages.waiting.is_empty() && messages.in_flight == 0;
        (!is_done).then(|| due.into_iter().map(|(_, receives, message)| (receives + 1, message)).collect())
    }

    /// Deletes a batch, but for the messages that failed: these come again, or are moved to the dead letters.
    /// A function that fails fails with the whole batch.
    async fn finish(
        &self,
        batch: Vec<(u32, SqsMessage)>,
        response: Result<SqsBatchResponse, lambda_runtime::Error>,
    ) {
        let mut messages = self.0.lock().await;
        messages.in_flight -= batch.len();
        for (receives, message) in batch {
            let has_failed = response.as_ref().map_or(true, |response| {
                let mut failures = response.batch_item_failures.iter();
                failures.any(|failure| Some(&failure.item_identifier) == message.message_id.as_ref())
            });
            match (has_failed, receives >= MAX_RECEIVES) {
                (false, _) => {}
                (true, false) => messages.waiting.push((Instant::now() + VISIBILITY, receives, message)),
                (true, true) => messages.dead += 1,
            }
        }
    }
}
