//! Sizes of items, as DynamoDB counts them for capacity units.
//!
//! Source: "DynamoDB item sizes and formats", Amazon DynamoDB Developer Guide.

use serde_json::Value;

/// The size in bytes of an item in the wire's JSON (`{"name": {"S": ".."}}`).
pub(crate) fn item_size(item: &Value) -> u64 {
    let attributes = item.as_object().into_iter().flatten();
    attributes.map(|(name, value)| length(name) + attribute_size(value)).sum()
}

fn attribute_size(value: &Value) -> u64 {
    let Some((kind, value)) = value.as_object().and_then(|typed| typed.iter().next()) else { return 0 };
    match (kind.as_str(), value) {
        ("S" | "B", Value::String(text)) => length(text),
        ("N", Value::String(digits)) => number_size(digits),
        ("BOOL" | "NULL", _) => 1,
        ("L", Value::Array(items)) => 3 + items.iter().map(|item| 1 + attribute_size(item)).sum::<u64>(),
        ("M", map) => 3 + item_size(map) + map.as_object().map_or(0, |map| map.len() as u64),
        ("SS" | "BS", Value::Array(items)) => items.iter().filter_map(Value::as_str).map(length).sum(),
        ("NS", Value::Array(items)) => items.iter().filter_map(Value::as_str).map(number_size).sum(),
        _ => 0,
    }
}

/// The size in bytes of a number: one byte for two significant digits, plus one; a negative number has one
/// more for its sign.
fn number_size(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let significant = digits.trim_start_matches('0').trim_end_matches('0').len() as u64;
    significant.div_ceil(2) + 1 + u64::from(text.starts_with('-'))
}

const fn length(text: &str) -> u64 {
    text.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_item_is_its_names_and_values() {
        assert_eq!(item_size(&json!({"pk": {"S": "abc"}, "n": {"N": "100"}})), 2 + 3 + 1 + 2);
        assert_eq!(item_size(&json!({"n": {"N": "-1.25"}})), 1 + 2 + 1 + 1);
        assert_eq!(item_size(&json!({"m": {"M": {"a": {"BOOL": true}}}})), 1 + 3 + 1 + 1 + 1);
    }
}
