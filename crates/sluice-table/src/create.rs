//! Making the table, for the sandbox and for tests. In AWS, Terraform makes it.

use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification,
};
use sluice_core::schema::{KEY, PURGE_AT};

/// Why the table could not be made.
#[derive(Debug, thiserror::Error)]
#[error("table {table:?} cannot be made ({step}): {message}")]
pub struct CreateTableError {
    /// The table's name.
    pub table: String,
    /// What was being done.
    pub step: &'static str,
    /// What the service said.
    pub message: String,
}

/// Looks at a table that is being made, and the time between two.
const LOOKS: u32 = 120;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// How long all of it may take: half a minute of looks, and what requests take.
const LONGEST: Duration = Duration::from_secs(60);

/// Makes `table` with the key and the TTL attribute of the schema, and waits until it is there. One that is there already is
/// left as it is; false then. Takes at most a minute.
///
/// # Errors
/// [`CreateTableError`] with what the service said, or after half a minute in which the table did not become active.
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
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S).build();
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
    Err(failed("DescribeTable", "it did not become active".into()))
}

fn message<E: std::error::Error + 'static>(error: &SdkError<E>) -> String
where
    SdkError<E>: std::error::Error,
{
    DisplayErrorContext(error).to_string()
}
