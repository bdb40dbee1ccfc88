//! A lone conditional `UpdateItem` in a loop: no read, no lease, no refill. The least that a limiter in DynamoDB can do.

use aws_sdk_dynamodb::Client as Dynamo;
use sluice_sdk::core::schema::KEY;
use std::time::Duration;
use tokio::time::sleep;

use super::reference::{backoff, digits, failed, is_busy, text};
use super::system::{Answer, System};
use crate::failure::Failure;

/// Sent again so often where DynamoDB refuses it for its rate.
const RETRIES: u32 = 3;

#[derive(Clone)]
pub(crate) struct LoneUpdate {
    pub(crate) dynamo: Dynamo,
    pub(crate) table: String,
    pub(crate) dimension: String,
}

impl System for LoneUpdate {
    type Held = ();

    async fn take(&self) -> Result<Answer<()>, Failure> {
        for attempt in 0..=RETRIES {
            let request = self.dynamo.update_item().table_name(&self.table).key(KEY, text(&self.dimension));
            let request = request
                .update_expression("SET tokens = tokens - :k, version = version + :k")
                .condition_expression("tokens >= :k")
                .expression_attribute_values(":k", digits(1));
            match request.send().await {
                Ok(_) => return Ok(Answer::granted(())),
                Err(error) if is_busy(&error) => sleep(backoff(attempt)).await,
                Err(error) => {
                    let condition = error.as_service_error().is_some_and(|e| e.is_conditional_check_failed_exception());
                    return if condition { Ok(Answer::Refused { wait: Duration::ZERO }) } else { Err(failed(error)) };
                }
            }
        }
        Ok(Answer::GaveUp)
    }

    async fn finish(&self, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}
