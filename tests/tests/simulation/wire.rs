//! What stands in the requests and replies of DynamoDB's JSON.

use serde_json::Value;
use sluice_core::schema::{HEAL_KEY, KEY, LEASE_PREFIX, LOAD_PREFIX};
use sluice_testkit::{Answered, Call, Operation};

use crate::row::{Micros, number};

/// A mark of callers that ends later than this is believed by nobody.
pub(crate) const FARTHEST_MARK: Micros = 8_000_000;

/// What a write of a bucket is for, told by its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Tokens or slots for callers, planned for the moment `now` by the clock of the client; `from_line`
    /// where it was not full.
    Take { now: Micros, from_line: bool },
    /// Tokens that were not used go back to the line of this anchor. `left` is the level that their take
    /// left, if their start is still to come.
    Return { line: Micros, left: Option<Micros> },
    /// Calls are settled that used less: so much is returned.
    Settle { line: Micros, returned: Micros },
    /// A vendor's reply lowers the bucket; it is of the call that the write of this version was for.
    /// `from_line` where the reckoning starts at the line of that call, not at the level as it was read.
    Observe { by: Micros, version: Micros, from_line: bool },
    /// A process begins a turn to scan the table.
    Mark { now: Micros, until: Micros },
    /// A process that wants slots notes itself and its refusals; `before` where it begins a period, with the
    /// count of the one before.
    Note { period: Micros, before: Option<Micros>, refusals: Micros },
    /// A process that may not scan takes its mark back.
    Unmark { at: Micros, until: Micros },
    /// A process that marked the table tells how far its turn came, and until when all leave the table alone.
    Progress { until: Micros, by: Micros },
    /// A sweep has measured the load of a bucket.
    Measure,
    /// Limits, penalties, debts, cool-downs, notes, and what other clients write.
    Other,
}

impl Purpose {
    pub(crate) fn of(key: &str, values: &Value) -> Self {
        let has = |value: &str| values[value].is_object();
        let read = |value: &str, decimals| if has(value) { number(values, value, decimals) } else { None };
        if key == HEAL_KEY {
            let Some(until) = read(":heal_after", 6) else { return Self::Other };
            let of_turn = read(":marked_at", 6).map(|at| match has(":heal_rows") {
                true => Self::Progress { until, by: at },
                false => Self::Unmark { at, until },
            });
            let mark = || read(":now", 6).map(|now| Self::Mark { now, until });
            return of_turn.or_else(mark).unwrap_or(Self::Other);
        }
        if key.starts_with(LOAD_PREFIX) {
            let note = read(":crowd_period", 0).zip(read(":refusals", 0));
            let note = note.map(|(period, refusals)| Self::Note {
                period,
                before: read(":crowd_before", 0),
                refusals,
            });
            return note.unwrap_or(if has(":sequence") { Self::Measure } else { Self::Other });
        }
        let line = read(":read_anchor", 6);
        if let (Some(line), true) = (line, has(":most_returned")) {
            return read(":returned", 6).map_or(Self::Return { line, left: read(":left", 6) }, |returned| {
                Self::Settle { line, returned }
            });
        }
        if let (Some(by), Some(version)) = (read(":excess", 6), read(":observed_version", 0)) {
            return Self::Observe { by, version, from_line: !has(":read_tokens") && !has(":brim") };
        }
        read(":now", 6).map_or(Self::Other, |now| Self::Take { now, from_line: has(":lowest") })
    }

    /// The anchor of the line to which tokens are given back.
    pub(crate) const fn returned_to(self) -> Option<Micros> {
        match self {
            Self::Return { line, .. } | Self::Settle { line, .. } => Some(line),
            _ => None,
        }
    }
}

/// Whether it is a write that gives back tokens: it must not be made twice.
pub(crate) fn is_give_back(call: Call<'_>) -> bool {
    call.operation == Operation::UpdateItem && {
        let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
        let key = request["Key"][KEY]["S"].as_str().unwrap_or_default();
        Purpose::of(key, &request["ExpressionAttributeValues"]).returned_to().is_some()
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

/// What a request asks of one row.
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) purpose: Purpose,
    /// Leases that it gives back because they were seen to end, not because their holder is done: keys of
    /// rows, ids of inline ones.
    pub(crate) reclaims: Vec<String>,
    /// For a write that takes slots for callers of another share, only if nobody waits and some stay: a mark
    /// of callers that is later than this is not believed.
    pub(crate) borrows_beyond: Option<Micros>,
}

