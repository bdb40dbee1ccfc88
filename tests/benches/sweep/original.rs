//! The first SDK's reconciler, as its operations page describes it: a scan for ended leases; for each, a read
//! of its bucket, and a transaction that restores the slots under a capacity guard and deletes the lease. One
//! after another.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, TransactWriteItem, Update};
use sluice_core::Timestamp;
use sluice_core::schema::{CAPACITY, COST, DIMENSION, KEY};
use tokio::time::Instant;

/// Restores until the deadline; returns how many leases.
pub(crate) async fn sweep(dynamo: &Client, table: &str, now: Timestamp, deadline: Instant) -> usize {
    let mut restored = 0;
    let mut from = None;
    loop {
        let page = dynamo
            .scan()
            .table_name(table)
            .filter_expression("begins_with(vendor_dimension, :lease) AND #ttl < :now")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":lease", AttributeValue::S("lease#".into()))
            .expression_attribute_values(":now", AttributeValue::N(now.to_string()))
            .set_exclusive_start_key(from)
            .send()
            .await
            .unwrap();
        for lease in page.items() {
            if Instant::now() >= deadline {
                return restored;
            }
            restore(dynamo, table, &lease[KEY], &lease[DIMENSION], number(&lease[COST])).await;
            restored += 1;
        }
        from = page.last_evaluated_key;
        if from.is_none() {
            return restored;
        }
    }
}

async fn restore(
    dynamo: &Client,
    table: &str,
    lease: &AttributeValue,
    dimension: &AttributeValue,
    cost: f64,
) {
    let bucket =
        dynamo.get_item().table_name(table).key(KEY, dimension.clone()).send().await.unwrap().item.unwrap();
    let update = Update::builder()
        .table_name(table)
        .key(KEY, dimension.clone())
        .update_expression("SET tokens = tokens + :cost")
        .condition_expression("tokens <= :max_tokens")
        .expression_attribute_values(":cost", AttributeValue::N(cost.to_string()))
        .expression_attribute_values(
            ":max_tokens",
            AttributeValue::N((number(&bucket[CAPACITY]) - cost).to_string()),
        )
        .build()
        .unwrap();
    let delete = Delete::builder().table_name(table).key(KEY, lease.clone()).build().unwrap();
    dynamo
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().update(update).build())
        .transact_items(TransactWriteItem::builder().delete(delete).build())
        .send()
        .await
        .unwrap();
}

fn number(value: &AttributeValue) -> f64 {
    value.as_n().unwrap().parse().unwrap()
}
