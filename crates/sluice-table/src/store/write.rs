//! Writes: one row, or several together.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, TransactWriteItem};
use sluice_core::schema::KEY;
use sluice_core::{Delete, Put, Update, Write};

use super::answer::{Failed, cancelled};
use super::connection::Store;
use super::error::StoreError;
use super::translate::{self, TOLD};
use super::written::{IfAmbiguous, Item, Transacted, Written};
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
    pub async fn update(&self, update: &Update, if_ambiguous: IfAmbiguous) -> Result<Written, StoreError> {
        self.update_noting(update, if_ambiguous, &mut false).await
    }

    /// As [`update`](Self::update). Sets `maybe_applied` if a try before the answered one may have been
    /// applied.
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

    /// Creates a row.
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

    /// Deletes a row. Sets `maybe_applied` if a try before the answered one may have been applied.
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

    /// Deletes a row, whatever it contains, and returns it.
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

    /// Sends a transaction. If it does not arrive or is not answered, it is sent again under the same token,
    /// so for DynamoDB it is one transaction. A cancellation is returned with its reasons; the caller judges
    /// them.
    ///
    /// # Errors
    /// [`StoreError`] if no try was answered.
    pub async fn transact(&self, transaction: &Transaction) -> Result<Transacted, StoreError> {
        self.transact_noting(transaction, &mut false).await
    }

    /// As [`transact`](Self::transact). Sets `maybe_applied` if a try before the answered one may have been
    /// applied.
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
}
