//! DynamoDB's API operations as calls of the engine, without a socket.

use dynoxide::{AttributeValue, Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_sdk::core::Operand;

/// Answers `operation` with the status and the body of DynamoDB's wire protocol.
pub(crate) fn answer(database: &Database, operation: &str, body: &[u8]) -> (u16, Vec<u8>) {
    match dispatch(database, operation, body) {
        Ok(reply) => (200, reply),
        Err(error) => (error.status_code(), error.to_json().into_bytes()),
    }
}

fn dispatch(database: &Database, operation: &str, body: &[u8]) -> Result<Vec<u8>, DynoxideError> {
    match operation {
        "CreateTable" => call(body, |request| database.create_table(request)),
        "DeleteTable" => call(body, |request| database.delete_table(request)),
        "DescribeTable" => call(body, |request| database.describe_table(request)),
        "ListTables" => call(body, |request| database.list_tables(request)),
        "UpdateTable" => call(body, |request| database.update_table(request)),
        "UpdateTimeToLive" => call(body, |request| database.update_time_to_live(request)),
        "DescribeTimeToLive" => call(body, |request| database.describe_time_to_live(request)),
        "GetItem" => call(body, |request| database.get_item(request)),
        "PutItem" => call(body, |request| database.put_item(request)),
        "UpdateItem" => call(body, |request| database.update_item(request)),
        "DeleteItem" => call(body, |request| database.delete_item(request)),
        "BatchGetItem" => call(body, |request| database.batch_get_item(request)),
        "BatchWriteItem" => call(body, |request| database.batch_write_item(request)),
        "TransactGetItems" => call(body, |request| database.transact_get_items(request)),
        "TransactWriteItems" => call(body, |request| database.transact_write_items(request)),
        "Query" => call(body, |request| database.query(request)),
        "Scan" => call(body, |request| database.scan(request)),
        other => Err(DynoxideError::SerializationException(format!(
            "the in-process engine has no operation {other}"
        ))),
    }
}

fn call<Request: DeserializeOwned, Reply: Serialize>(
    body: &[u8],
    operation: impl Fn(Request) -> Result<Reply, DynoxideError>,
) -> Result<Vec<u8>, DynoxideError> {
    let request =
        serde_json::from_slice(body).map_err(|e| DynoxideError::SerializationException(e.to_string()))?;
    let reply = operation(request)?;
    serde_json::to_vec(&reply).map_err(|e| DynoxideError::InternalServerError(e.to_string()))
}

/// A value of core, as the engine stores it.
pub(crate) fn value(operand: Operand) -> AttributeValue {
    match operand {
        Operand::Text(text) => AttributeValue::S(text),
        Operand::Number(number) => AttributeValue::N(number),
        Operand::Map(entries) => AttributeValue::M(
            entries.into_iter().map(|(name, entry)| (name.into_owned(), value(entry))).collect(),
        ),
    }
}
