//! The whole table in one look: a single page of a scan, which the engine answers from one state.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{self, LEASE_PREFIX, LOAD_PREFIX};
use sluice_core::{Amount, CLOCK_ERROR, Timestamp};
use sluice_sdk::Clock;
use sluice_testkit::{Faults, Meter, dynamodb_at};

/// What one look saw.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) buckets: BTreeMap<String, Row>,
    pub(crate) leases: Vec<Held>,
}

/// A bucket's row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) capacity: Amount,
    pub(crate) tokens: Amount,
    pub(crate) concurrent: bool,
    noted_drift: bool,
}

/// A lease's row.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) dimension: String,
    pub(crate) caller: String,
    pub(crate) ends: Timestamp,
    cost: Amount,
}

/// A DynamoDB client of the AWS SDK for the engine at `endpoint`.
pub(crate) fn dynamo(endpoint: &str) -> Dynamo {
    dynamodb_at(endpoint, Meter::default(), Faults::default())
}

pub(crate) fn name() -> String {
    schema::table_name("sandbox")
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(
    row: &HashMap<String, AttributeValue>,
    name: &str,
) -> T {
    row[name].as_n().unwrap().parse().unwrap()
}

fn text(row: &HashMap<String, AttributeValue>, name: &str) -> String {
    row[name].as_s().unwrap().clone()
}

impl Look {
    pub(crate) async fn at(dynamo: &Dynamo) -> Self {
        let page = dynamo.scan().table_name(name()).consistent_read(true).send().await.unwrap();
        assert!(page.last_evaluated_key.is_none(), "the table fits into one page, and so into one state");
        let mut look = Self::default();
        for row in page.items.unwrap_or_default() {
            let key = text(&row, schema::KEY);
            if key.starts_with(LEASE_PREFIX) {
                look.leases.push(Held {
                    dimension: text(&row, schema::DIMENSION),
                    caller: text(&row, schema::CALLER),
                    ends: number(&row, schema::TTL),
                    cost: number(&row, schema::COST),
                });
            } else if !key.starts_with(LOAD_PREFIX) {
                let bucket = Row {
                    capacity: number(&row, schema::CAPACITY),
                    tokens: number(&row, schema::TOKENS),
                    concurrent: text(&row, schema::LIMIT_TYPE) == "concurrent",
                    noted_drift: row.contains_key(schema::DRIFT),
                };
                look.buckets.insert(key, bucket);
            }
        }
        look
    }

    /// Each slot is free or held by a lease, and none is both.
    pub(crate) fn assert_no_slot_is_lost_or_minted(&self) {
        for (name, bucket) in self.buckets.iter().filter(|(_, bucket)| bucket.concurrent) {
            let leases = self.leases.iter().filter(|lease| lease.dimension == *name);
            let held = leases.fold(Amount::ZERO, |held, lease| held.plus(lease.cost));
            assert_eq!(
                bucket.tokens.plus(held),
                bucket.capacity,
                "{name}: {} free, {held} held",
                bucket.tokens
            );
            assert!(held <= bucket.capacity, "{name}: {held} held");
            assert!(!bucket.noted_drift, "{name}: a sweep noted a drift that is none");
        }
    }

    /// No lease is left, and all slots are free.
    pub(crate) fn assert_whole(&self) {
        self.assert_no_slot_is_lost_or_minted();
        assert_eq!(self.leases.len(), 0, "{:?}", self.leases);
    }

    /// Waits until a sweep takes every lease of this look for ended.
    pub(crate) async fn wait_for_ends(&self) {
        let last = self.leases.iter().map(|lease| lease.ends).max().unwrap_or_default();
        let ended = last.after(CLOCK_ERROR).after(Duration::from_millis(100));
        tokio::time::sleep(ended.since(Clock::system().now())).await;
    }
}
