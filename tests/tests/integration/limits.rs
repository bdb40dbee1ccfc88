//! Limits are declared, and change while callers go on.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit};
use sluice_ops::{Applied, LimitsError};
use sluice_testkit::Operation;

use crate::world::{World, dimension, refusal, requests, take};

const RPM: &str = "openai#rpm";

#[tokio::test(start_paused = true)]
async fn applying_a_limit_twice_changes_nothing() {
    let world = World::with_rate(RPM, 10, 60).await;
    let version = world.bucket(RPM).await.version();
    assert_eq!(
        world.client().ops().apply_limit(&dimension(RPM), &requests(10, 60)).await.unwrap(),
        Applied::Unchanged
    );
    assert_eq!(world.bucket(RPM).await.version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_limits_keeps_the_level_that_was_reached() {
    let world = World::with_rate(RPM, 60, 60).await;
    let client = world.client();
    for _ in 0..40 {
        let _ = take(&client, RPM).await;
    }
    world.pass(Duration::from_secs(10));
    assert_eq!(world.level(RPM).await, "30");
    let applied = client.ops().apply_limit(&dimension(RPM), &requests(600, 60)).await.unwrap();
    assert_eq!(applied, Applied::Changed { from: requests(60, 60).into() });
    assert_eq!(world.level(RPM).await, "30");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.level(RPM).await, "40", "from now on at the new rate");
    client.ops().apply_limit(&dimension(RPM), &requests(20, 60)).await.unwrap();
    assert_eq!(world.level(RPM).await, "20", "never above the new capacity");
}

/// Condition: the limit type. What is known of a bucket may be a minute old; taken as slots, its tokens would
/// be there a second time, as the line has risen meanwhile.
#[tokio::test(start_paused = true)]
async fn slots_are_not_taken_of_a_bucket_that_was_made_anew_as_a_rate() {
    let world = World::with_slots(RPM, 5).await;
    let client = world.client();
    take(&client, RPM).await.release().await.unwrap();
    let operator = world.client();
    operator.ops().remove_bucket(&dimension(RPM)).await.unwrap();
    operator.ops().apply_limit(&dimension(RPM), &requests(5, 60)).await.unwrap();
    world.pass(Duration::from_secs(30));
    let _granted = take(&client, RPM).await;
    assert_eq!(world.leases().await, 0, "a grant of tokens holds no slot");
    assert_eq!((world.level(RPM).await.as_str(), world.bucket(RPM).await.admitted()), ("4", None));
}

/// Condition: the anchor, which is 0 in a bucket of slots. The rate bucket is full again by what the process
/// knows, so its write would set the level, also where both buckets were made in one microsecond.
#[tokio::test(start_paused = true)]
async fn tokens_are_not_taken_of_a_bucket_that_was_made_anew_for_slots_in_the_same_microsecond() {
    let world = World::with_rate(RPM, 50, 1).await;
    let client = world.client();
    let _known = take(&client, RPM).await;
    let operator = world.client();
    operator.ops().remove_bucket(&dimension(RPM)).await.unwrap();
    world.slots(RPM, 10).await;
    world.pass(Duration::from_millis(900));
    let _learns = refusal(&client, RPM).await;
    let _granted = take(&client, RPM).await;
    assert_eq!((world.free(RPM).await.as_str(), world.leases().await), ("9", 1));
}

/// Condition: the limit type, and the capacity alone would not say it.
#[tokio::test(start_paused = true)]
async fn a_resize_that_is_on_its_way_changes_no_bucket_that_was_made_anew_as_a_rate() {
    let world = World::with_slots(RPM, 5).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let resizing = {
        let client = world.client();
        let limit = Limit::concurrent(Amount::from_tokens(9), Cost::ONE).unwrap();
        tokio::spawn(async move { client.ops().apply_limit(&dimension(RPM), &limit).await })
    };
    gate.reached().await;
    world.client().ops().remove_bucket(&dimension(RPM)).await.unwrap();
    world.rate(RPM, 5, 60).await;
    gate.open();
    assert!(
        matches!(resizing.await.unwrap(), Err(LimitsError::Limit { .. })),
        "it is of another kind by now"
    );
    assert_eq!(world.level(RPM).await, "5");
}

#[tokio::test(start_paused = true)]
async fn a_long_idle_bucket_keeps_its_capacity_and_not_more() {
    let world = World::with_rate(RPM, 10, 60).await;
    world.pass(Duration::from_secs(100_000));
    world.client().ops().apply_limit(&dimension(RPM), &requests(1_000, 60)).await.unwrap();
    assert_eq!(world.level(RPM).await, "10");
}

/// Condition: the anchor. A caller that planned with the old limits must not pass with the new ones, even in
/// one microsecond.
#[tokio::test(start_paused = true)]
async fn a_spend_planned_before_a_change_is_planned_again() {
    let world = World::with_rate(RPM, 100, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let planned = {
        let client = client.clone();
        tokio::spawn(async move { client.acquire(RPM).await.unwrap().granted().is_some() })
    };
    gate.reached().await;
    world.client().ops().apply_limit(&dimension(RPM), &requests(2, 60)).await.unwrap();
    world.pass(Duration::from_millis(1));
    gate.open();
    assert!(planned.await.unwrap());
    let _ = take(&client, RPM).await;
    refusal(&client, RPM).await;
}

/// Condition: the anchor. What flowed in until a caller's re-anchor would be counted twice.
#[tokio::test(start_paused = true)]
async fn a_change_planned_before_a_re_anchor_is_planned_again() {
    let world = World::with_rate(RPM, 100, 1_000).await;
    let client = world.client();
    assert!(client.acquire(sluice_sdk::Request::from(RPM).cost(RPM, 100)).await.unwrap().granted().is_some());
    world.pass(Duration::from_secs(100));
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let operator = world.client();
    let change = tokio::spawn(async move {
        operator.ops().apply_limit(&dimension(RPM), &requests(200, 1_000)).await.unwrap()
    });
    gate.reached().await;
    let _ = take(&client, RPM).await;
    gate.open();
    change.await.unwrap();
    let level = world.level(RPM).await;
    assert!((8.99..9.1).contains(&level.parse::<f64>().unwrap()), "{level}");
}

/// Condition: `attribute_not_exists` on the new row.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_two_create_keeps_what_was_taken_from_the_first() {
    let world = World::new().await;
    let gate = world.dynamo.faults().hold_next(Operation::PutItem);
    let late = world.client();
    let creating = tokio::spawn(async move {
        late.ops().apply_limit(&dimension(RPM), &requests(10, 100_000)).await.unwrap()
    });
    gate.reached().await;
    world.rate(RPM, 10, 100_000).await;
    let _ = take(&world.client(), RPM).await;
    gate.open();
    assert_eq!(creating.await.unwrap(), Applied::Unchanged);
    assert_eq!(world.level(RPM).await, "9");
}

/// Condition: not the version, or a busy bucket would starve the change.
#[tokio::test(start_paused = true)]
async fn callers_that_spend_do_not_starve_a_change() {
    let world = World::with_rate(RPM, 100, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let operator = world.client();
    let change =
        tokio::spawn(
            async move { operator.ops().apply_limit(&dimension(RPM), &requests(50, 60)).await.unwrap() },
        );
    gate.reached().await;
    let _ = take(&client, RPM).await;
    world.dynamo.meter().reset();
    gate.open();
    change.await.unwrap();
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 1, "the first try passed");
}

#[tokio::test(start_paused = true)]
async fn a_rate_bucket_never_turns_into_a_concurrency_bucket() {
    let world = World::with_rate(RPM, 10, 60).await;
    let slots = Limit::concurrent(Amount::from_tokens(5), Cost::ONE).unwrap();
    let error = world.client().ops().apply_limit(&dimension(RPM), &slots).await.unwrap_err();
    assert!(matches!(error, LimitsError::Limit { .. }) && error.to_string().contains("remove it"), "{error}");
}
