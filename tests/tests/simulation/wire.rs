//! What stands in the requests and replies of DynamoDB's JSON.

use serde_json::Value;
use sluice_core::schema::KEY;
use sluice_testkit::{Answered, Call, Operation};

use crate::row::{Micros, number};

/// What a write of a bucket is for, told by its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Tokens or slots for callers, planned for the moment `now` by the clock of the client; `from_line` where it was not full.
    Take { now: Micros, from_line: bool },
    /// Tokens that were not used go back to the line of this anchor.
    Return { line: Micros },
    /// Calls are settled that used less: so much is returned.
    Settle { line: Micros, returned: Micros },
    /// A vendor's reply lowers the bucket; it is of the call that the write of this version was for. `from_line` where the reckoning
    /// starts at the line of that call, not at the level as it was read.
    Observe { by: Micros, version: Micros, from_line: bool },
    /// Limits, penalties, debts, cool-downs, notes, and what other clients write.
    Other,
}

impl Purpose {
    pub(crate) fn of(values: &Value) -> Self {
        let has = |value: &str| values[value].is_object();
        let read = |value: &str, decimals| if has(value) { number(values, value, decimals) } else { None };
        let line = read(":a", 6);
        if let (Some(line), true) = (line, has(":most")) {
            return read(":r", 6).map_or(Self::Return { line }, |returned| Self::Settle { line, returned });
        }
        if let (Some(by), Some(version)) = (read(":d", 6), read(":g", 0)) {
            return Self::Observe { by, version, from_line: !has(":lo") && !has(":hi") };
        }
        read(":now", 6).map_or(Self::Other, |now| Self::Take { now, from_line: has(":lo") })
    }

    /// The anchor of the line to which tokens are given back.
    pub(crate) const fn returned_to(self) -> Option<Micros> {
        match self {
            Self::Return { line } | Self::Settle { line, .. } => Some(line),
            _ => None,
        }
    }
}

/// Whether it is a write that gives back tokens: it must not be made twice.
pub(crate) fn is_give_back(call: Call<'_>) -> bool {
    call.operation == Operation::UpdateItem && {
        let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
        Purpose::of(&request["ExpressionAttributeValues"]).returned_to().is_some()
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
