//! Finds out whether this role has a right.
//!
//! Each probe of a write has a condition that no row can meet. DynamoDB checks the right first, so a false
//! condition means that the role has the right.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{Delete, KeysAndAttributes, Put, TransactWriteItem, Update};
use sluice_core::schema::KEY;

use super::{Probe, Probed};
use crate::store::row_key;

/// A condition that no row meets: an existing row has the key, a missing row lacks it.
const NEVER: &str = "attribute_exists(#pk) AND attribute_not_exists(#pk)";

/// An attribute that no row has.
const NOTHING: &str = "probed";

impl Probe<'_> {
    /// Probes the right to an action, such as `dynamodb:GetItem`, on the row with this key; a scan ignores
    /// the key.
    pub async fn right(self, action: &str, key: &str) -> Probed<()> {
        let Self { dynamo, table } = self;
        match action {
            "dynamodb:GetItem" => told(dynamo.get_item().table_name(table).set_key(Some(row_key(key))).send().await),
            "dynamodb:UpdateItem" => told(
                dynamo
                    .update_item()
                    .table_name(table)
                    .set_key(Some(row_key(key)))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#pk", KEY)
                    .expression_attribute_names("#n", NOTHING)
                    .update_expression("REMOVE #n")
                    .send()
                    .await,
            ),
            "dynamodb:PutItem" => told(
                dynamo
                    .put_item()
                    .table_name(table)
                    .set_item(Some(row_key(key)))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#pk", KEY)
                    .send()
                    .await,
            ),
            "dynamodb:DeleteItem" => told(
                dynamo
                    .delete_item()
                    .table_name(table)
                    .set_key(Some(row_key(key)))
                    .condition_expression(NEVER)
                    .expression_attribute_names("#pk", KEY)
                    .send()
                    .await,
            ),
            "dynamodb:BatchGetItem" => match KeysAndAttributes::builder().keys(row_key(key)).build() {
                Ok(keys) => told(dynamo.batch_get_item().request_items(table, keys).send().await),
                Err(error) => Probed::Failed(error.to_string()),
            },
            "dynamodb:Scan" => told(dynamo.scan().table_name(table).limit(1).send().await),
            other => Probed::Failed(format!("there is no probe of {other}")),
        }
    }

    /// Probes the right to an update, a put and a delete of rows with these keys in one transaction, which is
    /// never applied.
    pub async fn right_to_transact(self, updated: &str, put: &str, deleted: &str) -> Probed<()> {
        let Self { dynamo, table } = self;
        let row = |key: &str| Some(row_key(key));
        let update = Update::builder().table_name(table).set_key(row(updated)).condition_expression(NEVER);
        let put = Put::builder().table_name(table).set_item(row(put)).condition_expression(NEVER);
        let delete = Delete::builder().table_name(table).set_key(row(deleted)).condition_expression(NEVER);
        let update = update.expression_attribute_names("#pk", KEY).expression_attribute_names("#n", NOTHING);
        let update = update.update_expression("REMOVE #n").build();
        let put = put.expression_attribute_names("#pk", KEY).build();
        let delete = delete.expression_attribute_names("#pk", KEY).build();
        let (Ok(update), Ok(put), Ok(delete)) = (update, put, delete) else {
            return Probed::Failed("the probe cannot be written".into());
        };
        let items = [
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().delete(delete).build(),
        ];
        told(dynamo.transact_write_items().set_transact_items(Some(items.into())).send().await)
    }
}

/// A false condition means that the role has the right: a denial comes before any condition is checked.
fn told<T, E>(result: Result<T, SdkError<E>>) -> Probed<()>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match result.map(drop) {
        Err(error)
            if matches!(error.code(), Some("ConditionalCheckFailedException" | "TransactionCanceledException")) =>
        {
            Probed::Given(())
        }
        result => Probed::of(result),
    }
}
