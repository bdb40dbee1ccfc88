//! The reference algorithm that Sluice was described with: read the bucket, compute, write bucket and lease
//! in one transaction on condition of the version that was read, and on a cancellation start again.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use sluice_sdk::Clock;
use sluice_sdk::core::Timestamp;
use sluice_sdk::core::schema::KEY;
use tokio::time::sleep;

use super::system::{Answer, System};
use crate::failure::Failure;

/// In milliseconds, as the description states.
const BASE_BACKOFF: u64 = 25;
const LONGEST_BACKOFF: u64 = 200;
/// `SLUICE_MAX_RETRIES`, as the description states; tries after the first.
const RETRIES: u32 = 3;
/// A release is tried more often: if it gives up, the slot is lost until its lease ends.
const RELEASE_TRIES: u32 = 50;
const LEASE_TTL: Duration = Duration::from_secs(60);

/// The reference algorithm in one process.
#[derive(Clone)]
pub(crate) struct Reference {
    pub(crate) dynamo: Dynamo,
    pub(crate) table: String,
    /// The dimensions, each with its cost.
    pub(crate) dimensions: Vec<(String, f64)>,
    pub(crate) clock: Clock,
}

/// One bucket as it was read, and the tokens that are left.
struct Row {
    version: i64,
    left: f64,
    rate: f64,
    concurrent: bool,
}

/// A lease row, and what it gives back to its bucket.
pub(crate) struct Lease {
    key: String,
    restores: Option<(String, f64)>,
}

impl System for Reference {
    type Held = Vec<Lease>;

    async fn take(&self) -> Result<Answer<Self::Held>, Failure> {
        for attempt in 0..=RETRIES {
            let now = self.clock.now();
            let mut rows = Vec::new();
            for (dimension, cost) in &self.dimensions {
                match self.read(dimension, *cost, now).await? {
                    Some(row) => rows.push(row),
                    None => return Ok(Answer::GaveUp),
                }
            }
            if let Some(short) = rows.iter().find(|row| row.left < 0.0) {
                return Ok(Answer::Refused { wait: retry_in(short) });
            }
            if let Some(leases) = self.write(&rows, now).await? {
                return Ok(Answer::granted(leases));
            }
            sleep(backoff(attempt)).await;
        }
        Ok(Answer::GaveUp)
    }

    /// Deletes the leases. Tokens of a concurrency limit are restored; other tokens stay consumed.
    async fn finish(&self, leases: Self::Held) -> Result<(), Failure> {
        for attempt in 0..RELEASE_TRIES {
            let done = match &leases[..] {
                [Lease { key, restores: None }] => {
                    let request = self.dynamo.delete_item().table_name(&self.table).key(KEY, text(key));
                    is_done(request.send().await)?
                }
                leases => {
                    let actions = leases.iter().map(|lease| self.give_back(lease)).collect::<Result<Vec<_>, _>>()?;
                    let request = self.dynamo.transact_write_items();
                    is_done(request.set_transact_items(Some(actions.concat())).send().await)?
                }
            };
            if done {
                return Ok(());
            }
            sleep(backoff(attempt)).await;
        }
        Err(Failure::new("the reference's release met a conflict in every try"))
    }
}

