//! Rows of others in the table, so many that a scan takes many pages: leases of a bucket that is not there,
//! and what is no row of Sluice.

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use sluice_core::schema::{CALLER, COST, CREATED_AT, DIMENSION, KEY, TTL};

use crate::conditions::FOREIGN_ROWS;
use crate::others::{number, text};
use crate::scenario::START;
use crate::universe::{TABLE, Universe};

/// Rows that one request writes.
const AT_ONCE: usize = 25;

/// Long after the run.
const FAR_OFF_SECS: i64 = 100 * 24 * 60 * 60;

fn keys() -> impl Iterator<Item = String> {
    (0..FOREIGN_ROWS).map(|at| {
        if at % 2 == 0 { format!("lease#foreign#concurrent#{at:04}") } else { format!("other#{at:04}") }
    })
}

fn row(key: &str) -> PutRequest {
    let ends = START.micros() / 1_000_000 + FAR_OFF_SECS;
    let put = PutRequest::builder().item(KEY, text(key));
    let lease = |put: aws_sdk_dynamodb::types::builders::PutRequestBuilder| {
        let put = put.item(DIMENSION, text("foreign#concurrent")).item(COST, number("1".into()));
        put.item(TTL, number(ends.to_string()))
            .item(CREATED_AT, number("1".into()))
            .item(CALLER, text("foreign"))
    };
    let put =
        if key.starts_with("lease#") { lease(put) } else { put.item("what", AttributeValue::Bool(true)) };
    put.build().unwrap()
}

/// Puts them there, in a table of many pages.
pub(crate) async fn found(universe: &Universe) {
    if universe.scenario.conditions.page.is_none() {
        return;
    }
    let rows: Vec<WriteRequest> =
        keys().map(|key| WriteRequest::builder().put_request(row(&key)).build()).collect();
    for some in rows.chunks(AT_ONCE) {
        let write = universe.dynamo.dynamodb().batch_write_item().request_items(TABLE, some.to_vec());
        write.send().await.unwrap();
    }
}

/// Takes them away: the end counts what is left.
pub(crate) async fn remove(universe: &Universe) {
    if universe.scenario.conditions.page.is_none() {
        return;
    }
    for key in keys() {
        universe.dynamo.dynamodb().delete_item().table_name(TABLE).key(KEY, text(&key)).send().await.unwrap();
    }
}
