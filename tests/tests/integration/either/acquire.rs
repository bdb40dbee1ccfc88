//! What an acquire of slots answers.

use std::time::Duration;

use sluice_core::schema;
use sluice_sdk::{AcquireError, Basis, Client, OnUnavailable, Request, RetryReason, StoreError};
use sluice_testkit::{Fault, Operation};

use super::KIND;
use crate::world::{World, number, refusal, take};

const RPM: &str = "openai#rpm";

async fn error<'a>(client: &Client, request: impl Into<Request<'a>>) -> AcquireError {
    client.acquire(request).await.expect_err("an error")
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_leaves_nothing_taken() {
    let world = KIND.world().await;
    world.slots("elevenlabs#concurrent", 2).await;
    world.rate(RPM, 10, 1_000_000).await;
    let client = world.client();
    for name in ["elevenlabs#concurrent", RPM] {
        let _ = take(&client, name).await.release().await.unwrap();
        let before = world.level(name).await;
        let operation = if name == RPM { Operation::UpdateItem } else { KIND.write() };
        let gate = world.dynamo.faults().hold_next(operation);
        let caller = {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(name).await.map(|_| ()) })
        };
        gate.reached().await;
        caller.abort();
        let _ = caller.await;
        gate.open();
        crate::world::settle().await;
        assert_eq!(world.level(name).await, before, "{name}");
    }
    assert_eq!(world.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_capacity_is_told_at_once_and_follows_a_raise() {
    let world = KIND.world().await;
    world.rate(RPM, 10, 60).await;
    world.slots("elevenlabs#concurrent", 2).await;
    let client = world.client();
    for (name, cost, capacity) in [(RPM, 11, "10"), ("elevenlabs#concurrent", 3, "2")] {
        let message = error(&client, Request::from(name).cost(name, cost)).await.to_string();
        assert!(
            message.contains(name) && message.contains(&cost.to_string()) && message.contains(capacity),
            "{message}"
        );
    }
    world.rate(RPM, 20, 60).await;
    world.pass(Duration::from_secs(30));
    let granted = client.acquire(Request::from(RPM).cost(RPM, 11)).await.unwrap();
    assert!(granted.granted().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_holds_for_every_type_and_ends() {
    let world = KIND.world().await;
    world.rate(RPM, 10, 60).await;
    world.slots("elevenlabs#concurrent", 2).await;
    for name in [RPM, "elevenlabs#concurrent"] {
        let client = world.client();
        let _ = take(&client, name).await.release().await.unwrap();
        let mut row = world.row(name).await.unwrap();
        let until = world.dynamo.clock().now().after(Duration::from_secs(30));
        row.insert(schema::BLOCKED_UNTIL.into(), number(&until.to_string()));
        world.put(row).await;
        // The client read the row before the cool-down: the condition in the write holds it all the same.
        let retry = refusal(&client, name).await;
        assert_eq!((retry.reason(), retry.wait()), (RetryReason::CoolingDown, Duration::from_secs(30)));
        world.pass(Duration::from_secs(30));
        let _ = take(&client, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_dynamodb_is_out_the_setting_answers() {
    let world = KIND.with_rate(RPM, 10, 60).await;
    world.slots("elevenlabs#concurrent", 10).await;
    let out = |world: &World| {
        for operation in [Operation::GetItem, Operation::UpdateItem, Operation::TransactWriteItems] {
            world.dynamo.faults().always(operation, Fault::LoseRequest);
        }
    };
    let strict = world.client();
    let _ = take(&strict, RPM).await;
    let lenient = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    let share = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Share("0.2".parse().unwrap())));
    let _ = (take(&share, RPM).await, take(&share, "elevenlabs#concurrent").await.release().await.unwrap());
    world.pass(Duration::from_secs(60));
    out(&world);
    assert!(matches!(error(&strict, RPM).await, AcquireError::Store(StoreError::Unavailable { .. })));
    assert_eq!(take(&lenient, RPM).await.basis(), Basis::Unchecked);
    let local = [take(&share, RPM).await, take(&share, RPM).await];
    assert!(local.iter().all(|grant| grant.basis() == Basis::LocalShare));
    let wait = refusal(&share, RPM).await.wait().as_secs_f64();
    assert!((29.0..=30.0).contains(&wait), "a fifth of 10 a minute is 2: {wait}");
    let held = [take(&share, "elevenlabs#concurrent").await, take(&share, "elevenlabs#concurrent").await];
    assert_eq!(refusal(&share, "elevenlabs#concurrent").await.reason(), RetryReason::NoFreeSlot);
    for held in held {
        held.release().await.unwrap();
    }
    let _ = take(&share, "elevenlabs#concurrent").await;
    world.dynamo.faults().clear();
    assert_eq!(take(&share, RPM).await.basis(), Basis::Table);
}

/// Without a lease, its slot would be lost with its holder.
#[tokio::test(start_paused = true)]
async fn a_slot_has_a_lease_whatever_ids_are_drawn() {
    for id in ["", "a#b"] {
        let world = KIND.with_slots("elevenlabs#concurrent", 1).await;
        let client = world.client_with(|settings| settings.lease_ids(move || id.to_owned()));
        let held = take(&client, "elevenlabs#concurrent").await;
        assert_eq!(world.leases().await, 1, "{id:?}");
        held.release().await.unwrap();
        assert_eq!((world.free("elevenlabs#concurrent").await.as_str(), world.leases().await), ("1", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_dynamodb_rejects_comes_with_its_message() {
    let world = KIND.with_slots("a#concurrent", 2).await;
    let fault = Fault::service("ValidationException", 400, serde_json::json!({"message": "the expression is wrong"}));
    world.dynamo.faults().always(KIND.write(), fault);
    let error = world.client().acquire("a#concurrent").await.unwrap_err().to_string();
    assert!(error.contains("the expression is wrong"), "{error}");
    world.dynamo.faults().always(KIND.write(), KIND.never("ValidationError"));
    let error = world.client().acquire("a#concurrent").await.unwrap_err().to_string();
    assert!(error.contains("ValidationError"), "{error}");
}
