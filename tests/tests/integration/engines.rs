//! Two engines, one answer: random requests of the kinds that Sluice sends, edge cases among them, to the
//! embedded engine in process and to another: the one that `SLUICE_TEST_ENDPOINT` names, or the embedded one
//! behind a socket.
//!
//! What Sluice never sends is left out, and there the engines differ. Who is right follows from the Amazon
//! DynamoDB Developer Guide ("Supported data types", "Expressions"); none of it was tried on AWS:
//!
//! | request                                             | embedded | ministack 1.5 | right          |
//! |-----------------------------------------------------|----------|---------------|----------------|
//! | a number with more zeroes than it needs, an exponent | trimmed | kept as sent  | embedded       |
//! | `SET a = a - :k` where there is no `a`, or a string  | invalid | taken for 0   | embedded       |
//! | `REMOVE m.i` where there is no `m`                  | invalid  | done          | embedded       |
//! | `a BETWEEN :high AND :low`                          | false    | invalid       | ministack      |
//!
//! The last is why the bounds of a spend are two comparisons.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeValue, Delete, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use sluice_core::schema::KEY;
use sluice_testkit::EmbeddedDynamo;

use crate::endpoint;
use crate::world::{TABLE, World, number, text};

const UPDATES: [&str; 10] = [
    "SET #tokens = if_not_exists(#tokens, :other) - :some",
    "SET #tokens = if_not_exists(#tokens, :other) + :some, #last_refill_at = :other",
    "SET #tokens = :some",
    "SET #extra = if_not_exists(#extra, :some) + :other",
    "REMOVE #extra SET #tokens = :some",
    "SET #leases = :map",
    "SET #leases.#id = :map",
    "REMOVE #leases SET #tokens = if_not_exists(#tokens, :some)",
    "SET #dimension = :text",
    "REMOVE #tokens",
];

const CONDITIONS: [&str; 17] = [
    "attribute_exists(#key)",
    "attribute_not_exists(#key)",
    "#tokens >= :some",
    "#tokens < :some",
    "#tokens = :some",
    "#tokens <> :some",
    "#last_refill_at = :other AND #tokens >= :some AND #tokens <= :other",
    "#tokens IN (:some, :other)",
    "attribute_type(#tokens, :number)",
    "NOT attribute_type(#dimension, :number) OR attribute_not_exists(#extra)",
    "attribute_not_exists(#extra) OR #extra <= :some",
    "attribute_exists(#leases.#id)",
    "#leases.#id.#tokens = :some AND #tokens >= :other",
    "begins_with(#key, :text)",
    "#dimension = :text",
    "#dimension = :some",
    "size(#dimension) > :some",
];

const NUMBERS: [&str; 9] =
    ["0", "1", "-1", "2", "1.5", "0.1", "1709550002.123456", "0.000001", "98765432109876543210.5"];

const KEYS: [&str; 3] = ["a#b", "lease#a#b#1", "lease#a#b#2"];

struct Requests {
    rng: fastrand::Rng,
}

