//! Replies that are lost, requests that arrive twice, conflicts that say nothing: a slot changes once, or not at all.

use sluice_sdk::{Released, SweepOptions, SweepReport};
use sluice_testkit::{Fault, Operation};

use crate::world::{World, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().sweep(SweepOptions::default()).await.unwrap()
}

/// By the token that stays the same over retries.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_was_lost_is_sent_again_and_counts_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

/// By the token, and beyond its ten minutes by `attribute_exists` on the delete.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_delivered_twice_counts_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let (held, _other) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::Repeat);
    held.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

/// By the token, and by `attribute_not_exists` on the lease.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_was_lost_takes_one_slot() {
    let world = World::with_slots(SLOTS, 3).await;
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::LoseReply);
    let held = take(&world.client(), SLOTS).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    held.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
}

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

/// A conflict says nothing of the lease: reading it as "already at capacity" would delete the trace of a held slot.
#[tokio::test(start_paused = true)]
async fn a_lease_survives_conflicts_and_throttling_of_its_reclaim() {
    for reasons in [
        ["TransactionConflict", "None"],
        ["None", "TransactionConflict"],
        ["None", "ThrottlingError"],
        ["ProvisionedThroughputExceeded", "None"],
    ] {
        let world = World::with_slots(SLOTS, 2).await;
        std::mem::forget(take(&world.client(), SLOTS).await);
        world.pass_lease();
        world.dynamo.faults().always(Operation::TransactWriteItems, Fault::cancelled(&reasons));
        let report = sweep(&world).await;
        assert_eq!((report.restored, report.already_capped, report.left), (0, 0, 1), "{reasons:?}");
        assert_eq!(report.conflicts_retried, 5);
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
        world.dynamo.faults().clear();
        world.dynamo.faults().next(Operation::TransactWriteItems, Fault::cancelled(&reasons));
        assert_eq!(sweep(&world).await.restored, 1, "the next sweep waits one conflict out");
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_conflicts_out() {
    let world = World::with_slots(SLOTS, 2).await;
    let held = take(&world.client(), SLOTS).await;
    for _ in 0..5 {
        world.dynamo.faults().next(Operation::TransactWriteItems, Fault::cancelled(&["None", "TransactionConflict"]));
    }
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.free(SLOTS).await, "2");
}
