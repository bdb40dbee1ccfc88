//! Operations by name, as a border calls them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use serde_json::{Value, json};
use sluice_bindings::{Answer, Failure, Target};
use sluice_sdk::Client;
use sluice_testkit::EmbeddedDynamo;

const SLOTS: &str = "acme#concurrent";

async fn client() -> Target {
    let dynamo = EmbeddedDynamo::with_table("operations").await.unwrap();
    let client = Target::of(dynamo.client_with(Client::builder("operations")));
    let limit = json!({ "dimension": SLOTS, "limit": { "type": "concurrent", "capacity": 1 } });
    assert_eq!(told(&client, "ops.applyLimit", limit).await.unwrap(), json!("created"));
    client
}

async fn called(target: &Target, name: &str, arguments: Value) -> Result<Answer, Failure> {
    target.call(name, arguments, None).await
}

async fn told(target: &Target, name: &str, arguments: Value) -> Result<Value, Failure> {
    called(target, name, arguments).await.map(|answer| answer.value)
}

async fn free(client: &Target) -> f64 {
    told(client, "ops.bucket", json!({ "dimension": SLOTS })).await.unwrap()["level"].as_f64().unwrap()
}

async fn becomes_free(client: &Target) {
    for _ in 0..500 {
        if free(client).await > 0.0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the slot is not back");
}

#[tokio::test]
async fn a_grant_is_made_held_and_released_once() {
    let client = client().await;
    let grant = called(&client, "acquire", json!({ "dimensions": [SLOTS] })).await.unwrap();
    assert_eq!((&grant.value["costs"][SLOTS], &grant.value["basis"]), (&json!(1.0), &json!("table")));
    let refused = told(&client, "acquire", json!({ "dimensions": [SLOTS] })).await.unwrap();
    assert_eq!((&refused["reason"], &refused["dimension"]), (&json!("no_free_slot"), &json!(SLOTS)));
    let grant = grant.made.unwrap();
    assert_eq!(grant.look("state", Value::Null).unwrap().value["hasEnded"], json!(false));
    assert_eq!(told(&grant, "release", Value::Null).await.unwrap(), json!("given_back"));
    assert_eq!(told(&grant, "release", Value::Null).await.unwrap_err().class, "EndedError");
    assert_eq!(free(&client).await, 1.0);
}

#[tokio::test]
async fn what_is_dropped_gives_back_what_it_has() {
    let client = client().await;
    drop(called(&client, "acquire", json!({ "dimensions": [SLOTS] })).await.unwrap());
    becomes_free(&client).await;
    drop(called(&client, "slot", json!({ "dimensions": [SLOTS] })).await.unwrap());
    becomes_free(&client).await;
    let held = called(&client, "acquire", json!({ "dimensions": [SLOTS] })).await.unwrap();
    let waiting = client.call("slot", json!({ "dimensions": [SLOTS] }), None);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err(),
        "it waits, and is dropped"
    );
    drop(held);
    becomes_free(&client).await;
}

#[tokio::test]
async fn a_slot_that_failed_gives_back_and_the_second_end_does_nothing() {
    let client = client().await;
    let slot = called(&client, "slot", json!({ "dimensions": [SLOTS] })).await.unwrap().made.unwrap();
    assert_eq!(free(&client).await, 0.0);
    assert_eq!(slot.look("isLeaseLost", Value::Null).unwrap().value, json!(false));
    for has_failed in [true, false] {
        assert_eq!(told(&slot, "end", json!({ "hasFailed": has_failed })).await.unwrap(), Value::Null);
    }
    assert_eq!(free(&client).await, 1.0);
}

#[tokio::test]
async fn what_cannot_be_used_is_told_with_its_name() {
    let client = client().await;
    for (name, arguments, text) in [
        ("acquire", json!({}), "missing field `dimensions`"),
        ("acquire", json!({ "dimensions": [SLOTS], "ticketWithinMs": -1 }), "a time must be zero or more"),
        (
            "acquire",
            json!({ "dimensions": [SLOTS], "share": 5 }),
            "invalid type: integer `5`, expected a string",
        ),
        ("acquire", json!({ "dimensions": [SLOTS], "maxWait": 5 }), "unknown option `maxWait`"),
        ("slot", json!({ "dimensions": [SLOTS], "maxWait": 5 }), "unknown option `maxWait`"),
        ("slotGrant", json!({ "dimensions": [SLOTS], "cost": 5 }), "unknown option `cost`"),
        ("admit", json!({ "dimension": SLOTS, "slo": 5 }), "unknown field `slo`"),
        ("juggle", json!({}), "a client has no operation \"juggle\""),
        (
            "ops.applyLimit",
            json!({ "dimension": SLOTS, "limit": { "type": "concurrent", "capacity": 1 }, "shares": { "search": 0.5 } }),
            "the share search holds 0",
        ),
        (
            "ops.applyLimit",
            json!({ "dimension": "no name", "limit": { "type": "tokens", "capacity": 1 } }),
            "no name",
        ),
    ] {
        let failure = told(&client, name, arguments).await.unwrap_err();
        assert_eq!(failure.class, "ArgumentError", "{name}: {failure:?}");
        assert!(failure.message.contains(text), "{name}: {failure:?}");
    }
    let failure =
        told(&client, "acquire", json!({ "dimensions": [SLOTS], "share": "two words" })).await.unwrap_err();
    assert_eq!(failure.class, "RequestError", "{failure:?}");
    let failure =
        told(&client, "slot", json!({ "dimensions": [SLOTS], "costs": { SLOTS: 5 } })).await.unwrap_err();
    assert_eq!(failure.class, "NeverSatisfiableError");
}

#[tokio::test]
async fn a_slot_inside_of_a_slot_of_the_same_bucket_is_an_error_if_the_caller_says_where_it_is() {
    let client = client().await;
    let outer = called(&client, "slot", json!({ "dimensions": [SLOTS] })).await.unwrap();
    assert_eq!(outer.value["concurrencyLimits"], json!([SLOTS]));
    let inside =
        json!({ "dimensions": [SLOTS], "maxWaitMs": 5_000, "inside": outer.value["concurrencyLimits"] });
    for name in ["slot", "slotGrant"] {
        let failure = called(&client, name, inside.clone()).await.unwrap_err();
        assert_eq!(failure.class, "RequestError");
        assert!(failure.message.contains("inside of another slot"), "{}", failure.message);
    }
    // Elsewhere it waits, and the limit of another bucket does not matter.
    let elsewhere = json!({ "dimensions": [SLOTS], "maxWaitMs": 0, "inside": ["other#concurrent"] });
    assert_eq!(called(&client, "slot", elsewhere).await.unwrap_err().class, "RefusedError");
    told(&outer.made.unwrap(), "end", json!({ "hasFailed": false })).await.unwrap();
    assert_eq!(free(&client).await, 1.0);
}
