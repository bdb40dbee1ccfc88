//! The table: the only place that talks to DynamoDB. Translates core's writes, retries what is worth it, and tells apart what
//! did not happen from what may have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity, ReturnValue, TransactWriteItem};
use sluice_core::schema::KEY;
use sluice_core::{CancellationReason, Delete, Put, Update, Write};

use crate::dates::DateReader;
use crate::clock::Clock;
use crate::connect::http_client;
use crate::requests::{Units, retried};
use crate::retry::{Backoff, Fate, longest_request, random_up_to};
use crate::table_clock::TableClock;

mod answer;
mod error;
mod exchange;
mod operation;
mod read;
mod request;
mod time;
mod translate;
mod tries;

use answer::{Answer, Failed, cancelled};
pub use error::StoreError;
pub use exchange::{ATTEMPT_TIMEOUT, AttemptTimeout};
pub(crate) use operation::Operation;
pub use read::{Consistency, Page, Scan};
use request::Reply;
use time::Learning;
pub use translate::{Attributes, row_key, value_text};
pub use tries::Tries;

/// A row as the AWS SDK returns it.
pub type Item = HashMap<String, AttributeValue>;

/// One table of one DynamoDB.
#[derive(Clone, Debug)]
pub struct Store {
    dynamo: Dynamo,
    table: String,
    max_retries: u32,
    attempt: AttemptTimeout,
    requests: Arc<AtomicU64>,
    units: Arc<Units>,
    clock: Arc<TableClock>,
    learning: Arc<Learning>,
    dates: DateReader,
}

/// Which table, and how long a request for it may take.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the table.
    pub table: String,
    /// How often a request is sent again.
    pub max_retries: u32,
    /// How long one attempt of a request for rows may take.
    pub attempt_timeout: Duration,
    /// This machine's clock.
    pub clock: Clock,
}

/// The answer to a conditional write.
#[derive(Debug)]
pub enum Written {
    /// Applied; the row as it is now.
    Applied(Item),
    /// The condition was false; the row as it is, if there is one.
    ConditionFailed(Option<Item>),
}

/// Whether a write may be sent a second time when it is not known whether the first was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAmbiguous {
    /// Its condition, or its harmlessness, makes a second application safe.
    SendAgain,
    /// Applying it twice would be wrong.
    Stop,
}

/// Writes that are applied together or not at all, under a token that stays the same however often they are sent.
#[derive(Clone, Debug)]
pub struct Transaction {
    items: Vec<TransactWriteItem>,
    token: String,
}

/// The answer to a transaction.
#[derive(Debug)]
pub enum Transacted {
    /// All of its writes were applied.
    Committed,
    /// Nothing was applied; one entry for each action, in order.
    Cancelled(Vec<Cancelled>),
}

/// Why an action of a transaction was not applied.
#[derive(Debug)]
pub struct Cancelled {
    /// What DynamoDB says of it.
    pub reason: CancellationReason,
    /// The row whose condition was false, where there is one.
    pub row: Option<Item>,
}

impl Transaction {
    /// These writes, at most 100, under a new token.
    #[must_use]
    pub fn new(writes: &[Write]) -> Self {
        Self {
            items: writes.iter().map(translate::action).collect(),
            token: uuid::Uuid::now_v7().hyphenated().to_string(),
        }
    }
}

impl Store {
    /// The table that `settings` name, by way of `dynamo`. If `dynamo` has no HTTP client, one is made.
    #[must_use]
    pub fn new(dynamo: &Dynamo, settings: Settings) -> Self {
        let Settings { table, max_retries, attempt_timeout, clock } = settings;
        let clock = Arc::new(TableClock::new(clock));
        let dates = DateReader::new(Arc::clone(&clock));
        let attempt = AttemptTimeout(attempt_timeout);
        let bounded = exchange::bounded(dynamo, attempt, http_client);
        let dynamo = Dynamo::from_conf(bounded.interceptor(dates.clone()).build());
        Self {
            dynamo,
            table,
            max_retries,
            attempt,
            requests: Arc::default(),
            units: Arc::default(),
            clock,
            learning: Arc::default(),
            dates,
        }
    }

    /// The same table, with its requests counted from nothing.
    #[must_use]
    pub fn counting_anew(&self) -> Self {
        Self { requests: Arc::default(), ..self.clone() }
    }

    /// Requests sent so far, the repeated ones among them.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The client that requests go through.
    #[must_use]
    pub const fn dynamo(&self) -> &Dynamo {
        &self.dynamo
    }

    /// The time of the table.
    #[must_use]
    pub fn clock(&self) -> &TableClock {
        &self.clock
    }

    /// The host that requests go to, once one went there.
    fn server(&self) -> Option<&str> {
        self.dates.server()
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// How often a request is sent again.
    #[must_use]
    pub const fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// How long one attempt of a request may take.
    #[must_use]
    pub const fn attempt(&self) -> AttemptTimeout {
        self.attempt
    }

    /// How long a request for rows may take, with all of its attempts and the waits between them. Where credentials have to be
    /// fetched for it, that comes on top.
    #[must_use]
    pub fn longest_request(&self) -> Duration {
        longest_request(self.attempt.of_rows(), self.max_retries)
    }

    /// One conditional write on one row, with the row in either reply.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn update(&self, update: &Update, if_ambiguous: IfAmbiguous) -> Result<Written, StoreError> {
        self.update_noting(update, if_ambiguous, &mut false).await
    }

