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

use super::{
    BASE_BACKOFF, LONGEST_BACKOFF, TakeResult, YardstickError, backoff, digits, failed, is_busy, text,
};

/// `SLUICE_MAX_RETRIES`, as the description states; tries after the first.
const RETRIES: u32 = 3;
/// A release is tried more often: if it gives up, the slot is lost until its lease ends.
const RELEASE_TRIES: u32 = 50;
const LEASE_TTL: Duration = Duration::from_secs(60);

/// The reference algorithm in one process.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The connection.
    pub dynamo: Dynamo,
    /// The name of the table.
    pub table: String,
    /// The dimensions, each with its cost.
    pub dimensions: Vec<(String, f64)>,
    /// The clock of the process.
    pub clock: Clock,
}

/// One bucket as it was read, and the tokens that are left.
struct Row {
    version: i64,
    left: f64,
    rate: f64,
    concurrent: bool,
}

/// A lease row, and what it gives back to its bucket.
#[derive(Debug)]
pub struct ReferenceLease {
    key: String,
    restores: Option<(String, f64)>,
}

impl Reference {
    /// Asks once, for all dimensions.
    ///
    /// # Errors
    /// [`YardstickError`] if DynamoDB fails, or a bucket does not exist or is none.
    pub async fn acquire(&self) -> Result<TakeResult<Vec<ReferenceLease>>, YardstickError> {
        for attempt in 0..=RETRIES {
            let now = self.clock.now();
            let mut rows = Vec::new();
            for (dimension, cost) in &self.dimensions {
                match self.read(dimension, *cost, now).await? {
                    Some(row) => rows.push(row),
                    None => return Ok(TakeResult::GaveUp),
                }
            }
            if let Some(short) = rows.iter().find(|row| row.left < 0.0) {
                return Ok(TakeResult::Refused { wait: retry_in(short) });
            }
            if let Some(leases) = self.write(&rows, now).await? {
                return Ok(TakeResult::granted(leases));
            }
            sleep(backoff(attempt)).await;
        }
        Ok(TakeResult::GaveUp)
    }

    /// Deletes the leases. Tokens of a concurrency limit are restored; other tokens stay consumed.
    ///
    /// # Errors
    /// [`YardstickError`] if DynamoDB fails, or every try met a conflict.
    pub async fn release(&self, leases: Vec<ReferenceLease>) -> Result<(), YardstickError> {
        for attempt in 0..RELEASE_TRIES {
            let done = match &leases[..] {
                [ReferenceLease { key, restores: None }] => {
                    let request = self.dynamo.delete_item().table_name(&self.table).key(KEY, text(key));
                    is_done(request.send().await)?
                }
                leases => {
                    let actions =
                        leases.iter().map(|lease| self.give_back(lease)).collect::<Result<Vec<_>, _>>()?;
                    let request = self.dynamo.transact_write_items();
                    is_done(request.set_transact_items(Some(actions.concat())).send().await)?
                }
            };
            if done {
                return Ok(());
            }
            sleep(backoff(attempt)).await;
        }
        Err(YardstickError("the reference's release met a conflict in every try".into()))
    }

    /// `None` if DynamoDB throttled the read.
    async fn read(&self, dimension: &str, cost: f64, now: Timestamp) -> Result<Option<Row>, YardstickError> {
        let request = self.dynamo.get_item().table_name(&self.table).key(KEY, text(dimension));
        let item = match request.consistent_read(true).send().await {
            Ok(reply) => {
                reply.item.ok_or_else(|| YardstickError(format!("there is no bucket {dimension}")))?
            }
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
    async fn write(
        &self,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<Option<Vec<ReferenceLease>>, YardstickError> {
        let (mut actions, mut leases) = (Vec::new(), Vec::new());
        for (row, (dimension, cost)) in rows.iter().zip(&self.dimensions) {
            let key = format!("lease#{dimension}#{:016x}", fastrand::u64(..));
            actions.push(self.take_tokens(row, dimension, now)?);
            actions.push(self.put_lease(&key, dimension, *cost, now)?);
            leases.push(ReferenceLease { key, restores: row.concurrent.then(|| (dimension.clone(), *cost)) });
        }
        let sent = self.dynamo.transact_write_items().set_transact_items(Some(actions)).send().await;
        Ok(is_done(sent)?.then_some(leases))
    }

    fn take_tokens(
        &self,
        row: &Row,
        dimension: &str,
        now: Timestamp,
    ) -> Result<TransactWriteItem, YardstickError> {
        let update = Update::builder()
            .table_name(&self.table)
            .key(KEY, text(dimension))
            .update_expression("SET tokens = :tokens, last_refill_at = :now, version = :version")
            .condition_expression("version = :read_version")
            .expression_attribute_values(":tokens", digits(row.left))
            .expression_attribute_values(":now", digits(seconds(now)))
            .expression_attribute_values(":version", digits(row.version + 1))
            .expression_attribute_values(":read_version", digits(row.version));
        Ok(TransactWriteItem::builder().update(update.build().map_err(failed)?).build())
    }

    fn put_lease(
        &self,
        key: &str,
        dimension: &str,
        cost: f64,
        now: Timestamp,
    ) -> Result<TransactWriteItem, YardstickError> {
        let put = Put::builder()
            .table_name(&self.table)
            .item(KEY, text(key))
            .item("dimension", text(dimension))
            .item("cost", digits(cost))
            .item("created_at", digits(now.ceil_to_second()))
            .item("ttl", digits(now.after(LEASE_TTL).ceil_to_second()))
            .item("caller", text("bench"));
        Ok(TransactWriteItem::builder().put(put.build().map_err(failed)?).build())
    }

    fn give_back(&self, lease: &ReferenceLease) -> Result<Vec<TransactWriteItem>, YardstickError> {
        let delete =
            Delete::builder().table_name(&self.table).key(KEY, text(&lease.key)).build().map_err(failed)?;
        let mut actions = vec![TransactWriteItem::builder().delete(delete).build()];
        if let Some((dimension, cost)) = &lease.restores {
            let update = Update::builder()
                .table_name(&self.table)
                .key(KEY, text(dimension))
                .update_expression("SET tokens = tokens + :cost, version = version + :1")
                .expression_attribute_values(":cost", digits(cost))
                .expression_attribute_values(":1", digits(1));
            actions.push(TransactWriteItem::builder().update(update.build().map_err(failed)?).build());
        }
        Ok(actions)
    }
}

/// The wait as described, if tokens are refilled. For slots the description states none: the wait of a retry
/// is used.
fn retry_in(row: &Row) -> Duration {
    if row.concurrent {
        return Duration::from_millis(fastrand::u64(BASE_BACKOFF..=LONGEST_BACKOFF));
    }
    Duration::try_from_secs_f64(-row.left / row.rate).unwrap_or_default()
}

/// Whether the write was applied; after a cancellation, a conflict or throttling it was not.
fn is_done<T, E>(sent: Result<T, SdkError<E>>) -> Result<bool, YardstickError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match sent {
        Ok(_) => Ok(true),
        Err(error) if is_busy(&error) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

fn number(item: &HashMap<String, AttributeValue>, name: &str) -> Result<f64, YardstickError> {
    let parsed = item.get(name).and_then(|value| value.as_n().ok()?.parse().ok());
    parsed.ok_or_else(|| YardstickError(format!("a bucket has no number {name}")))
}

#[allow(clippy::cast_precision_loss)]
fn seconds(at: Timestamp) -> f64 {
    at.micros() as f64 / 1e6
}