impl Reference {
    /// `None` if DynamoDB throttled the read.
    async fn read(&self, dimension: &str, cost: f64, now: Timestamp) -> Result<Option<Row>, Failure> {
        let request = self.dynamo.get_item().table_name(&self.table).key(KEY, text(dimension));
        let item = match request.consistent_read(true).send().await {
            Ok(reply) => reply.item.ok_or_else(|| Failure::new(format!("there is no bucket {dimension}")))?,
            Err(error) if is_busy(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let (tokens, rate) = (number(&item, "tokens")?, number(&item, "refill_rate")?);
        let elapsed = seconds(now) - number(&item, "last_refill_at")?;
        let level = number(&item, "capacity")?.min(tokens + elapsed * rate);
        let version = item.get("version").and_then(|value| value.as_n().ok()?.parse().ok());
        Ok(Some(Row { version: version.unwrap_or(0), left: level - cost, rate, concurrent: rate == 0.0 }))
    }

    /// Writes bucket and lease of every dimension, or nothing; `None` if the transaction was cancelled.
    async fn write(&self, rows: &[Row], now: Timestamp) -> Result<Option<Vec<Lease>>, Failure> {
        let (mut actions, mut leases) = (Vec::new(), Vec::new());
        for (row, (dimension, cost)) in rows.iter().zip(&self.dimensions) {
            let key = format!("lease#{dimension}#{:016x}", fastrand::u64(..));
            actions.push(self.take_tokens(row, dimension, now)?);
            actions.push(self.put_lease(&key, dimension, *cost, now)?);
            leases.push(Lease { key, restores: row.concurrent.then(|| (dimension.clone(), *cost)) });
        }
        let sent = self.dynamo.transact_write_items().set_transact_items(Some(actions)).send().await;
        Ok(is_done(sent)?.then_some(leases))
    }

    fn take_tokens(&self, row: &Row, dimension: &str, now: Timestamp) -> Result<TransactWriteItem, Failure> {
        let update = Update::builder()
            .table_name(&self.table)
            .key(KEY, text(dimension))
            .update_expression("SET tokens = :tokens, last_refill_at = :now, version = :version")
            .condition_expression("version = :read_version")
            .expression_attribute_values(":tokens", digits(row.left))
            .expression_attribute_values(":now", digits(seconds(now)))
            .expression_attribute_values(":version", digits(row.version + 1))
            .expression_attribute_values(":read_version", digits(row.version));
        Ok(TransactWriteItem::builder().update(update.build()?).build())
    }

    fn put_lease(&self, key: &str, dimension: &str, cost: f64, now: Timestamp) -> Result<TransactWriteItem, Failure> {
        let put = Put::builder()
            .table_name(&self.table)
            .item(KEY, text(key))
            .item("dimension", text(dimension))
            .item("cost", digits(cost))
            .item("created_at", digits(now.ceil_to_second()))
            .item("ttl", digits(now.after(LEASE_TTL).ceil_to_second()))
            .item("caller", text("bench"));
        Ok(TransactWriteItem::builder().put(put.build()?).build())
    }

    fn give_back(&self, lease: &Lease) -> Result<Vec<TransactWriteItem>, Failure> {
        let delete = Delete::builder().table_name(&self.table).key(KEY, text(&lease.key)).build()?;
        let mut actions = vec![TransactWriteItem::builder().delete(delete).build()];
        if let Some((dimension, cost)) = &lease.restores {
            let update = Update::builder()
                .table_name(&self.table)
                .key(KEY, text(dimension))
                .update_expression("SET tokens = tokens + :cost, version = version + :1")
                .expression_attribute_values(":cost", digits(cost))
                .expression_attribute_values(":1", digits(1));
            actions.push(TransactWriteItem::builder().update(update.build()?).build());
        }
        Ok(actions)
    }
}

/// The wait as the description states it, if tokens are refilled. For limits without a refill, such as slots,
/// the description states none: the wait of a retry is used.
fn retry_in(row: &Row) -> Duration {
    if row.concurrent {
        return Duration::from_millis(fastrand::u64(BASE_BACKOFF..=LONGEST_BACKOFF));
    }
    Duration::try_from_secs_f64(-row.left / row.rate).unwrap_or_default()
}

/// The backoff, with full jitter.
pub(super) fn backoff(attempt: u32) -> Duration {
    let longest = BASE_BACKOFF.saturating_mul(1 << attempt.min(10)).min(LONGEST_BACKOFF);
    Duration::from_micros(fastrand::u64(0..=longest * 1_000))
}

/// Whether the write was applied; after a cancellation, a conflict or throttling it was not.
fn is_done<T, E>(sent: Result<T, SdkError<E>>) -> Result<bool, Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match sent {
        Ok(_) => Ok(true),
        Err(error) if is_busy(&error) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Error codes that mean that nothing was applied, and that the same request may succeed later.
const BUSY: [&str; 5] = [
    "TransactionCanceledException",
    "TransactionConflictException",
    "TransactionInProgressException",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
];

pub(super) fn is_busy<E: ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    error.as_service_error().and_then(|error| error.code()).is_some_and(|code| BUSY.contains(&code))
}

pub(super) fn failed<E: std::error::Error + 'static>(error: SdkError<E>) -> Failure {
    Failure::new(aws_sdk_dynamodb::error::DisplayErrorContext(error))
}

fn number(item: &HashMap<String, AttributeValue>, name: &str) -> Result<f64, Failure> {
    let parsed = item.get(name).and_then(|value| value.as_n().ok()?.parse().ok());
    parsed.ok_or_else(|| Failure::new(format!("a bucket has no number {name}")))
}

#[allow(clippy::cast_precision_loss)]
fn seconds(at: Timestamp) -> f64 {
    at.micros() as f64 / 1e6
}

pub(super) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(super) fn digits(value: impl std::fmt::Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
