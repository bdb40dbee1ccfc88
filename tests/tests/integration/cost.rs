//! What each operation costs in requests and units.

use sluice_sdk::{Outcome, Request};
use sluice_testkit::{Operation, Usage};

use crate::kind::Kind;
use crate::world::{World, refusal, take};

fn usage(requests: u64, write_units: u64, read_units: f64) -> Usage {
    Usage { requests, write_units, read_units }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_of_one_rate_dimension_is_one_request_and_one_write_unit() {
    let world = World::embedded().await;
    world.rate("openai#rpm", 100, 60).await;
    let client = world.client();
    let meter = world.dynamo.meter();
    meter.reset();
    let first = take(&client, "openai#rpm").await;
    assert_eq!(meter.reset(), usage(2, 1, 1.0), "the first in a process reads the row once");
    let second = take(&client, "openai#rpm").await;
    assert_eq!(meter.reset(), usage(1, 1, 0.0));
    first.release().await.unwrap();
    drop(second);
    crate::world::settle().await;
    assert_eq!(meter.reset(), usage(0, 0, 0.0), "without a lease row there is nothing to release");
}

#[tokio::test(start_paused = true)]
async fn a_remembered_refusal_is_no_request() {
    let world = World::embedded().await;
    world.rate("openai#rpm", 1, 60).await;
    let client = world.client();
    let _ = take(&client, "openai#rpm").await;
    world.dynamo.meter().reset();
    for _ in 0..50 {
        let retry = refusal(&client, "openai#rpm").await;
        assert!(retry.wait().as_secs_f64() > 59.0);
    }
    assert_eq!(world.dynamo.meter().reset(), usage(0, 0, 0.0));
    world.pass(std::time::Duration::from_secs(2));
    refusal(&client, "openai#rpm").await;
    refusal(&client, "openai#rpm").await;
    assert_eq!(
        world.dynamo.meter().reset(),
        usage(1, 1, 0.0),
        "after a second the table is asked again, once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_acquire_is_one_transaction() {
    let world = World::embedded().await;
    world.slots("elevenlabs#concurrent", 5).await;
    let client = world.client();
    let _known = take(&client, "elevenlabs#concurrent").await;
    let meter = world.dynamo.meter();
    meter.reset();
    let held = take(&client, "elevenlabs#concurrent").await;
    assert_eq!(meter.of(Operation::TransactWriteItems), usage(1, 4, 0.0), "two items, two units each");
    assert_eq!(meter.reset(), usage(1, 4, 0.0));
    held.release().await.unwrap();
    assert_eq!(meter.reset(), usage(1, 4, 0.0));
}

#[tokio::test(start_paused = true)]
async fn several_rate_dimensions_are_one_parallel_round_trip() {
    let world = World::embedded().await;
    for name in ["openai#rpm", "openai#tpm", "openai#rpd"] {
        world.rate(name, 1_000, 60).await;
    }
    let client = world.client();
    let request = || Request::from(["openai#rpm", "openai#tpm", "openai#rpd"]);
    assert!(client.acquire(request()).await.unwrap().granted().is_some());
    world.dynamo.meter().reset();
    // Each waits at a gate: that all arrive before any is answered shows that none waits for another.
    let gates = [0, 1, 2].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let acquiring = tokio::spawn(async move { client.acquire(request()).await.unwrap() });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(sluice_testkit::Gate::open);
    assert!(matches!(acquiring.await.unwrap(), Outcome::Granted(_)));
    assert_eq!(world.dynamo.meter().reset(), usage(3, 3, 0.0));
}

#[tokio::test(start_paused = true)]
async fn many_callers_that_meet_a_bucket_first_read_it_once() {
    let world = World::embedded().await;
    world.rate("openai#rpm", 1_000, 60).await;
    let client = world.client();
    world.dynamo.meter().reset();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire("openai#rpm").await.unwrap().granted().is_some() })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    assert_eq!(world.dynamo.meter().of(Operation::GetItem).requests, 1);
}

#[tokio::test(start_paused = true)]
async fn the_engine_agrees_with_the_meter_on_a_plain_update() {
    use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
    let world = World::embedded().await;
    world.rate("openai#rpm", 100, 60).await;
    world.dynamo.meter().reset();
    let request = world.dynamodb().update_item().table_name(world.table());
    let request = request
        .key(sluice_core::schema::KEY, crate::world::text("openai#rpm"))
        .update_expression("SET version = version + :1");
    let request = request.expression_attribute_values(":1", crate::world::number("1"));
    let reply = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
    let engine = reply.consumed_capacity.unwrap().capacity_units.unwrap();
    assert_eq!(engine, world.dynamo.meter().total().write_units as f64);
}

#[tokio::test(start_paused = true)]
async fn an_inline_lease_of_ten_slots_is_one_write_unit_to_take_and_one_to_give_back() {
    let world = World::embedded().await.with(Kind::Inline);
    world.slots("elevenlabs#concurrent", 10).await;
    let client = world.client();
    let mut held = Vec::new();
    for _ in 0..9 {
        held.push(take(&client, "elevenlabs#concurrent").await);
    }
    let meter = world.dynamo.meter();
    meter.reset();
    let last = take(&client, "elevenlabs#concurrent").await;
    assert_eq!(meter.reset(), usage(1, 1, 0.0));
    last.release().await.unwrap();
    assert_eq!(meter.reset(), usage(1, 1, 0.0));
}
