//! The rights of a role, checked as IAM checks them: a transaction by its parts.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_sdk::core::schema::KEY;

/// What a role may do with the table. Everything else is denied.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    actions: BTreeSet<String>,
    on_keys: Vec<(String, String)>,
}

impl Rights {
    /// No rights at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Allows an action on every row, for example `dynamodb:GetItem`.
    #[must_use]
    pub fn allow(mut self, action: impl Into<String>) -> Self {
        self.actions.insert(action.into());
        self
    }

    /// Allows an action on the rows whose partition key matches `pattern` (`dynamodb:LeadingKeys`), for
    /// example `lease#*`.
    #[must_use]
    pub fn allow_on(mut self, action: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.on_keys.push((action.into(), pattern.into()));
        self
    }

    /// The first action of a request that is not allowed.
    pub(crate) fn denied(&self, operation: &str, body: &[u8]) -> Option<String> {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        parts(operation, &request).into_iter().find_map(|(action, keys)| {
            let action = format!("dynamodb:{action}");
            let on_keys = |key: &String| {
                self.on_keys.iter().any(|(allowed, pattern)| *allowed == action && is_like(key, pattern))
            };
            let allowed = self.actions.contains(&action) || (!keys.is_empty() && keys.iter().all(on_keys));
            (!allowed).then_some(action)
        })
    }
}

/// The actions that IAM checks, each with the partition keys that it touches.
fn parts(operation: &str, request: &Value) -> Vec<(String, Vec<String>)> {
    let key = |part: &Value| -> Vec<String> {
        let row = if part["Key"].is_object() { &part["Key"] } else { &part["Item"] };
        row[KEY]["S"].as_str().map(str::to_owned).into_iter().collect()
    };
    match operation {
        "TransactWriteItems" => {
            let items =
                request["TransactItems"].as_array().into_iter().flatten().filter_map(Value::as_object);
            let part = |(kind, part): (&String, &Value)| {
                let action = if kind == "ConditionCheck" {
                    "ConditionCheckItem".into()
                } else {
                    format!("{kind}Item")
                };
                (action, key(part))
            };
            items.flatten().map(part).collect()
        }
        "BatchGetItem" => {
            let tables = request["RequestItems"].as_object().into_iter().flatten();
            let keys = tables.flat_map(|(_, wanted)| wanted["Keys"].as_array().into_iter().flatten());
            let names = keys.filter_map(|row| row[KEY]["S"].as_str().map(str::to_owned));
            vec![(operation.to_owned(), names.collect())]
        }
        _ => vec![(operation.to_owned(), key(request))],
    }
}

/// Whether `key` matches `pattern`. As in IAM's `StringLike`, `*` at the end matches anything.
fn is_like(key: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    }
}

/// DynamoDB's answer to a role that lacks the right to `action`.
pub(crate) fn refusal(action: &str) -> Vec<u8> {
    let message = format!(
        "User: arn:aws:sts::000000000000:assumed-role/test is not authorized to perform: {action} on the table, because no \
         identity-based policy allows the {action} action"
    );
    json!({ "__type": "com.amazon.coral.service#AccessDeniedException", "Message": message })
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_checked_by_its_parts() {
        let rights = Rights::none().allow("dynamodb:UpdateItem").allow_on("dynamodb:DeleteItem", "lease#*");
        let transaction = |key: &str| {
            let key = json!({ KEY: { "S": key } });
            json!({ "TransactItems": [{ "Delete": { "Key": key } }, { "Update": { "Key": key } }] })
                .to_string()
        };
        assert_eq!(rights.denied("TransactWriteItems", transaction("lease#a#b#1").as_bytes()), None);
        let denied = rights.denied("TransactWriteItems", transaction("a#b").as_bytes());
        assert_eq!(denied.as_deref(), Some("dynamodb:DeleteItem"));
        assert_eq!(rights.denied("Scan", b"{}").as_deref(), Some("dynamodb:Scan"));
    }
}
