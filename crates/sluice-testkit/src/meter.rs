//! What AWS would bill: requests and capacity units, by operation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dynoxide::Database;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::engine;
use crate::item_size::item_size;
use crate::operation::Operation;
use crate::profile::ProfileWrite;

/// Counts what clients use. Clones are one meter.
///
/// Write units follow from item sizes, by DynamoDB's rules: one unit for each started KB of the larger of the
/// item before and after the write, and at least one; twice that in a transaction. A false condition costs
/// the same. Units are counted only if the engine is in process: over a socket a meter counts requests alone.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    counts: Arc<Mutex<BTreeMap<Operation, Usage>>>,
    failed_writes: Arc<AtomicU64>,
    is_off: bool,
}

/// Requests and units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Requests that reached DynamoDB.
    pub requests: u64,
    /// Write units.
    pub write_units: u64,
    /// Read units; an eventually consistent read of 4 KB costs half a unit.
    pub read_units: f64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            write_units: self.write_units + other.write_units,
            read_units: self.read_units + other.read_units,
        }
    }
}

impl Meter {
    /// A meter that counts nothing and takes no time. (To count units, a meter reads every item before and
    /// after a write.)
    pub(crate) fn off() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.is_off
    }

    /// What was used since the last reset.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.locked().values().fold(Usage::default(), |sum, usage| sum + *usage)
    }

    /// What one operation used.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Usage {
        self.locked().get(&operation).copied().unwrap_or_default()
    }

    /// Writes that were answered with an error and changed nothing: a false condition, a conflict,
    /// throttling. A transaction counts as one.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes.load(Ordering::Relaxed)
    }

    /// Sets the meter to zero, and returns what was used.
    pub fn reset(&self) -> Usage {
        let total = self.total();
        self.locked().clear();
        self.failed_writes.store(0, Ordering::Relaxed);
        total
    }

    pub(crate) fn count_answer(&self, operation: Operation, status: u16) {
        if status != 200 && operation.is_write() {
            self.failed_writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self, operation: Operation, usage: Usage) {
        let mut counts = self.locked();
        let entry = counts.entry(operation).or_default();
        *entry = *entry + usage;
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Operation, Usage>> {
        self.counts.lock()
    }
}

const WRITE_UNIT: u64 = 1_024;
const READ_UNIT: u64 = 4_096;

/// Answers a request, and returns what it used.
pub(crate) fn metered(database: &Database, operation: &str, body: &[u8]) -> (u16, Vec<u8>, Usage) {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let keys = written_keys(operation, &request);
    let before: Vec<u64> = keys.iter().map(|(table, key)| size_of(database, table, key)).collect();
    let (status, reply) = engine::answer(database, operation, body);
    let after = keys.iter().map(|(table, key)| size_of(database, table, key));
    let units = |(before, after): (u64, u64)| before.max(after).div_ceil(WRITE_UNIT).max(1);
    let factor = if operation == "TransactWriteItems" { 2 } else { 1 };
    let write_units = before.into_iter().zip(after).map(units).sum::<u64>() * factor;
    let usage = Usage { requests: 1, write_units, read_units: read_units(operation, &request, &reply) };
    (status, reply, usage)
}

/// What a request will write, with the write units by the sizes before the write.
pub(crate) fn written(database: &Database, operation: &str, body: &[u8]) -> Vec<ProfileWrite> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let factor = if operation == "TransactWriteItems" { 2 } else { 1 };
    let keys = written_keys(operation, &request);
    let one = |(table, key): &(Value, Value)| ProfileWrite {
        item: format!("{table}{key}"),
        units: size_of(database, table, key).div_ceil(WRITE_UNIT).max(1) * factor,
    };
    keys.iter().map(one).collect()
}

/// Table and key of every item that the request writes.
fn written_keys(operation: &str, request: &Value) -> Vec<(Value, Value)> {
    let target = |action: &Value| {
        let key = match action.get("Key") {
            Some(key) => key.clone(),
            None => {
                let name = sluice_sdk::core::schema::KEY;
                json!({ name: action["Item"][name] })
            }
        };
        (action["TableName"].clone(), key)
    };
    match operation {
        "PutItem" | "UpdateItem" | "DeleteItem" => vec![target(request)],
        "TransactWriteItems" => {
            let actions = request["TransactItems"].as_array().into_iter().flatten();
            actions.filter_map(|action| action.as_object()?.values().next()).map(target).collect()
        }
        _ => Vec::new(),
    }
}

fn size_of(database: &Database, table: &Value, key: &Value) -> u64 {
    let request = json!({ "TableName": table, "Key": key, "ConsistentRead": true }).to_string();
    let (_, reply) = engine::answer(database, "GetItem", request.as_bytes());
    let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
    item_size(&reply["Item"])
}

fn read_units(operation: &str, request: &Value, reply: &[u8]) -> f64 {
    let reply: Value = serde_json::from_slice(reply).unwrap_or_default();
    if operation == "BatchGetItem" {
        return batch_read_units(request, &reply);
    }
    let items: Vec<&Value> = match operation {
        "GetItem" => vec![&reply["Item"]],
        "Scan" | "Query" => match reply["ConsumedCapacity"]["CapacityUnits"].as_f64() {
            Some(units) => return units,
            // Items that a filter leaves out are read too, but are not in the reply: this is a lower bound.
            None => reply["Items"].as_array().into_iter().flatten().collect(),
        },
        _ => return 0.0,
    };
    units_of(items.into_iter().map(item_size).sum(), &request["ConsistentRead"])
}

/// Each row costs as a single read does; a row that does not exist costs a unit too.
fn batch_read_units(request: &Value, reply: &Value) -> f64 {
    let tables = request["RequestItems"].as_object().into_iter().flatten();
    let of_table = |(table, wanted): (&String, &Value)| {
        let read: Vec<u64> =
            reply["Responses"][table].as_array().into_iter().flatten().map(item_size).collect();
        let asked = wanted["Keys"].as_array().map_or(0, Vec::len);
        let absent = std::iter::repeat_n(0, asked.saturating_sub(read.len()));
        read.iter()
            .copied()
            .chain(absent)
            .map(|bytes| units_of(bytes, &wanted["ConsistentRead"]))
            .sum::<f64>()
    };
    tables.map(of_table).sum()
}

/// Half units are exact in binary, so nothing is rounded.
#[allow(clippy::cast_precision_loss)]
fn units_of(bytes: u64, consistent: &Value) -> f64 {
    let units = bytes.div_ceil(READ_UNIT).max(1) as f64;
    if *consistent == json!(true) { units } else { units / 2.0 }
}
