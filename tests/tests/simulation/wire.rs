//! What stands in the requests and replies of DynamoDB's JSON.

use serde_json::Value;
use sluice_core::schema::KEY;
use sluice_testkit::{Answered, Call, Operation};

/// Whether it is the write with which tokens are given back unused.
pub(crate) fn is_give_back(call: Call<'_>) -> bool {
    call.operation == Operation::UpdateItem && {
        let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
        request["ExpressionAttributeValues"][":left"].is_object()
    }
}

pub(crate) const fn name_of(call: Call<'_>) -> &'static str {
    match call.operation {
        Operation::GetItem => "get",
        Operation::BatchGetItem => "get many",
        Operation::PutItem => "put",
        Operation::UpdateItem => "update",
        Operation::DeleteItem => "delete",
        Operation::TransactWriteItems => "transact",
        Operation::Scan => "scan",
        _ => "other",
    }
}

/// The rows that a request names.
pub(crate) fn keys_of(call: Call<'_>) -> Vec<String> {
    changes(call).into_iter().map(|(key, _)| key).collect()
}

/// The rows that a request names, each with the values of its expressions.
pub(crate) fn changes(call: Call<'_>) -> Vec<(String, Value)> {
    let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let change = |part: &Value| {
        let row = if part["Key"].is_object() { &part["Key"] } else { &part["Item"] };
        Some((row[KEY]["S"].as_str()?.to_owned(), part["ExpressionAttributeValues"].clone()))
    };
    match request["TransactItems"].as_array() {
        Some(items) => items.iter().filter_map(|item| item.as_object()?.values().next()).filter_map(change).collect(),
        None => change(&request).into_iter().collect(),
    }
}

/// What a single update sets, with its values.
pub(crate) fn update_of(call: Call<'_>) -> String {
    let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let mut update = format!(" {}", request["UpdateExpression"].as_str().unwrap_or_default());
    let names = request["ExpressionAttributeNames"].as_object().into_iter().flatten();
    for (name, attribute) in names {
        update = update.replace(name, attribute.as_str().unwrap_or_default());
    }
    let values = request["ExpressionAttributeValues"].as_object().into_iter().flatten();
    let values = values.filter_map(|(name, value)| Some(format!(" {name} {}", value["N"].as_str()?)));
    update + &values.collect::<String>()
}

pub(crate) fn verdict_of(answered: Answered<'_>) -> String {
    if answered.status == 200 {
        return "done".into();
    }
    let reply: Value = serde_json::from_slice(answered.reply).unwrap_or_default();
    let kind = reply["__type"].as_str().unwrap_or_default().rsplit('#').next().unwrap_or_default().to_owned();
    let codes = reply["CancellationReasons"].as_array().into_iter().flatten();
    let codes: Vec<&str> = codes.filter_map(|reason| reason["Code"].as_str()).collect();
    format!("{kind} {}", codes.join(","))
}
