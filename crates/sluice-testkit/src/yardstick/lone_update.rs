//! A lone conditional `UpdateItem` in a loop: the least that a limiter in DynamoDB can do.

use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure};
use sluice_sdk::core::schema::KEY;
use sluice_sdk::core::{Operand, Update};
use tokio::time::sleep;

use super::{TakeResult, YardstickError, backoff, digits, failed, is_busy, text};

/// How often a throttled write is sent again.
const RETRIES: u32 = 3;

/// A lone conditional update in one process.
#[derive(Clone, Debug)]
pub struct LoneUpdate {
    /// The connection.
    pub dynamo: Dynamo,
    /// The name of the table.
    pub table: String,
    /// The bucket.
    pub dimension: String,
}

impl LoneUpdate {
    /// Takes a token.
    ///
    /// # Errors
    /// [`YardstickError`] if DynamoDB fails.
    pub async fn acquire(&self) -> Result<TakeResult<()>, YardstickError> {
        for attempt in 0..=RETRIES {
            let request = self.dynamo.update_item().table_name(&self.table).key(KEY, text(&self.dimension));
            let request = request
                .update_expression("SET tokens = tokens - :1, version = version + :1")
                .condition_expression("tokens >= :1")
                .expression_attribute_values(":1", digits(1));
            match request.send().await {
                Ok(_) => return Ok(TakeResult::granted(())),
                Err(error) if is_busy(&error) => sleep(backoff(attempt)).await,
                Err(error) => {
                    let condition =
                        error.as_service_error().is_some_and(|e| e.is_conditional_check_failed_exception());
                    return if condition {
                        Ok(TakeResult::Refused { wait: Duration::ZERO })
                    } else {
                        Err(failed(error))
                    };
                }
            }
        }
        Ok(TakeResult::GaveUp)
    }
}

/// The same write as Sluice's, planned once and sent without Sluice. The rest of Sluice's time is Sluice's
/// own.
#[derive(Clone, Debug)]
pub struct OwnUpdate {
    /// The connection.
    pub dynamo: Dynamo,
    /// The name of the table.
    pub table: String,
    /// Sluice's write.
    pub update: Update,
}

impl OwnUpdate {
    /// Sends the write.
    ///
    /// # Errors
    /// [`YardstickError`] if it is not applied.
    pub async fn acquire(&self) -> Result<TakeResult<()>, YardstickError> {
        let statement = &self.update.statement;
        let mut request = self
            .dynamo
            .update_item()
            .table_name(&self.table)
            .key(KEY, text(&self.update.key))
            .update_expression(statement.update.to_string())
            .condition_expression(statement.condition.to_string())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            // Sluice counts what its requests cost.
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        for (placeholder, name) in statement.names.iter() {
            request = request.expression_attribute_names(placeholder, name.to_string());
        }
        for (name, operand) in &self.update.values {
            let value = match operand {
                Operand::Text(value) => text(value),
                Operand::Number(value) => digits(value),
                other => return Err(YardstickError(format!("no such operand: {other:?}"))),
            };
            request = request.expression_attribute_values(name.to_string(), value);
        }
        request.send().await.map_err(failed)?;
        Ok(TakeResult::granted(()))
    }
}
