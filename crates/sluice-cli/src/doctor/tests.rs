//! Tests of the doctor's findings, about tables of the embedded engine with one problem each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_sdk::core::schema::KEY;
use sluice_sdk::core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_testkit::{EmbeddedDynamo, Fault, Operation};

use super::finding::Weight;
use super::*;

mod rights;
mod rows;
mod shares;
mod table;

const TABLE: &str = "ontopix-vendor-buckets-prod";
const SLOTS: &str = "elevenlabs#concurrent";
const RATE: &str = "openai#rpm";
/// Virtual time, which passes at once.
const WATCHED: Duration = Duration::from_secs(2);

/// A table for real use, with a concurrency bucket and a rate bucket.
async fn healthy() -> EmbeddedDynamo {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let client = dynamo.client(TABLE);
    let slots = Limit::concurrent(Amount::from_tokens(4), Cost::ONE).unwrap();
    client.ops().apply_limit(&Dimension::new(SLOTS).unwrap(), &slots).await.unwrap();
    let capacity = Amount::from_tokens(100);
    let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
    let rate = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
    client.ops().apply_limit(&Dimension::new(RATE).unwrap(), &rate).await.unwrap();
    dynamo
}

/// The doctor's findings about a table for real use, highest weight first.
async fn findings(dynamo: &EmbeddedDynamo) -> Vec<Finding> {
    found(dynamo, Place { is_sandbox: false }).await
}

async fn found(dynamo: &EmbeddedDynamo, place: Place) -> Vec<Finding> {
    finding::sorted(examine(&dynamo.client(TABLE), place, None, WATCHED).await)
}

/// The one finding of a check that reports more than `Fine`, or `None`.
fn finding_of(findings: &[Finding], check: Check) -> Option<(Weight, String)> {
    let mut of_check = findings.iter().filter(|one| one.check == check && one.weight > Weight::Fine);
    let first = of_check.next().map(|one| (one.weight, format!("{}: {}", one.of, one.what)));
    assert!(of_check.next().is_none(), "{findings:#?}");
    first
}

#[track_caller]
fn assert_finding(findings: &[Finding], check: Check, weight: Weight, says: &[&str]) {
    let Some((found, what)) = finding_of(findings, check) else {
        panic!("nothing of {check:?} in {findings:#?}")
    };
    assert_eq!(found, weight, "{what}");
    assert!(says.iter().all(|says| what.contains(says)), "{what}");
}

/// Sets an attribute of a row directly, without Sluice.
async fn set(dynamo: &EmbeddedDynamo, key: &str, attributes: &[(&str, AttributeValue)]) {
    for (name, value) in attributes {
        let request =
            dynamo.dynamodb().update_item().table_name(TABLE).key(KEY, AttributeValue::S(key.into()));
        let request =
            request.update_expression("SET #name = :value").expression_attribute_names("#name", *name);
        request.expression_attribute_values(":value", value.clone()).send().await.unwrap();
    }
}

fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Every row of the table, as text.
async fn everything(dynamo: &EmbeddedDynamo) -> BTreeMap<String, String> {
    let rows =
        dynamo.dynamodb().scan().table_name(TABLE).consistent_read(true).send().await.unwrap().items.unwrap();
    let sorted =
        |row: std::collections::HashMap<String, AttributeValue>| row.into_iter().collect::<BTreeMap<_, _>>();
    let rows = rows.into_iter().map(sorted);
    rows.map(|row| (row[KEY].as_s().unwrap().clone(), format!("{row:?}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_and_every_finding_says_what_to_do() {
    let dynamo = healthy().await;
    let grant = dynamo.client(TABLE).acquire(SLOTS).await.unwrap().granted().unwrap();
    let before = everything(&dynamo).await;
    let findings = findings(&dynamo).await;
    assert_eq!(everything(&dynamo).await, before);
    assert!(findings.iter().all(|one| one.todo.is_some() == (one.weight > Weight::Fine)), "{findings:#?}");
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_there_is_all_there_is_to_say() {
    let dynamo = EmbeddedDynamo::new().unwrap();
    let findings = findings(&dynamo).await;
    let [finding] = &findings[..] else { panic!("{findings:#?}") };
    assert!(finding.is_problem() && finding.what.contains("there is no table"), "{finding:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_does_not_answer_is_all_there_is_to_say() {
    let dynamo = healthy().await;
    for operation in [Operation::Scan, Operation::GetItem, Operation::DescribeTable] {
        dynamo.faults().always(operation, Fault::LoseRequest);
    }
    let findings = findings(&dynamo).await;
    let [finding] = &findings[..] else { panic!("{findings:#?}") };
    assert!(finding.is_problem() && finding.what.contains("DynamoDB is unavailable"), "{finding:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_far_away_is_told() {
    let dynamo = healthy().await;
    assert_eq!(finding_of(&findings(&dynamo).await, Check::Latency), None);
    dynamo.faults().always(Operation::GetItem, Fault::DelayReply(Duration::from_millis(80)));
    assert_finding(&findings(&dynamo).await, Check::Latency, Weight::Note, &["80.0 ms (p50)"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_is_told() {
    let dynamo = healthy().await;
    assert_eq!(finding_of(&findings(&dynamo).await, Check::Clock), None);
    // A `Date` has whole seconds, so of the three seconds that the clock is behind, two are certain.
    let client = dynamo.client_off_by(Client::builder(TABLE), -3_000_000);
    let found = examine(&client, Place { is_sandbox: false }, None, WATCHED).await;
    assert_finding(&found, Check::Clock, Weight::Problem, &["behind DynamoDB's"]);
}

/// A read applies nothing, so nothing is said of that.
#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_because_of_throttling_are_told() {
    let dynamo = healthy().await;
    let throttled =
        Fault::service("ThrottlingException", 400, serde_json::json!({ "message": "Rate exceeded" }));
    dynamo.faults().always(Operation::Scan, throttled);
    let findings = findings(&dynamo).await;
    let says = "Scan met a conflict or throttling in every try: ThrottlingException: Rate exceeded";
    assert_finding(&findings, Check::Rows, Weight::Problem, &[says]);
    let (_, what) = finding_of(&findings, Check::Rows).unwrap();
    assert!(!what.contains("applied"), "{what}");
}
