//! Findings about the table itself.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, ProvisionedThroughput, ScalarAttributeType,
    TimeToLiveSpecification,
};
use serde_json::{Value, json};
use sluice_sdk::core::schema::{PURGE_AT, TTL};

use super::*;

/// Makes DynamoDB answer a request that the engine does not support, or answers differently.
fn answers(dynamo: &EmbeddedDynamo, operation: Operation, body: &Value) {
    dynamo.faults().always(operation, Fault::Answer { status: 200, body: body.to_string() });
}

fn backups(status: &str) -> Value {
    let recovery = json!({ "PointInTimeRecoveryStatus": status });
    json!({ "ContinuousBackupsDescription": {
        "ContinuousBackupsStatus": "ENABLED",
        "PointInTimeRecoveryDescription": recovery,
    } })
}

async fn set_ttl(dynamo: &EmbeddedDynamo, attribute: &str, enabled: bool) {
    let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(enabled).build().unwrap();
    let request = dynamo.dynamodb().update_time_to_live().table_name(TABLE).time_to_live_specification(ttl);
    request.send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_table_as_terraform_makes_it_is_well() {
    let dynamo = healthy().await;
    answers(&dynamo, Operation::DescribeContinuousBackups, &backups("ENABLED"));
    dynamo
        .dynamodb()
        .update_table()
        .table_name(TABLE)
        .deletion_protection_enabled(true)
        .send()
        .await
        .unwrap();
    let findings = findings(&dynamo).await;
    for check in [Check::Table, Check::Key, Check::Ttl, Check::Backups, Check::Protection] {
        assert_eq!(finding_of(&findings, check), None);
        assert!(
            findings.iter().any(|finding| finding.check == check),
            "{check:?} is missing in {findings:#?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_on_the_end_of_leases_is_the_first_thing_that_is_said() {
    let dynamo = healthy().await;
    set_ttl(&dynamo, PURGE_AT, false).await;
    assert_finding(&findings(&dynamo).await, Check::Ttl, Weight::Problem, &["TTL is off"]);
    set_ttl(&dynamo, TTL, true).await;
    // Something else is wrong too; its finding comes later.
    set(&dynamo, RATE, &[("tokens", AttributeValue::S("many".into()))]).await;
    let found = findings(&dynamo).await;
    assert_finding(&found, Check::Ttl, Weight::Danger, &["TTL IS ON THE ATTRIBUTE ttl", "only trace"]);
    assert_eq!(found[0].check, Check::Ttl);
    assert!(found[0].is_problem() && found[0].todo.as_ref().unwrap().contains(PURGE_AT));
    set_ttl(&dynamo, TTL, false).await;
    set_ttl(&dynamo, "expires", true).await;
    assert_finding(&findings(&dynamo).await, Check::Ttl, Weight::Problem, &["expires"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_in_earnest_is_a_note_in_a_sandbox() {
    let dynamo = healthy().await;
    answers(&dynamo, Operation::DescribeContinuousBackups, &backups("DISABLED"));
    let in_earnest = findings(&dynamo).await;
    assert_finding(&in_earnest, Check::Backups, Weight::Problem, &["no continuous backups"]);
    assert_finding(&in_earnest, Check::Protection, Weight::Problem, &["not protected"]);
    let in_a_sandbox = found(&dynamo, Place { is_sandbox: true }).await;
    assert_finding(&in_a_sandbox, Check::Backups, Weight::Note, &["no continuous backups"]);
    assert_finding(&in_a_sandbox, Check::Protection, Weight::Note, &["not protected"]);
    assert!(Place::of("ontopix-vendor-buckets-sandbox", None).is_sandbox);
    assert!(Place::of(TABLE, Some("http://127.0.0.1:4566")).is_sandbox);
    assert!(!Place::of(TABLE, None).is_sandbox);
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_cannot_tell_is_a_note() {
    let dynamo = healthy().await;
    let found = findings(&dynamo).await;
    assert_finding(&found, Check::Backups, Weight::Note, &["this endpoint has no DescribeContinuousBackups"]);
    dynamo.faults().always(Operation::DescribeTimeToLive, Fault::throttled());
    assert_finding(
        &findings(&dynamo).await,
        Check::Ttl,
        Weight::Note,
        &["DescribeTimeToLive failed", "throughput"],
    );
}

#[tokio::test(start_paused = true)]
async fn another_key_and_too_little_throughput_are_told() {
    let dynamo = EmbeddedDynamo::new().unwrap();
    let client = dynamo.dynamodb();
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    let key =
        |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    let throughput =
        ProvisionedThroughput::builder().write_capacity_units(5).read_capacity_units(7).build().unwrap();
    let request = client.create_table().table_name(TABLE).provisioned_throughput(throughput);
    let request = request.attribute_definitions(attribute(KEY, ScalarAttributeType::S));
    let request = request.attribute_definitions(attribute("at", ScalarAttributeType::N));
    let request = request.key_schema(key(KEY, KeyType::Hash)).key_schema(key("at", KeyType::Range));
    request.send().await.unwrap();
    let found = crate::doctor::table::examine(Probe::new(&client, TABLE), Place { is_sandbox: false }).await;
    let says = |check: Check, weight: Weight, what: &str| {
        let is_it = |one: &Finding| one.check == check && one.weight == weight && one.what.contains(what);
        assert!(found.iter().any(is_it), "{what} is missing in {found:#?}");
    };
    says(Check::Key, Weight::Problem, "vendor_dimension (S), sort key at");
    says(Check::Table, Weight::Problem, "5 write and 7 read units");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_not_active_is_told() {
    let dynamo = healthy().await;
    for (status, weight) in
        [("UPDATING", Weight::Note), ("INACCESSIBLE_ENCRYPTION_CREDENTIALS", Weight::Problem)]
    {
        let key = json!([{ "AttributeName": KEY, "KeyType": "HASH" }]);
        let attributes = json!([{ "AttributeName": KEY, "AttributeType": "S" }]);
        let described = json!({ "Table": {
            "TableName": TABLE, "TableStatus": status, "KeySchema": key, "AttributeDefinitions": attributes,
            "BillingModeSummary": { "BillingMode": "PAY_PER_REQUEST" }, "DeletionProtectionEnabled": true,
        } });
        answers(&dynamo, Operation::DescribeTable, &described);
        let found = findings(&dynamo).await;
        assert_finding(&found, Check::Table, weight, &[status]);
        assert_eq!((finding_of(&found, Check::Key), finding_of(&found, Check::Protection)), (None, None));
    }
}

/// A condition sees the rows of its own Region alone.
#[tokio::test(start_paused = true)]
async fn replicas_in_other_regions_are_a_problem() {
    let dynamo = healthy().await;
    let described = json!({ "Table": {
        "TableName": TABLE, "TableStatus": "ACTIVE",
        "KeySchema": [{ "AttributeName": KEY, "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": KEY, "AttributeType": "S" }],
        "BillingModeSummary": { "BillingMode": "PAY_PER_REQUEST" }, "DeletionProtectionEnabled": true,
        "Replicas": [{ "RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE" }, { "RegionName": "us-east-1" }],
    } });
    answers(&dynamo, Operation::DescribeTable, &described);
    let found = findings(&dynamo).await;
    assert_finding(&found, Check::Table, Weight::Problem, &["a global table", "eu-west-1, us-east-1"]);
}
