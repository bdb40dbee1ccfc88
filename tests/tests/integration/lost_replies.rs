//! Replies that are lost, requests that arrive twice, conflicts that say nothing: a slot changes once, or not at all.

use sluice_sdk::Released;
use sluice_testkit::{Fault, Operation};

use crate::world::{World, take};

const SLOTS: &str = "elevenlabs#concurrent";

/// Condition: `attribute_not_exists` on the lease. The retry comes after the ten minutes in which the token makes both one.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_sent_again_after_its_token_ended_takes_one_slot() {
    let world = World::embedded().await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    client.acquire(SLOTS).await.unwrap().granted().unwrap().release().await.unwrap();
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::NewToken);
    let held = take(&client, SLOTS).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
}

/// Condition: `attribute_exists` on the delete of a holder; as above.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_sent_again_after_its_token_ended_restores_once() {
    let world = World::embedded().await;
    world.slots(SLOTS, 3).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::NewToken);
    assert_eq!(
        held.release().await.unwrap(),
        Released::LeaseGone,
        "it cannot tell its own earlier release from a sweep"
    );
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
}
