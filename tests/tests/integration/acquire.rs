//! What an acquire answers, and what it says of bad input.

use std::time::Duration;

use sluice_core::schema;
use sluice_sdk::reactions::{PenalizeError, Penalty};
use sluice_sdk::{AcquireError, Client, Request, RequestError, RetryReason, StoreError};
use sluice_testkit::EmbeddedDynamo;

use crate::world::{TABLE, World, refusal, take, text};

const RPM: &str = "openai#rpm";

async fn error<'a>(client: &Client, request: impl Into<Request<'a>>) -> AcquireError {
    client.acquire(request).await.expect_err("an error")
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_the_exact_wait_and_a_caller_that_keeps_it_is_granted() {
    let world = World::with_rate(RPM, 3, 60).await;
    let client = world.client();
    for _ in 0..3 {
        let _ = take(&client, RPM).await;
    }
    let retry = refusal(&client, RPM).await;
    assert_eq!((retry.dimension().as_str(), retry.reason()), (RPM, RetryReason::Exhausted));
    assert_eq!(retry.wait(), Duration::from_secs(20));
    world.pass(retry.wait() - Duration::from_micros(1));
    assert_eq!(refusal(&client, RPM).await.wait(), Duration::from_micros(1));
    world.pass(Duration::from_micros(1));
    let _ = take(&client, RPM).await;
}

#[tokio::test(start_paused = true)]
async fn another_process_hears_of_tokens_at_once() {
    let world = World::with_rate(RPM, 1, 60).await;
    let (first, second) = (world.client(), world.client());
    let _ = take(&first, RPM).await;
    assert_eq!(refusal(&second, RPM).await.reason(), RetryReason::Exhausted);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_add_up_once_and_not_per_call() {
    let world = World::with_rate(RPM, 10, 10).await;
    let off = |micros| world.client_off_by(micros);
    let (slow, fast) = (off(-2_000_000), off(2_000_000));
    let mut granted = 0;
    for _ in 0..200 {
        for client in [&slow, &fast] {
            granted += usize::from(client.acquire(RPM).await.unwrap().granted().is_some());
        }
        world.pass(Duration::from_millis(50));
    }
    // 10 s at 1 a second, the capacity of 10, and twice the error of 2 s.
    assert!((20..=24).contains(&granted), "{granted}");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_or_senseless_request_never_reaches_the_table() {
    let world = World::with_rate(RPM, 10, 60).await;
    let client = world.client();
    world.dynamo.meter().reset();
    for name in ["lease#x", "load#x", "ticket#x", "openai#", "#rpm", "openai", "", "a#b#c#d", "a #b"] {
        assert!(
            matches!(error(&client, name).await, AcquireError::Request(RequestError::Dimension(_))),
            "{name}"
        );
    }
    for cost in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let request = Request::from(RPM).cost(RPM, cost);
        assert!(
            matches!(error(&client, request).await, AcquireError::Request(RequestError::Cost { .. })),
            "{cost}"
        );
    }
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_dimension_names_the_table() {
    let world = World::new().await;
    let message = error(&world.client(), RPM).await.to_string();
    assert!(
        message.contains(RPM) && message.contains(world.table()) && message.contains("buckets apply"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_removed_under_a_caller_is_unknown_from_then_on() {
    let world = World::with_rate(RPM, 10, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    assert!(world.client().ops().remove_bucket(&crate::world::dimension(RPM)).await.unwrap());
    assert!(matches!(error(&client, RPM).await, AcquireError::UnknownDimension { .. }));
    world.rate(RPM, 10, 60).await;
    // Another process made it: for a second it is unknown here from memory.
    world.pass(Duration::from_millis(1_001));
    let _ = take(&client, RPM).await;
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_row_names_the_dimension_and_the_attribute() {
    let world = World::with_rate(RPM, 10, 60).await;
    let row = world.row(RPM).await.unwrap();
    for attribute in [
        schema::CAPACITY,
        schema::TOKENS,
        schema::REFILL_RATE,
        schema::LAST_REFILL_AT,
        schema::COST_PER_CALL,
        schema::LIMIT_TYPE,
        schema::VERSION,
    ] {
        let mut missing = row.clone();
        missing.remove(attribute);
        let mut mistyped = row.clone();
        mistyped.insert(attribute.into(), aws_sdk_dynamodb::types::AttributeValue::Bool(true));
        for row in [missing, mistyped] {
            world.put(row).await;
            let message = error(&world.client(), RPM).await.to_string();
            assert!(message.contains(RPM) && message.contains(attribute), "{message}");
        }
    }
    let mut blocked = row.clone();
    blocked.insert(schema::BLOCKED_UNTIL.into(), text("tomorrow"));
    world.put(blocked).await;
    assert!(error(&world.client(), RPM).await.to_string().contains(schema::BLOCKED_UNTIL));
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_is_named() {
    let dynamo = EmbeddedDynamo::new().unwrap();
    let AcquireError::Store(StoreError::NoTable { table, .. }) = error(&dynamo.client(TABLE), RPM).await
    else {
        panic!()
    };
    assert_eq!(table, TABLE);
}

#[tokio::test(start_paused = true)]
async fn a_penalty_takes_its_share_of_the_present_level() {
    let world = World::with_rate(RPM, 100, 100_000_000).await;
    let client = world.client();
    let _ = client.acquire(Request::from(RPM).cost(RPM, 50)).await.unwrap();
    assert_eq!(client.penalize(RPM, 0.8).await.unwrap(), Penalty::Applied("40".parse().unwrap()));
    let version = world.bucket(RPM).await.version();
    assert_eq!(version, 2, "it counts as a write for clients that lock optimistically");
    assert_eq!(client.penalize(RPM, 0.0).await.unwrap(), Penalty::Applied("0".parse().unwrap()));
    assert!(matches!(client.penalize(RPM, 0.5).await.unwrap(), Penalty::NothingToTake(_)));
}

#[tokio::test(start_paused = true)]
async fn a_full_bucket_does_not_swallow_its_penalty() {
    let world = World::with_rate(RPM, 100, 60).await;
    world.pass(Duration::from_secs(3_600));
    assert_eq!(world.client().penalize(RPM, 0.3).await.unwrap(), Penalty::Applied("30".parse().unwrap()));
    assert_eq!(world.level(RPM).await, "30");
}

/// Condition: `T <= C - x` on the penalty. The bucket filled up between the reading and the write.
#[tokio::test(start_paused = true)]
async fn a_penalty_that_meets_a_bucket_just_filled_is_planned_again() {
    let world = World::with_rate(RPM, 100, 100_000_000).await;
    let client = world.client();
    let _ = client.acquire(Request::from(RPM).cost(RPM, 50)).await.unwrap();
    let gate = world.dynamo.faults().hold_next(sluice_testkit::Operation::UpdateItem);
    let penalizing = tokio::spawn(async move { client.penalize(RPM, 0.8).await.unwrap() });
    gate.reached().await;
    world.add_tokens(RPM, "80").await;
    gate.open();
    assert!(matches!(penalizing.await.unwrap(), Penalty::Applied(_)));
    assert!(world.level(RPM).await.starts_with("80"));
}

#[tokio::test(start_paused = true)]
async fn a_penalty_says_what_it_does_not_take() {
    let world = World::with_slots("elevenlabs#concurrent", 2).await;
    let client = world.client();
    let error = client.penalize("elevenlabs#concurrent", 0.8).await.unwrap_err();
    assert!(
        matches!(error, PenalizeError::Concurrency(_)) && error.to_string().contains("lower its capacity"),
        "{error}"
    );
    for factor in [1.5, -0.1, f64::NAN] {
        assert!(matches!(
            client.penalize("elevenlabs#concurrent", factor).await,
            Err(PenalizeError::Factor { .. })
        ));
    }
    assert_eq!(world.free("elevenlabs#concurrent").await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_dimension_named_twice_is_a_mistake() {
    let world = World::with_rate(RPM, 3, 60).await;
    let error = error(&world.client(), [RPM, RPM]).await;
    assert!(
        matches!(&error, AcquireError::Request(RequestError::Duplicate(twice)) if twice.as_str() == RPM),
        "{error}"
    );
    assert_eq!(world.level(RPM).await, "3", "nothing is taken");
}
