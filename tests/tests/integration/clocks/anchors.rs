//! Anchors that a wrong clock left in the future: whoever has DynamoDB's time moves them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_core::schema::KEY;
use sluice_ops::Applied;
use sluice_sdk::{Outcome, Request, RetryReason};
use sluice_testkit::Fault;

use super::{HOUR, Machine, rate};
use crate::world::{TABLE, World, dimension, number, refusal, requests, take, text};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "openai#concurrent";

/// A client in another language, an hour ahead, leaves so many tokens.
pub(crate) async fn left_ahead(world: &World, tokens: &str) -> Timestamp {
    let now = world.dynamo.clock().now();
    let ahead = now.after(Duration::from_secs(3_600));
    let update = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(RPM));
    let update = update.update_expression("SET tokens = :tokens, last_refill_at = :anchor");
    let update = update.expression_attribute_values(":tokens", number(tokens));
    update.expression_attribute_values(":anchor", number(&ahead.to_string())).send().await.unwrap();
    ahead
}

/// In the embedded engine always: its `Date` is the tests' time, and that of another engine is not.
async fn embedded() -> World {
    let world = World::embedded().await;
    world.rate(RPM, 60, 60).await;
    world
}

#[tokio::test(start_paused = true)]
async fn callers_take_what_a_wrong_clock_left_and_who_finds_too_little_moves_its_anchor_back() {
    let world = embedded().await;
    let ahead = left_ahead(&world, "1").await;
    let client = world.client();
    let _granted = take(&client, RPM).await;
    assert_eq!(world.bucket(RPM).await.anchor(), ahead);
    refusal(&client, RPM).await;
    let bucket = world.bucket(RPM).await;
    assert_eq!((bucket.anchor(), bucket.tokens().to_string().as_str()), (world.dynamo.clock().now(), "0"));
}

/// A client in another language writes it anew, faster than the bucket could fill: it would gain the capacity
/// with each repair.
#[tokio::test(start_paused = true)]
async fn an_anchor_that_is_written_anew_soon_after_its_repair_stays_until_the_bucket_could_have_filled() {
    for dimensions in [&[RPM][..], &[RPM, SLOTS]] {
        let world = embedded().await;
        world.slots(SLOTS, 2).await;
        let client = world.client();
        left_ahead(&world, "0").await;
        assert!(client.acquire(dimensions).await.unwrap().granted().is_none());
        world.pass(Duration::from_secs(15));
        let ahead = left_ahead(&world, "0").await;
        let Outcome::RetryIn(retry) = client.acquire(dimensions).await.unwrap() else {
            panic!("{dimensions:?}")
        };
        assert_eq!(
            (retry.wait(), world.bucket(RPM).await.anchor()),
            (Duration::from_secs(45), ahead),
            "{dimensions:?}"
        );
        world.pass(retry.wait());
        let Outcome::RetryIn(retry) = client.acquire(dimensions).await.unwrap() else {
            panic!("{dimensions:?}")
        };
        assert_eq!(retry.wait(), Duration::from_secs(1), "{dimensions:?}");
        world.pass(retry.wait());
        assert!(client.acquire(dimensions).await.unwrap().granted().is_some(), "{dimensions:?}");
    }
}

/// Someone else takes between every reading and every write: the repair fails each time.
#[tokio::test(start_paused = true)]
async fn a_repair_that_others_are_in_the_way_of_costs_nobody_its_answer() {
    let world = embedded().await;
    left_ahead(&world, "0.9").await;
    let row = world.dynamo.row(TABLE, RPM).unwrap().unwrap();
    let (client, repairs) = (world.client(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&repairs);
    world.dynamo.faults().draw(move |call| {
        let is_repair = call.body.windows(7).any(|part| part == b":since\"");
        is_repair.then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::service(
                "ConditionalCheckFailedException",
                400,
                serde_json::json!({ "Message": "another took", "Item": row }),
            )
        })
    });
    let retry = refusal(&client, RPM).await;
    assert_eq!((retry.reason(), retry.wait()), (RetryReason::Exhausted, Duration::from_millis(100)));
    assert_eq!(repairs.load(Ordering::SeqCst), 1);
}

/// Nothing can be taken for an hour otherwise.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_left_empty_in_the_future_refuses_for_as_long_as_its_refill_takes() {
    for dimensions in [&[RPM][..], &[RPM, SLOTS]] {
        let world = embedded().await;
        world.slots(SLOTS, 2).await;
        left_ahead(&world, "0").await;
        let client = world.client();
        let Outcome::RetryIn(retry) = client.acquire(dimensions).await.unwrap() else {
            panic!("{dimensions:?}")
        };
        assert_eq!(retry.wait(), Duration::from_secs(1), "{dimensions:?}");
        world.pass(retry.wait());
        assert!(client.acquire(dimensions).await.unwrap().granted().is_some(), "{dimensions:?}");
    }
}

/// Its own clock lags by an hour, and every anchor seems to lie in the future until the table has told the
/// time. Whoever finds too little moves such an anchor back, so others have taken everything each time that
/// it asks.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_clock_lags_by_an_hour_moves_no_anchor_back() {
    let world = World::embedded().await;
    rate(&world, RPM, 60, "1").await;
    let others = world.client();
    let all = others.acquire(Request::from(RPM).cost(RPM, 60)).await.unwrap();
    assert!(all.granted().is_some());
    let before = world.bucket(RPM).await.anchor();
    let machine = Machine::default();
    machine.set_clock_by(-HOUR);
    let client = machine.client(&world, |settings| settings);
    world.pass(Duration::from_millis(10));
    refusal(&client, RPM).await;
    assert!(world.bucket(RPM).await.anchor() >= before);
    // What it remembers of the refusal ends, and others take what came in the meantime.
    world.pass(Duration::from_secs(1));
    let _granted = take(&others, RPM).await;
    let before = world.bucket(RPM).await.anchor();
    machine.set_clock_by(-HOUR);
    world.pass(Duration::from_millis(10));
    refusal(&client, RPM).await;
    assert!(world.bucket(RPM).await.anchor() >= before);
}

#[tokio::test(start_paused = true)]
async fn applying_the_limit_that_a_bucket_has_moves_its_anchor_back_and_says_so() {
    let world = embedded().await;
    left_ahead(&world, "5").await;
    let client = world.client();
    assert_eq!(
        client.ops().apply_limit(&dimension(RPM), &requests(60, 60)).await.unwrap(),
        Applied::Repaired
    );
    assert_eq!(world.level(RPM).await, "5");
    assert_eq!(world.bucket(RPM).await.anchor(), world.dynamo.clock().now());
    assert_eq!(
        client.ops().apply_limit(&dimension(RPM), &requests(60, 60)).await.unwrap(),
        Applied::Unchanged
    );
    // So long after a repair comes the next.
    world.pass(Duration::from_secs(60));
    left_ahead(&world, "5").await;
    let applied = client.ops().apply_limit(&dimension(RPM), &requests(30, 60)).await.unwrap();
    assert_eq!(applied, Applied::Changed { from: requests(60, 60).into() });
    world.pass(Duration::from_secs(2));
    assert_eq!(world.level(RPM).await, "6", "it rises from now on");
}
