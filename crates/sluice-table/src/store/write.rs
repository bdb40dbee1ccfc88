//! Writes: one row, or several together.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, TransactWriteItem};
use sluice_core::schema::KEY;
use sluice_core::{Delete, Put, Update, Write};

use super::answer::{Failed, cancelled};
use super::connection::Store;
use super::error::StoreError;
use super::translate::{self, COUNT_UNITS};
use super::written::{Attempted, Item, Resend, Transacted, Written};
use crate::operation::Operation;

/// Writes that are applied together or not at all. The token stays the same however often they are sent.
#[derive(Clone, Debug)]
pub struct Transaction {
    items: Vec<TransactWriteItem>,
    token: String,
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
    /// Sends one conditional write on one row. Both answers contain the row.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn update(&self, update: &Update, resend: Resend) -> Result<Written, StoreError> {
        self.try_update(update, resend).await.answer
    }

    /// As [`update`](Self::update), and says whether a try without an answer may have been applied.
    pub async fn try_update(&self, update: &Update, resend: Resend) -> Attempted<Written> {
        let request = || translate::update(&self.link.dynamo, &self.link.table, update).send();
        let attempted = self.send_with_retries(Operation::UpdateItem, resend, request).await;
        attempted.map(|answer| match answer {
            Ok(reply) => Ok(Written::Applied(reply.attributes.unwrap_or_default())),
            Err(failed) => failed.condition(),
        })
    }

    /// Creates a row.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn put(&self, put: &Put) -> Result<Written, StoreError> {
        let request = || translate::put(&self.link.dynamo, &self.link.table, put).send();
        match self.answer_with_retries(Operation::PutItem, Resend::Always, request).await {
            Ok(_) => Ok(Written::Applied(Item::new())),
            Err(failed) => failed.condition(),
        }
    }

    /// Deletes a row, and says whether a try without an answer may have been applied.
    pub async fn try_delete(&self, delete: &Delete) -> Attempted<Written> {
        let request = || translate::delete(&self.link.dynamo, &self.link.table, delete).send();
        let attempted = self.send_with_retries(Operation::DeleteItem, Resend::Always, request).await;
        attempted.map(|answer| match answer {
            Ok(_) => Ok(Written::Applied(Item::new())),
            Err(failed) => failed.condition(),
        })
    }

    /// Deletes a row, whatever it contains, and returns it.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn delete_row(&self, key: &str) -> Result<Option<Item>, StoreError> {
        let request = || {
            let request = self
                .link
                .dynamo
                .delete_item()
                .table_name(&self.link.table)
                .return_values(ReturnValue::AllOld);
            let request = request.return_consumed_capacity(COUNT_UNITS);
            request.key(KEY, AttributeValue::S(key.to_owned())).send()
        };
        let reply = self.answer_with_retries(Operation::DeleteItem, Resend::Always, request).await;
        reply.map(|reply| reply.attributes).map_err(Failed::error)
    }

    /// Sends a transaction. If it is not answered, it is sent again under the same token: for DynamoDB it is
    /// one. A cancellation is returned with its reasons, which the caller judges.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Transacted, StoreError> {
        self.try_transact(transaction).await.answer
    }

    /// As [`transact`](Self::transact), and says whether a try without an answer may have been applied.
    pub async fn try_transact(&self, transaction: &Transaction) -> Attempted<Transacted> {
        let request = || {
            let request = self.link.dynamo.transact_write_items().client_request_token(&transaction.token);
            let request = request.return_consumed_capacity(COUNT_UNITS);
            let items =
                transaction.items.iter().map(|item| translate::in_table(item, &self.link.table)).collect();
            request.set_transact_items(Some(items)).send()
        };
        let operation = Operation::TransactWriteItems;
        let attempted = self.send_with_retries(operation, Resend::Always, request).await;
        attempted.map(|answer| match answer {
            Ok(_) => Ok(Transacted::Committed),
            Err(Failed::Cancelled(reasons)) => {
                Ok(Transacted::Cancelled(reasons.into_iter().map(cancelled).collect()))
            }
            Err(failed) => Err(failed.error()),
        })
    }
}