/// An expression with the names and values that it uses, and no others.
struct Expressions {
    update: Option<&'static str>,
    condition: Option<&'static str>,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Requests {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(0..of.len())]
    }

    fn expressions(&mut self, updates: bool) -> Expressions {
        let update = updates.then(|| self.one(&UPDATES));
        let condition = (self.rng.u32(0..4) > 0).then(|| self.one(&CONDITIONS));
        let used = [update, condition].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let names = [
            ("#tokens", "tokens"),
            ("#last_refill_at", "last_refill_at"),
            ("#extra", "extra"),
            ("#leases", "leases"),
            ("#id", "id"),
            ("#dimension", "dimension"),
            ("#key", KEY),
        ];
        let names = names.into_iter().filter(|(name, _)| used.contains(name));
        let map = AttributeValue::M(HashMap::from([("tokens".into(), number(self.one(&NUMBERS)))]));
        let values = [
            (":some", number(self.one(&NUMBERS))),
            (":other", number(self.one(&NUMBERS))),
            (":number", text("N")),
            (":text", text(self.one(&["lease#", "a", "NaN"]))),
            (":map", map),
        ];
        let values = values.into_iter().filter(|(name, _)| used.contains(name));
        Expressions {
            update,
            condition,
            names: names.map(|(name, attribute)| (name.into(), attribute.into())).collect(),
            values: values.map(|(name, value)| (name.into(), value)).collect(),
        }
    }

    fn item(&mut self, key: &str) -> HashMap<String, AttributeValue> {
        let mut item =
            HashMap::from([(KEY.to_owned(), text(key)), ("tokens".into(), number(self.one(&NUMBERS)))]);
        if self.rng.bool() {
            item.insert("last_refill_at".into(), number(self.one(&NUMBERS)));
        }
        if self.rng.u32(0..4) == 0 {
            item.remove("tokens");
        }
        if self.rng.bool() {
            item.insert("dimension".into(), text("a"));
        }
        item
    }
}

fn some<T>(map: HashMap<String, T>) -> Option<HashMap<String, T>> {
    (!map.is_empty()).then_some(map)
}

/// An action of a transaction; sent alone as a transaction of one.
fn action(requests: &mut Requests, table: &str, key: &str) -> TransactWriteItem {
    let old = ReturnValuesOnConditionCheckFailure::AllOld;
    match requests.rng.u32(0..4) {
        0 => {
            let e = requests.expressions(false);
            let put = Put::builder().table_name(table).set_item(Some(requests.item(key)));
            let put = put
                .set_condition_expression(e.condition.map(Into::into))
                .set_expression_attribute_names(some(e.names));
            let put = put
                .set_expression_attribute_values(some(e.values))
                .return_values_on_condition_check_failure(old);
            TransactWriteItem::builder().put(put.build().unwrap()).build()
        }
        1 => {
            let e = requests.expressions(false);
            let delete = Delete::builder().table_name(table).key(KEY, text(key));
            let delete = delete
                .set_condition_expression(e.condition.map(Into::into))
                .set_expression_attribute_names(some(e.names));
            let delete = delete
                .set_expression_attribute_values(some(e.values))
                .return_values_on_condition_check_failure(old);
            TransactWriteItem::builder().delete(delete.build().unwrap()).build()
        }
        _ => {
            let e = requests.expressions(true);
            let update = Update::builder()
                .table_name(table)
                .key(KEY, text(key))
                .set_update_expression(e.update.map(Into::into));
            let update = update
                .set_condition_expression(e.condition.map(Into::into))
                .set_expression_attribute_names(some(e.names));
            let update = update
                .set_expression_attribute_values(some(e.values))
                .return_values_on_condition_check_failure(old);
            TransactWriteItem::builder().update(update.build().unwrap()).build()
        }
    }
}

fn row(item: Option<&HashMap<String, AttributeValue>>) -> String {
    format!(
        "{:?}",
        item.map(|item| item
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect::<BTreeMap<_, _>>())
    )
}

fn plain(value: &AttributeValue) -> String {
    match value {
        AttributeValue::M(map) => row(Some(map)),
        other => format!("{other:?}"),
    }
}

fn code<E: ProvideErrorMetadata>(error: &SdkError<E>) -> String {
    error.code().unwrap_or("no code").to_owned()
}

