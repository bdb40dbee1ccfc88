//! Finds out whether this role has a right.
//!
//! Each probe of a write has a condition that no row can meet. DynamoDB checks the right first, so a false
//! condition means that the role has the right.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{Delete, KeysAndAttributes, Put, TransactWriteItem, Update};

use super::{Probe, Probed};
use crate::store::row_key;

/// A condition that no row meets.
const NEVER: &str = "attribute_exists(probed) AND attribute_not_exists(probed)";

/// A change of an attribute that no row has.
const CHANGE: &str = "REMOVE probed";

impl Probe<'_> {
    /// Probes the right to an action, such as `dynamodb:GetItem`, on the row with this key; a scan ignores
    /// the key.
    pub async fn right(self, action: &str, key: &str) -> Probed<()> {
        let (Self { dynamo, table }, row) = (self, row_key(key));
        match action {
            "dynamodb:GetItem" => {
                right_of(dynamo.get_item().table_name(table).set_key(Some(row)).send().await)
            }
            "dynamodb:UpdateItem" => {
                let request =
                    dynamo.update_item().table_name(table).set_key(Some(row)).condition_expression(NEVER);
                right_of(request.update_expression(CHANGE).send().await)
            }
            "dynamodb:PutItem" => {
                let request = dynamo.put_item().table_name(table).set_item(Some(row));
                right_of(request.condition_expression(NEVER).send().await)
            }
            "dynamodb:DeleteItem" => {
                let request = dynamo.delete_item().table_name(table).set_key(Some(row));
                right_of(request.condition_expression(NEVER).send().await)
            }
            "dynamodb:BatchGetItem" => match KeysAndAttributes::builder().keys(row).build() {
                Ok(keys) => right_of(dynamo.batch_get_item().request_items(table, keys).send().await),
                Err(error) => Probed::Failed(error.to_string()),
            },
            "dynamodb:Scan" => right_of(dynamo.scan().table_name(table).limit(1).send().await),
            other => Probed::Failed(format!("there is no probe of {other}")),
        }
    }

    /// Probes the right to an update, a put and a delete of rows with these keys in one transaction, which is
    /// never applied.
    pub async fn right_to_transact(self, updated: &str, put: &str, deleted: &str) -> Probed<()> {
        let Self { dynamo, table } = self;
        let row = |key: &str| Some(row_key(key));
        let update = Update::builder().table_name(table).set_key(row(updated)).update_expression(CHANGE);
        let update = update.condition_expression(NEVER).build();
        let put = Put::builder().table_name(table).set_item(row(put)).condition_expression(NEVER).build();
        let delete =
            Delete::builder().table_name(table).set_key(row(deleted)).condition_expression(NEVER).build();
        let (Ok(update), Ok(put), Ok(delete)) = (update, put, delete) else {
            return Probed::Failed("the probe cannot be written".into());
        };
        let items = [
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().delete(delete).build(),
        ];
        right_of(dynamo.transact_write_items().set_transact_items(Some(items.into())).send().await)
    }
}

/// A false condition means that the role has the right: a denial comes before any condition is checked.
fn right_of<T, E>(result: Result<T, SdkError<E>>) -> Probed<()>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match result.map(drop) {
        Err(error)
            if matches!(
                error.code(),
                Some("ConditionalCheckFailedException" | "TransactionCanceledException")
            ) =>
        {
            Probed::Given(())
        }
        result => Probed::of(result),
    }
}