    /// As [`update`](Self::update); notes whether a try before the one that was answered may have been applied.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn update_noting(
        &self,
        update: &Update,
        if_ambiguous: IfAmbiguous,
        maybe_applied: &mut bool,
    ) -> Result<Written, StoreError> {
        let request = || translate::update(&self.dynamo, &self.table, update).send();
        match self.retrying_noting(Operation::UpdateItem, if_ambiguous, request, maybe_applied).await {
            Ok(reply) => Ok(Written::Applied(reply.attributes.unwrap_or_default())),
            Err(failed) => failed.condition(),
        }
    }

    /// Makes a row.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn put(&self, put: &Put) -> Result<Written, StoreError> {
        let request = || translate::put(&self.dynamo, &self.table, put).send();
        match self.retrying(Operation::PutItem, IfAmbiguous::SendAgain, request).await {
            Ok(_) => Ok(Written::Applied(Item::new())),
            Err(failed) => failed.condition(),
        }
    }

    /// Removes a row; notes whether a try before the one that was answered may have been applied.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn delete_noting(&self, delete: &Delete, maybe_applied: &mut bool) -> Result<Written, StoreError> {
        let request = || translate::delete(&self.dynamo, &self.table, delete).send();
        match self.retrying_noting(Operation::DeleteItem, IfAmbiguous::SendAgain, request, maybe_applied).await {
            Ok(_) => Ok(Written::Applied(Item::new())),
            Err(failed) => failed.condition(),
        }
    }

    /// Removes a row, whatever it holds, and returns it.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn delete_row(&self, key: &str) -> Result<Option<Item>, StoreError> {
        let request = || {
            let request = self.dynamo.delete_item().table_name(&self.table).return_values(ReturnValue::AllOld);
            let request = request.return_consumed_capacity(TOLD);
            request.key(KEY, AttributeValue::S(key.to_owned())).send()
        };
        let reply = self.retrying(Operation::DeleteItem, IfAmbiguous::SendAgain, request).await;
        reply.map(|reply| reply.attributes).map_err(Failed::error)
    }

    /// Sends a transaction. What never arrived or never answered is sent again under the same token, which makes it one
    /// transaction for DynamoDB; a cancellation comes back with its reasons, for the caller to judge.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Transacted, StoreError> {
        self.transact_noting(transaction, &mut false).await
    }

    /// As [`transact`](Self::transact); notes whether a try before the one that was answered may have been applied.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn transact_noting(
        &self,
        transaction: &Transaction,
        maybe_applied: &mut bool,
    ) -> Result<Transacted, StoreError> {
        let request = || {
            let request = self.dynamo.transact_write_items().client_request_token(&transaction.token);
            let request = request.return_consumed_capacity(TOLD);
            let items = transaction.items.iter().map(|item| translate::in_table(item, &self.table)).collect();
            request.set_transact_items(Some(items)).send()
        };
        let operation = Operation::TransactWriteItems;
        match self.retrying_noting(operation, IfAmbiguous::SendAgain, request, maybe_applied).await {
            Ok(_) => Ok(Transacted::Committed),
            Err(Failed::Cancelled(reasons)) => Ok(Transacted::Cancelled(reasons.into_iter().map(cancelled).collect())),
            Err(failed) => Err(failed.error()),
        }
    }

    /// Waits before the next try of whatever just met a conflict.
    pub async fn back_off(&self, attempt: u32) {
        tokio::time::sleep(Backoff::DEFAULT.delay(attempt, random_up_to)).await;
    }

    async fn retrying<T, E, Send>(
        &self,
        operation: Operation,
        if_ambiguous: IfAmbiguous,
        send: impl Fn() -> Send,
    ) -> Result<T, Failed>
    where
        Send: Future<Output = Result<T, SdkError<E>>>,
        T: Reply,
        E: ProvideErrorMetadata + Answer + std::error::Error + std::marker::Send + Sync + 'static,
    {
        self.retrying_noting(operation, if_ambiguous, send, &mut false).await
    }

    /// The one loop that sends a request again.
    async fn retrying_noting<T, E, Send>(
        &self,
        operation: Operation,
        if_ambiguous: IfAmbiguous,
        send: impl Fn() -> Send,
        maybe_applied: &mut bool,
    ) -> Result<T, Failed>
    where
        Send: Future<Output = Result<T, SdkError<E>>>,
        T: Reply,
        E: ProvideErrorMetadata + Answer + std::error::Error + std::marker::Send + Sync + 'static,
    {
        // A request that was signed by a wrong clock is not counted as a try: its reply tells the time.
        let mut was_skewed = false;
        for attempt in 0.. {
            self.requests.fetch_add(1, Ordering::Relaxed);
            // On the heap: it is large, and nested deeper than the compiler takes in the futures of those who call it.
            let error = match self.send_once(operation, attempt, Box::pin(send())).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if let SdkError::ServiceError(context) = &error
                && let Some(answer) = context.err().answer()
            {
                return Err(answer);
            }
            if !was_skewed && error::is_clock_skew(&error) {
                was_skewed = true;
                retried(operation);
                continue;
            }
            let fate = error::fate(&error);
            *maybe_applied |= fate == Fate::Ambiguous && !operation.reads();
            let stop = !fate.is_transient()
                || attempt >= self.max_retries + u32::from(was_skewed)
                || (fate == Fate::Ambiguous && if_ambiguous == IfAmbiguous::Stop);
            if stop {
                return Err(Failed::Store(error::describe(operation.as_str(), &self.table, *maybe_applied, error)));
            }
            retried(operation);
            tracing::debug!(event = "dynamodb.retry", operation = operation.as_str(), attempt, ?fate);
            self.back_off(attempt).await;
        }
        unreachable!("the loop returns")
    }
}

/// What each reply tells of the units that it cost.
const TOLD: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;
