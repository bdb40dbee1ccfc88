//! Creates the table, for the sandbox and for tests. In AWS, Terraform creates it.

use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification,
};
use sluice_core::schema::{KEY, PURGE_AT};

/// Why the table could not be created.
#[derive(Debug, thiserror::Error)]
#[error("table {table:?} cannot be created ({step}): {message}")]
pub struct CreateTableError {
    /// The table's name.
    pub table: String,
    /// The step that failed.
    pub step: &'static str,
    /// The service's message.
    pub message: String,
}

/// How often the state of a new table is polled, and the time between two polls.
const LOOKS: u32 = 120;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// How long the creation may take: half a minute of polls, and the time of the requests.
const LONGEST: Duration = Duration::from_secs(60);

/// Creates `table` with the schema's key and TTL attribute, and waits until the table is active. If the table
/// already exists, leaves it as it is and returns false. Takes at most a minute.
///
/// # Errors
/// [`CreateTableError`] with the service's message, or if the table is not active within half a minute.
pub async fn create_table(dynamo: &Dynamo, table: &str) -> Result<bool, CreateTableError> {
    let failed = |step, message| CreateTableError { table: table.to_owned(), step, message };
    match tokio::time::timeout(LONGEST, create(dynamo, table, failed)).await {
        Ok(created) => created,
        Err(_) => Err(failed("CreateTable", format!("not done within {} s", LONGEST.as_secs()))),
    }
}

async fn create(
    dynamo: &Dynamo,
    table: &str,
    failed: impl Fn(&'static str, String) -> CreateTableError,
) -> Result<bool, CreateTableError> {
    let attribute =
        AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S).build();
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build();
    let ttl = TimeToLiveSpecification::builder().attribute_name(PURGE_AT).enabled(true).build();
    let invalid = |error: aws_sdk_dynamodb::error::BuildError| failed("schema", error.to_string());
    let created = dynamo
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute.map_err(invalid)?)
        .key_schema(key.map_err(invalid)?)
        .send()
        .await;
    match created {
        Ok(_) => {}
        Err(error) if error.code() == Some("ResourceInUseException") => return Ok(false),
        Err(error) => return Err(failed("CreateTable", message(&error))),
    }
    for _ in 0..LOOKS {
        let described = dynamo.describe_table().table_name(table).send().await;
        let described = described.map_err(|error| failed("DescribeTable", message(&error)))?;
        if described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
            let enabled = dynamo
                .update_time_to_live()
                .table_name(table)
                .time_to_live_specification(ttl.map_err(invalid)?)
                .send()
                .await;
            return enabled.map(|_| true).map_err(|error| failed("UpdateTimeToLive", message(&error)));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Err(failed("DescribeTable", "the table did not become active within half a minute".into()))
}

fn message<E: std::error::Error + 'static>(error: &SdkError<E>) -> String
where
    SdkError<E>: std::error::Error,
{
    DisplayErrorContext(error).to_string()
}
