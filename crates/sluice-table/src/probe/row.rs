//! One row: how often it was written, and its size.

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::VERSION;

use super::{Probe, Probed};
use crate::store::{Item, row_key};

/// A row at one moment.
#[derive(Clone, Copy, Debug)]
pub struct RowState {
    /// The number of its writes.
    pub version: Option<i64>,
    /// Its size.
    pub bytes: u64,
}

impl Probe<'_> {
    /// Reads a row, strongly consistent; `None` if there is no such row.
    pub async fn row(self, key: &str) -> Probed<Option<RowState>> {
        let request = self.dynamo.get_item().table_name(self.table).consistent_read(true);
        let reply = request.set_key(Some(row_key(key))).send().await;
        Probed::of(reply.map(|reply| reply.item.as_ref().map(state)))
    }
}

fn state(row: &Item) -> RowState {
    let version = row.get(VERSION).and_then(|version| version.as_n().ok()?.parse().ok());
    RowState { version, bytes: item_size(row) }
}

/// The size of an item in bytes ("DynamoDB item sizes and formats", Amazon DynamoDB Developer Guide).
fn item_size(item: &Item) -> u64 {
    item.iter().map(|(name, value)| length(name) + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> u64 {
    match value {
        AttributeValue::S(text) => length(text),
        AttributeValue::N(digits) => number_size(digits),
        AttributeValue::B(bytes) => u64::try_from(bytes.as_ref().len()).unwrap_or(u64::MAX),
        AttributeValue::L(items) => 3 + items.iter().map(|item| 1 + value_size(item)).sum::<u64>(),
        AttributeValue::M(map) => {
            3 + map.iter().map(|(name, value)| 1 + length(name) + value_size(value)).sum::<u64>()
        }
        AttributeValue::Ss(items) => items.iter().map(|text| length(text)).sum(),
        AttributeValue::Ns(items) => items.iter().map(|digits| number_size(digits)).sum(),
        _ => 1,
    }
}

/// The size in bytes of a number: one byte for two significant digits, plus one; a negative number has one
/// more for its sign.
fn number_size(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    length(digits.trim_matches('0')).div_ceil(2) + 1 + u64::from(text.starts_with('-'))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
