//! Someone who spoils rows and mends them later, and loses slots, or mints them, by hand.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;
use serde_json::Value;
use sluice_core::schema::{HEAL_KEY, KEY, LOAD_PREFIX};
use tokio::time::sleep;

use crate::others::{number, text};
use crate::process::Process;
use crate::scenario::BucketPlan;
use crate::universe::{Spoilt, TABLE, Universe};

/// Spoils rows and mends them later, and loses slots, or mints them, by hand.
pub(crate) async fn vandal(universe: Arc<Universe>, process: Process, mut rng: Rng) {
    while !universe.is_over() {
        sleep(Duration::from_millis(rng.u64(1_000..=6_000))).await;
        if rng.u32(0..4) == 0 {
            edit_slots(&universe, &process, &mut rng).await;
            continue;
        }
        let key = {
            let leases: Vec<String> = universe.ledger(|ledger| {
                let of_workload =
                    ledger.leases().filter(|(_, lease)| universe.scenario.bucket(&lease.dimension).is_some());
                of_workload.map(|(key, _)| key.clone()).collect()
            });
            let buckets = universe.scenario.buckets.iter();
            let buckets = buckets
                .flat_map(|bucket| [bucket.name().to_owned(), format!("{LOAD_PREFIX}{}", bucket.name())]);
            let keys: Vec<String> = leases.into_iter().chain(buckets).chain([HEAL_KEY.to_owned()]).collect();
            rng.choice(&keys).cloned().unwrap()
        };
        spoil(&universe, &process, &key, &mut rng).await;
        sleep(Duration::from_millis(rng.u64(10..=4_000))).await;
        mend_all(&universe).await;
    }
}

const SPOILABLE: [&str; 42] = [
    "tokens",
    "capacity",
    "last_refill_at",
    "refill_rate",
    "version",
    "limit_type",
    "cost",
    "dimension",
    "ttl",
    "created_at",
    "admitted",
    "counted",
    "capped",
    "drift",
    "leases",
    "admitted_inline",
    "lots",
    "returned",
    "blocked_until",
    "observed",
    "observed_version",
    "vendor_limit",
    "pending",
    "taken",
    "uncounted",
    "outlived_seen",
    "drain_rate",
    "measured_at",
    "sequence",
    "pending_since",
    "departed_at",
    "still_since",
    "healed_at",
    "healed_by",
    "heal_after",
    "heal_position",
    "refused",
    "crowd_period",
    "crowd",
    "crowd_before",
    "outlived",
    "drift_seen_at",
];

/// Puts a value where it makes no sense, past the ledger.
async fn spoil(universe: &Arc<Universe>, process: &Process, key: &str, rng: &mut Rng) {
    let Ok(Some(row)) = process.dynamo.row(TABLE, key) else { return };
    let spoilable: Vec<&'static str> =
        SPOILABLE.into_iter().filter(|name| row.get(*name).is_some()).collect();
    let Some(&attribute) = rng.choice(&spoilable) else { return };
    let is = [
        serde_json::json!({ "S": "NaN" }),
        serde_json::json!({ "BOOL": true }),
        serde_json::json!({ "L": [] }),
    ][rng.usize(0..3)]
    .clone();
    let act = if key.starts_with(LOAD_PREFIX) { "load row spoiled" } else { "row spoiled" };
    universe.act(act, &format!("{key} {attribute}"));
    universe.ledger(|ledger| ledger.spoiled(key, universe.time()));
    let was = row.get(attribute).cloned();
    universe.spoiled(|spoiled| spoiled.insert(key.to_owned(), Spoilt { attribute, was, is: is.clone() }));
    set(universe, key, attribute, attribute_value(&is)).await;
}

/// Puts back what was spoiled, where it is still as the vandal left it.
pub(crate) async fn mend_all(universe: &Arc<Universe>) {
    let spoiled = universe.spoiled(std::mem::take);
    for (key, spoilt) in spoiled {
        universe.ledger(|ledger| ledger.spoiled(&key, universe.time()));
        let Ok(Some(row)) = universe.dynamo.row(TABLE, &key) else { continue };
        if row[spoilt.attribute] == spoilt.is
            && let Some(was) = &spoilt.was
        {
            set(universe, &key, spoilt.attribute, attribute_value(was)).await;
        }
    }
}

async fn set(universe: &Arc<Universe>, key: &str, attribute: &'static str, value: AttributeValue) {
    let past_everyone = universe.dynamo.dynamodb();
    let request = past_everyone.update_item().table_name(TABLE).key(KEY, text(key));
    let request =
        request.update_expression("SET #name = :value").expression_attribute_names("#name", attribute);
    let request = request.condition_expression("attribute_exists(vendor_dimension)");
    let _ = request.expression_attribute_values(":value", value).send().await;
}

async fn edit_slots(universe: &Arc<Universe>, process: &Process, rng: &mut Rng) {
    let slots: Vec<&BucketPlan> =
        universe.scenario.buckets.iter().filter(|bucket| bucket.is_concurrent()).collect();
    let Some(bucket) = rng.choice(&slots) else { return };
    let by = if rng.bool() { "1" } else { "-1" };
    universe.act("slot edited by hand", &format!("{} {by}", bucket.name()));
    universe.record(|record| record.edited(bucket.name(), universe.time()));
    let request = process.dynamo.dynamodb().update_item().table_name(TABLE).key(KEY, text(bucket.name()));
    let request = request.update_expression("SET tokens = tokens + :step, version = version + :1");
    let request = request.expression_attribute_values(":step", number(by.into()));
    let _ = request.expression_attribute_values(":1", number("1".into())).send().await;
}

fn attribute_value(json: &Value) -> AttributeValue {
    match json.as_object().and_then(|object| object.iter().next()) {
        Some((kind, Value::String(value))) if kind == "N" => AttributeValue::N(value.clone()),
        Some((kind, Value::String(value))) if kind == "S" => AttributeValue::S(value.clone()),
        Some((kind, _)) if kind == "L" => AttributeValue::L(Vec::new()),
        Some((kind, Value::Object(map))) if kind == "M" => AttributeValue::M(
            map.iter().map(|(name, value)| (name.clone(), attribute_value(value))).collect(),
        ),
        _ => AttributeValue::Bool(true),
    }
}
