//! What an operator takes back: a cool-down, and a level that a reply or a penalty lowered.

use std::time::Duration;

use sluice_core::Amount;
use sluice_sdk::reactions::{CoolDown, EndedCoolDown, Penalty, RefillError, Refilled};
use sluice_sdk::{Client, LimitError, Request, RetryReason};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{World, refusal, settle, take};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";
const QUARTER: Duration = Duration::from_secs(15 * 60);

/// A bucket of each kind that cools down for a quarter of an hour.
async fn cooling() -> Vec<(World, &'static str)> {
    let mut worlds = Vec::new();
    for (kind, name) in [(Kind::Rows, RPM), (Kind::Rows, SLOTS), (Kind::Inline, SLOTS)] {
        let world = World::embedded().await.with(kind);
        world.rate(RPM, 600, 60).await;
        world.slots(SLOTS, 5).await;
        world.client().cool_down(name, QUARTER).await.unwrap();
        worlds.push((world, name));
    }
    worlds
}

async fn ended(client: &Client, name: &str) -> bool {
    matches!(client.end_cool_down(name).await.unwrap(), EndedCoolDown::Ended(_))
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cool_down_reaches_a_process_that_knew_the_cool_down_within_a_second() {
    for (world, name) in cooling().await {
        let (operator, client) = (world.client(), world.client());
        assert_eq!(refusal(&client, name).await.reason(), RetryReason::CoolingDown);
        assert!(ended(&operator, name).await);
        let over = Instant::now();
        while client.acquire(name).await.unwrap().granted().is_none() {
            assert!(over.elapsed() <= Duration::from_secs(1), "{name}");
            sleep(Duration::from_millis(20)).await;
            world.pass(Duration::from_millis(20));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cool_down_reaches_a_slot_that_waits_for_it_within_seconds() {
    for (world, name) in cooling().await {
        let client = world.client();
        let slots: Vec<_> = (0..3)
            .map(|_| client.slot(name).max_wait(2 * QUARTER))
            .map(|slot| tokio::spawn(slot.run(async |_| Ok::<_, LimitError>(Instant::now()))))
            .collect();
        sleep(Duration::from_secs(20)).await;
        world.dynamo.meter().reset();
        sleep(Duration::from_secs(60)).await;
        let requests = world.dynamo.meter().reset().requests;
        assert!(requests <= 65, "{name}: {requests} looks a minute, for three callers");
        assert!(ended(&world.client(), name).await);
        let over = Instant::now();
        for slot in slots {
            let waited = slot.await.unwrap().unwrap() - over;
            assert!(waited <= Duration::from_secs(6), "{name}: {waited:?}");
        }
    }
}

/// Nothing is read for a pause that is shorter than the time between two looks.
#[tokio::test(start_paused = true)]
async fn a_slot_waits_out_a_short_cool_down_without_a_look() {
    let world = World::embedded().await;
    world.rate(RPM, 600, 60).await;
    let client = world.client();
    client.cool_down(RPM, Duration::from_secs(2)).await.unwrap();
    world.dynamo.meter().reset();
    client.slot(RPM).run(async |_| Ok::<_, LimitError>(())).await.unwrap();
    assert_eq!(world.dynamo.meter().of(Operation::GetItem).requests, 0);
}

#[tokio::test(start_paused = true)]
async fn ending_a_cool_down_says_whether_one_was_in_force() {
    for (world, name) in cooling().await {
        let client = world.client();
        let CoolDown::LongerAlready(until) = client.cool_down(name, Duration::from_secs(1)).await.unwrap()
        else {
            panic!("{name}")
        };
        assert_eq!(client.end_cool_down(name).await.unwrap(), EndedCoolDown::Ended(until));
        assert_eq!(client.end_cool_down(name).await.unwrap(), EndedCoolDown::NoneInForce);
        assert!(client.acquire(name).await.unwrap().granted().is_some(), "in the same process at once");
        assert!(client.end_cool_down("unknown#rpm").await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_the_end_of_a_cool_down_ends_no_other_one() {
    let world = World::embedded().await;
    world.rate(RPM, 600, 60).await;
    let client = world.client();
    client.cool_down(RPM, QUARTER).await.unwrap();
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    assert!(ended(&client, RPM).await);
    assert_eq!(world.bucket(RPM).await.blocked_until(), None);
}

#[test]
fn the_write_that_ends_a_cool_down_leaves_a_later_one() {
    let (dimension, until) = (crate::world::dimension(RPM), sluice_core::Timestamp::from_secs(1_709_550_900));
    let update = sluice_core::end_cool_down(&dimension, until);
    assert_eq!(update.statement.condition, "#blocked_until < :later");
    assert_eq!(update.values, [(":later", sluice_core::Operand::Number("1709550900.000001".into()))]);
}

async fn refilled(client: &Client, to: Option<i32>) -> Result<Refilled, RefillError> {
    client.refill(RPM, to.map(Amount::from_tokens)).await
}

#[tokio::test(start_paused = true)]
async fn a_refill_sets_the_level_for_everyone() {
    let world = World::with_rate(RPM, 100, 1_000_000_000).await;
    let (operator, client) = (world.client(), world.client());
    let Penalty::Applied(_) = operator.penalize(RPM, 0.0).await.unwrap() else { panic!() };
    assert_eq!(refusal(&client, RPM).await.reason(), RetryReason::Exhausted);
    let set = refilled(&operator, None).await.unwrap();
    assert!(matches!(set, Refilled::Set { level, .. } if level == Amount::from_tokens(100)), "{set:?}");
    world.pass(Duration::from_millis(1_001));
    let _ = take(&client, Request::from(RPM).cost(RPM, 40)).await;
    assert_eq!(world.whole_level(RPM).await, "60");
    refilled(&operator, Some(10)).await.unwrap();
    assert_eq!(world.whole_level(RPM).await, "10", "it may lower too");
    refilled(&operator, Some(0)).await.unwrap();
    assert_eq!(world.whole_level(RPM).await, "0");
    refilled(&operator, Some(100)).await.unwrap();
    assert_eq!(refilled(&operator, Some(100)).await.unwrap(), Refilled::Already(Amount::from_tokens(100)));
}

#[tokio::test(start_paused = true)]
async fn a_refill_that_means_nothing_is_an_error_that_says_what_to_do() {
    let world = World::with_rate(RPM, 100, 60).await;
    world.slots(SLOTS, 5).await;
    let client = world.client();
    for to in [-1, 101] {
        assert!(matches!(refilled(&client, Some(to)).await, Err(RefillError::OutOfRange { .. })), "{to}");
    }
    let slots = client.refill(SLOTS, None).await.unwrap_err();
    assert!(
        matches!(slots, RefillError::Concurrency(_)) && slots.to_string().contains("sluice reconcile"),
        "{slots}"
    );
    assert!(matches!(client.refill("unknown#rpm", None).await, Err(RefillError::Acquire(_))));
}

#[tokio::test(start_paused = true)]
async fn two_operators_who_refill_at_once_refill_once() {
    for _ in 0..10 {
        let world = World::with_rate(RPM, 100, 1_000_000_000).await.distant();
        let (one, other) = (world.client(), world.client());
        one.penalize(RPM, 0.0).await.unwrap();
        let (first, second) = tokio::join!(refilled(&one, Some(50)), refilled(&other, Some(50)));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        assert_eq!(world.whole_level(RPM).await, "50");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_were_taken_before_a_refill_do_not_come_back_after_it() {
    let world = World::with_rate(RPM, 100, 1_000_000_000).await;
    let client = world.client();
    let mut held = take(&client, Request::from(RPM).cost(RPM, 40)).await;
    refilled(&client, Some(80)).await.unwrap();
    held.settle(RPM, 0).await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(RPM).await, "80");
}
