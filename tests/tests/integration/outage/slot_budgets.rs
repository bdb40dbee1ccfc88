//! What a process grants of a row of slots by itself: its part of what was free, what its own calls give
//! back, and in a long outage its whole part.

use std::time::Duration;

use sluice_sdk::{Basis, Client, Grant, Outcome};
use sluice_testkit::Fault;
use tokio::time::sleep;

use crate::kind::Kind;
use crate::world::{World, refusal, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
const TTL: Duration = Duration::from_secs(10);

fn half(world: &World) -> Client {
    world.client_with(|settings| settings.on_unavailable("share:0.5".parse().unwrap()).lease_ttl(TTL))
}

fn hangs(world: &World) {
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
}

/// DynamoDB counts as out, since a call asked for another bucket.
async fn is_out(world: &World, client: &Client) {
    hangs(world);
    client.acquire("openai#rpm").await.unwrap_err();
}

/// Takes `count` slots of the table.
async fn hold(client: &Client, count: usize) -> Vec<Grant> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(take(client, SLOTS).await);
    }
    held
}

/// Takes what the process grants by itself.
async fn local(client: &Client) -> Vec<Grant> {
    let mut held = Vec::new();
    while let Outcome::Granted(grant) = client.acquire(SLOTS).await.unwrap() {
        assert_eq!(grant.basis(), Basis::LocalShare);
        held.push(grant);
        assert!(held.len() < 100, "without an end");
    }
    held
}

/// A bucket of ten slots of which another process holds `held`, and a client that has seen that.
async fn of_ten(kind: Kind, held: usize) -> (World, Client, Vec<Grant>) {
    let world = World::embedded().await.with(kind);
    world.slots(SLOTS, 10).await;
    let held = hold(&world.client(), held).await;
    let client = half(&world);
    if held.len() == 10 {
        refusal(&client, SLOTS).await;
    } else {
        take(&client, SLOTS).await.release().await.unwrap();
    }
    (world, client, held)
}

#[tokio::test(start_paused = true)]
async fn a_process_begins_with_its_part_of_what_was_free() {
    for kind in [Kind::Rows, Kind::Inline] {
        for (held, granted) in [(0, 5), (4, 3), (9, 0), (10, 0)] {
            let (world, client, _held) = of_ten(kind, held).await;
            is_out(&world, &client).await;
            assert_eq!(local(&client).await.len(), granted, "{kind:?}: {held} of ten are held");
        }
    }
}

/// Its release began before DynamoDB counted as out, or in the outage; by the caller, or by a drop.
#[tokio::test(start_paused = true)]
async fn what_comes_back_in_an_outage_is_granted_again() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _held) = of_ten(kind, 3).await;
        let mut own = hold(&client, 7).await;
        hangs(&world);
        // Their releases wait for an answer when DynamoDB begins to count as out.
        own.truncate(5);
        is_out(&world, &client).await;
        sleep(Duration::from_secs(7)).await;
        let granted = local(&client).await;
        assert_eq!(granted.len(), 2, "{kind:?}: once they have failed");
        own.pop().unwrap().release().await.unwrap();
        drop(own.pop());
        settle().await;
        let more = local(&client).await;
        assert_eq!(more.len(), 2, "{kind:?}: at once");
        drop(granted);
        settle().await;
        assert_eq!(local(&client).await.len(), 2, "{kind:?}");
        drop(more);
        settle().await;
        assert_eq!(local(&client).await.len(), 4, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_failed_before_the_first_call_of_an_outage_counts() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _held) = of_ten(kind, 8).await;
        let own = hold(&client, 2).await;
        hangs(&world);
        drop(own);
        sleep(Duration::from_secs(9)).await;
        assert_eq!(local(&client).await.len(), 2, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slots_of_crashed_holders_are_granted_again_in_a_long_outage() {
    let (world, client, held) = of_ten(Kind::Inline, 10).await;
    held.into_iter().for_each(std::mem::forget);
    is_out(&world, &client).await;
    let granted = local(&client).await.len();
    // Calls of processes that had more than their part may run half a lease time longer.
    sleep(TTL * 3 / 2 - Duration::from_secs(4)).await;
    assert_eq!((granted, local(&client).await.len()), (0, 0));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(local(&client).await.len(), 5, "its whole part");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_had_more_than_its_part_grants_no_more_than_it_in_a_long_outage() {
    let (world, client, _held) = of_ten(Kind::Inline, 2).await;
    let own = hold(&client, 8).await;
    is_out(&world, &client).await;
    drop(own);
    settle().await;
    let granted = local(&client).await;
    assert_eq!(granted.len(), 8);
    sleep(TTL - Duration::from_secs(2)).await;
    drop(granted);
    settle().await;
    assert_eq!(local(&client).await.len(), 5);
}

/// Its leases have ended in the table, and its calls run.
#[tokio::test(start_paused = true)]
async fn calls_that_run_through_a_long_outage_count_in_the_part_of_their_process() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _held) = of_ten(kind, 6).await;
        let mut own = hold(&client, 4).await;
        is_out(&world, &client).await;
        assert_eq!(local(&client).await.len(), 0, "{kind:?}");
        sleep(TTL * 3 / 2).await;
        let granted = local(&client).await;
        assert_eq!(granted.len(), 1, "{kind:?}");
        drop(own.pop());
        settle().await;
        assert_eq!(local(&client).await.len(), 1, "{kind:?}");
    }
}