/// The answer to a transaction, or to its only action sent by itself, in words that can be compared.
async fn answer(dynamo: &Dynamo, actions: &[TransactWriteItem], token: Option<&str>) -> String {
    if let ([TransactWriteItem { update: Some(update), .. }], None) = (actions, token) {
        let request =
            dynamo.update_item().table_name(update.table_name()).set_key(Some(update.key().clone()));
        let request =
            request.update_expression(update.update_expression()).return_values(ReturnValue::AllNew);
        let request = request.set_condition_expression(update.condition_expression().map(Into::into));
        let request = request.set_expression_attribute_names(update.expression_attribute_names().cloned());
        let request = request.set_expression_attribute_values(update.expression_attribute_values().cloned());
        let request =
            request.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        return match request.send().await {
            Ok(reply) => format!("done {}", row(reply.attributes.as_ref())),
            Err(error) => {
                use aws_sdk_dynamodb::operation::update_item::UpdateItemError as E;
                let old = match error.as_service_error() {
                    Some(E::ConditionalCheckFailedException(failed)) => row(failed.item.as_ref()),
                    _ => String::new(),
                };
                format!("{} {old}", code(&error))
            }
        };
    }
    let request = dynamo.transact_write_items().set_transact_items(Some(actions.to_vec()));
    match request.set_client_request_token(token.map(Into::into)).send().await {
        Ok(_) => "done".into(),
        Err(error) => {
            use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as E;
            let reasons = match error.as_service_error() {
                Some(E::TransactionCanceledException(cancelled)) => cancelled.cancellation_reasons().to_vec(),
                _ => Vec::new(),
            };
            let old =
                |item: Option<&HashMap<String, AttributeValue>>| row(item.filter(|item| !item.is_empty()));
            let reasons = reasons
                .iter()
                .map(|reason| format!(" {} {}", reason.code().unwrap_or("None"), old(reason.item())));
            format!("{}{}", code(&error), reasons.collect::<String>())
        }
    }
}

async fn rows(dynamo: &Dynamo, table: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for key in KEYS {
        let read = dynamo
            .get_item()
            .table_name(table)
            .key(KEY, text(key))
            .consistent_read(true)
            .send()
            .await
            .unwrap();
        rows.push(row(read.item.as_ref()));
    }
    rows
}

/// Sends the same to both, and compares the answers and the rows that are left.
async fn compare((one, at): (&Dynamo, &str), (other, there): (&Dynamo, &str)) {
    // For ten minutes a token is one request, to all tables; it has 36 characters at most.
    let unique = &there[there.len().saturating_sub(24)..];
    for seed in 1..=20 {
        for key in KEYS {
            one.delete_item().table_name(at).key(KEY, text(key)).send().await.unwrap();
            other.delete_item().table_name(there).key(KEY, text(key)).send().await.unwrap();
        }
        for told in 0..25 {
            let mut shape = Requests { rng: fastrand::Rng::with_seed(seed * 1_000 + told) };
            let mut keys = KEYS;
            shape.rng.shuffle(&mut keys);
            let keys = &keys[..shape.rng.usize(1..=3)];
            let token =
                (shape.rng.u32(0..3) == 0).then(|| format!("{unique}-{seed}-{}", shape.rng.u32(0..6)));
            let make = |table: &str| {
                let mut requests = Requests { rng: shape.rng.clone() };
                keys.iter().map(|key| action(&mut requests, table, key)).collect::<Vec<_>>()
            };
            let (ours, theirs) = (make(at), make(there));
            let here = answer(one, &ours, token.as_deref()).await;
            let elsewhere = answer(other, &theirs, token.as_deref()).await;
            let sent = || format!("seed {seed}, request {told}: {ours:?} {token:?}");
            assert_eq!(here, elsewhere, "{}", sent());
            assert_eq!(rows(one, at).await, rows(other, there).await, "after {}", sent());
        }
    }
}

#[tokio::test]
async fn both_engines_answer_alike() {
    let embedded = World::embedded().await;
    if endpoint::url().is_some() {
        let world = World::new().await;
        return compare((&embedded.dynamodb(), TABLE), (&world.dynamodb(), world.table())).await;
    }
    let served = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let server = served.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = aws_sdk_dynamodb::config::Builder::from(&crate::world::sdk_config())
        .endpoint_url(server.endpoint_url());
    compare((&embedded.dynamodb(), TABLE), (&Dynamo::from_conf(config.build()), TABLE)).await;
}
