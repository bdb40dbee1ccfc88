//! What a process grants of a row of slots by itself: its part of what was free, and what its own calls give
//! back.

use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_sdk::{Basis, Client, Grant, Outcome};
use sluice_testkit::{Fault, Operation};
use tokio::time::sleep;

use crate::kind::Kind;
use crate::world::{World, refusal, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
const TTL: Duration = Duration::from_secs(10);

fn half(world: &World) -> Client {
    world.client_with(|settings| {
        settings.on_unavailable("share:0.5".parse().unwrap()).lease_ttl(TTL).renew_leases(true)
    })
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

/// Takes two slots and gives them back, and an outage begins: the releases are applied, nobody answers them,
/// and they are given up after some seconds.
async fn release_without_a_reply(world: &World, client: &Client) {
    let own = hold(client, 2).await;
    world.dynamo.faults().draw(|_| Some(Fault::LoseReply));
    drop(own);
    settle().await;
    is_out(world, client).await;
    sleep(Duration::from_secs(7)).await;
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

/// Longer than a lease lasts.
#[tokio::test(start_paused = true)]
async fn a_process_goes_on_with_the_slots_that_it_had_however_long_the_outage_is() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, held) = of_ten(kind, 2).await;
        let own = hold(&client, 8).await;
        is_out(&world, &client).await;
        drop(own);
        settle().await;
        for _ in 0..3 {
            let granted = local(&client).await;
            assert_eq!(granted.len(), 8, "{kind:?}: more than its part");
            sleep(TTL).await;
            drop(granted);
            settle().await;
        }
        world.dynamo.faults().draw(|_| None);
        sleep(Duration::from_secs(5)).await;
        drop(held);
        settle().await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (0, "10"), "{kind:?}");
    }
}

/// Of a call that began in the outage: the lease is that of another call, whose release was applied.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_back_before_it_was_handed_on_is_taken_again() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _held) = of_ten(kind, 8).await;
        release_without_a_reply(&world, &client).await;
        let granted = local(&client).await;
        assert_eq!(granted.len(), 2, "{kind:?}");
        world.dynamo.faults().draw(|_| None);
        sleep(Duration::from_secs(5)).await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (10, "0"), "{kind:?}");
        assert!(granted.iter().all(|grant| !grant.is_lease_lost()), "{kind:?}");
        drop(granted);
        settle().await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (8, "2"), "{kind:?}");
    }
}

/// Requests that fail alone are no outage, and say nothing of a later one.
#[tokio::test(start_paused = true)]
async fn a_part_of_failed_requests_is_not_that_of_a_later_outage() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _) = of_ten(kind, 0).await;
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let alone = take(&client, SLOTS).await;
        assert_eq!(alone.basis(), Basis::LocalShare, "{kind:?}");
        drop(alone);
        world.dynamo.faults().draw(|_| None);
        settle().await;
        let _held = hold(&world.client(), 10).await;
        refusal(&client, SLOTS).await;
        is_out(&world, &client).await;
        assert_eq!(local(&client).await.len(), 0, "{kind:?}: nothing is free any more");
    }
}

/// A release that DynamoDB received before the outage and applies after it, when the lease is another call's.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_after_it_was_renewed_is_taken_again() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, _held) = of_ten(kind, 8).await;
        let own = hold(&client, 2).await;
        let operation =
            if kind == Kind::Rows { Operation::TransactWriteItems } else { Operation::UpdateItem };
        world.dynamo.faults().draw(move |call| match call.operation == operation {
            true => Some(Fault::Late(Duration::from_secs(20))),
            false => Some(Fault::Hang),
        });
        drop(own);
        settle().await;
        is_out(&world, &client).await;
        sleep(Duration::from_secs(6)).await;
        let granted = local(&client).await;
        assert_eq!(granted.len(), 2, "{kind:?}");
        world.dynamo.faults().draw(|_| None);
        sleep(Duration::from_secs(2)).await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (10, "0"), "{kind:?}: renewed");
        // It comes now, and the next renewals find its lease gone.
        sleep(Duration::from_secs(25)).await;
        assert_eq!(
            (world.leases().await, world.free(SLOTS).await.as_str()),
            (10, "0"),
            "{kind:?}: taken again"
        );
        assert!(granted.iter().all(|grant| !grant.is_lease_lost()), "{kind:?}");
        drop(granted);
        settle().await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (8, "2"), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_in_an_outage_names_what_it_kept() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, held) = of_ten(kind, 4).await;
        let own = hold(&client, 3).await;
        is_out(&world, &client).await;
        drop(own);
        settle().await;
        let running = local(&client).await;
        assert_eq!(running.len(), 4, "{kind:?}: three, and a part of what is free");
        drop(running);
        settle().await;
        let closed = client.close(Duration::from_secs(4)).await;
        assert_eq!(closed.left.len(), 3, "{kind:?}: {closed:?}");
        world.dynamo.faults().draw(|_| None);
        drop(held);
        sleep(3 * TTL).await;
        world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (0, "10"), "{kind:?}");
    }
}

/// The holders of the leases that were kept have ended in time: nobody is told that calls outlast leases.
#[tokio::test(start_paused = true)]
async fn a_kept_lease_that_is_gone_at_the_return_is_no_holder_that_outlasted_it() {
    for kind in [Kind::Rows, Kind::Inline] {
        let (world, client, held) = of_ten(kind, 8).await;
        release_without_a_reply(&world, &client).await;
        world.dynamo.faults().draw(|_| None);
        sleep(Duration::from_secs(5)).await;
        assert_eq!((world.leases().await, world.free(SLOTS).await.as_str()), (8, "2"), "{kind:?}");
        let swept = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert!(swept.expired_holders.is_empty(), "{kind:?}: {swept:?}");
        drop(held);
        settle().await;
    }
}