/// The rows that a request names.
pub(crate) fn keys_of(call: Call<'_>) -> Vec<String> {
    changes(call).into_iter().map(|change| change.key).collect()
}

/// The rows that a request names, each with what it is for.
pub(crate) fn changes(call: Call<'_>) -> Vec<Change> {
    let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let change = |part: &Value| {
        let row = if part["Key"].is_object() { &part["Key"] } else { &part["Item"] };
        let key = row[KEY]["S"].as_str()?.to_owned();
        let purpose = Purpose::of(&key, &part["ExpressionAttributeValues"]);
        let has = |value: &str| part["ExpressionAttributeValues"][value].is_object();
        let planned = number(&part["ExpressionAttributeValues"], ":now", 6);
        let is_borrowed = has(":far") && (has(":least") || has(":need"));
        let borrows_beyond = planned.filter(|_| is_borrowed).map(|planned| planned + FARTHEST_MARK);
        Some(Change { reclaims: reclaims(&key, part), purpose, borrows_beyond, key })
    };
    match request["TransactItems"].as_array() {
        Some(items) => {
            items.iter().filter_map(|item| item.as_object()?.values().next()).filter_map(change).collect()
        }
        None => change(&request).into_iter().collect(),
    }
}

/// The leases of which a part of a request asks that their end is as it was seen: no release does.
fn reclaims(key: &str, part: &Value) -> Vec<String> {
    if key.starts_with(LEASE_PREFIX) {
        let is_reclaim = part["ExpressionAttributeValues"][":read_ends"].is_object();
        return is_reclaim.then(|| key.to_owned()).into_iter().collect();
    }
    let condition = part["ConditionExpression"].as_str().unwrap_or_default();
    let names = part["ExpressionAttributeNames"].as_object().into_iter().flatten();
    let dead =
        names.filter(|(placeholder, _)| condition.contains(&format!("#leases.{placeholder}.#ends = ")));
    dead.filter_map(|(_, id)| Some(id.as_str()?.to_owned())).collect()
}

/// Whether a request is one of those that a healing scan is made of. Others read rows too.
pub(crate) fn may_be_of_a_heal(call: Call<'_>) -> bool {
    match call.operation {
        Operation::Scan | Operation::GetItem => true,
        _ => changes(call).iter().any(|change| change.key == HEAL_KEY || !change.reclaims.is_empty()),
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

/// Whether a request was a mark that another had made impossible.
pub(crate) fn unmarked(answered: Answered<'_>, row: impl Fn(&str) -> Option<Value>) -> Result<bool, String> {
    let changes = changes(answered.call);
    let mark = changes.iter().find_map(|change| match change.purpose {
        Purpose::Mark { now, .. } => Some((&change.key, now)),
        _ => None,
    });
    let Some((key, at)) = mark else { return Ok(false) };
    let verdict = verdict_of(answered);
    if verdict.starts_with("ValidationException") {
        // Whatever stands in the row: nobody would scan the table any more.
        return Err(format!("{key} does not take a mark: {:?}", row(key)));
    }
    // A mark that is sent again after a lost reply finds itself.
    let marked_at = row(key).and_then(|row| number(&row, "healed_at", 6));
    let is_another = marked_at.is_some_and(|marked_at| marked_at != at && at - marked_at < 8_000_000);
    Ok(verdict.starts_with("ConditionalCheckFailed") && is_another)
}

/// Whether a request changes something.
pub(crate) const fn is_write(call: Call<'_>) -> bool {
    !matches!(call.operation, Operation::GetItem | Operation::BatchGetItem | Operation::Scan)
}

/// The rows that a request for many of them names.
pub(crate) fn read_keys(call: Call<'_>) -> Vec<String> {
    let request: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let tables = request["RequestItems"].as_object().into_iter().flatten();
    let keys = tables.flat_map(|(_, wanted)| wanted["Keys"].as_array().into_iter().flatten());
    keys.filter_map(|key| Some(key[KEY]["S"].as_str()?.to_owned())).collect()
}
