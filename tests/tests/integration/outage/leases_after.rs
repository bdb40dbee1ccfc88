//! After an outage, the slots that a process granted by itself have leases in the table until their calls
//! end.

use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_sdk::{Basis, Client, Grant, Leases, LimitError};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use crate::world::{LEASE_TTL, World, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
/// Until a process has found DynamoDB again, and has taken what it granted.
const LEASED: Duration = Duration::from_secs(2);

const KINDS: [Leases; 3] = [Leases::Concurrent, Leases::Inline, Leases::All];

/// A client with a half of four slots, which it granted in an outage.
async fn granted(leases: Leases) -> (World, Client, Vec<Grant>) {
    let world = World::embedded().await;
    world.slots(SLOTS, 4).await;
    let client = world.client_with(|settings| {
        settings.leases(leases).renew_leases(true).on_unavailable("share:0.5".parse().unwrap())
    });
    take(&client, SLOTS).await.release().await.unwrap();
    is_out(&world, true);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(take(&client, SLOTS).await);
        assert_eq!(held[0].basis(), Basis::LocalShare);
    }
    (world, client, held)
}

fn is_out(world: &World, is_out: bool) {
    world.dynamo.faults().draw(move |_| is_out.then_some(Fault::Hang));
}

/// How many leases there are, and how many slots are free.
async fn state(world: &World) -> (usize, String) {
    (world.leases().await, world.free(SLOTS).await)
}

#[tokio::test(start_paused = true)]
async fn what_a_process_granted_is_held_in_the_table_until_its_calls_end() {
    for leases in KINDS {
        let (world, _client, mut held) = granted(leases).await;
        is_out(&world, false);
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (2, "2".into()), "{leases:?}");
        // Its leases are renewed.
        sleep(Duration::from_secs(180)).await;
        assert_eq!(state(&world).await, (2, "2".into()), "{leases:?}");
        let rows = world.client().ops().leases().await.unwrap();
        let now = world.dynamo.clock().now();
        assert!(rows.iter().all(|row| row.lease.as_ref().unwrap().ends() > now), "{leases:?}: {rows:?}");
        held.pop().unwrap().release().await.unwrap();
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (1, "3".into()), "{leases:?}");
        drop(held);
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}");
    }
}

/// A process with another policy takes all, before this one has found the return.
#[tokio::test(start_paused = true)]
async fn it_has_a_lease_once_the_table_has_slots_free() {
    for leases in KINDS {
        let (world, _client, held) = granted(leases).await;
        is_out(&world, false);
        let other = world.client();
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(take(&other, SLOTS).await);
        }
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (4, "0".into()), "{leases:?}: never more than there are");
        for grant in all {
            grant.release().await.unwrap();
        }
        sleep(LEASE_TTL).await;
        assert_eq!(state(&world).await, (2, "2".into()), "{leases:?}");
        drop(held);
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_taken_once_if_the_reply_is_lost_and_again_if_it_failed() {
    for leases in KINDS {
        for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::throttled()] {
            let (world, _client, held) = granted(leases).await;
            let operation = match leases {
                Leases::Inline => Operation::UpdateItem,
                _ => Operation::TransactWriteItems,
            };
            (0..6).for_each(|_| world.dynamo.faults().next(operation, fault.clone()));
            is_out(&world, false);
            sleep(8 * LEASED).await;
            let others = world.client();
            take(&others, SLOTS).await.release().await.unwrap();
            // A lease that was written, and whose caller had no answer, ends.
            sleep(2 * LEASE_TTL).await;
            others.ops().sweep(SweepOptions::default()).await.unwrap();
            assert_eq!(state(&world).await, (2, "2".into()), "{leases:?}, {fault:?}");
            drop(held);
            sleep(LEASED).await;
            assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}, {fault:?}");
        }
    }
}

/// At whatever moment of the return.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_while_it_gets_a_lease_leaves_none() {
    for leases in KINDS {
        for moment in (0..1_000).step_by(40) {
            let (world, _client, held) = granted(leases).await;
            world.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(50))));
            sleep(Duration::from_millis(moment)).await;
            drop(held);
            sleep(LEASED).await;
            assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}, after {moment} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_or_dropped_gives_them_back() {
    for leases in KINDS {
        let (world, client, held) = granted(leases).await;
        is_out(&world, false);
        sleep(LEASED).await;
        let closed = client.close(Duration::from_secs(4)).await;
        assert_eq!((closed.left.len(), state(&world).await), (0, (0, "4".into())), "{leases:?}");
        drop(held);
        settle().await;
        assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}: not twice");

        let (world, client, held) = granted(leases).await;
        is_out(&world, false);
        sleep(LEASED).await;
        drop(client);
        assert_eq!(state(&world).await, (2, "2".into()), "{leases:?}");
        drop(held);
        sleep(LEASED).await;
        assert_eq!(state(&world).await, (0, "4".into()), "{leases:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slot_at_the_return_stays_in_the_queue_until_all_have_leases() {
    for leases in KINDS {
        let (world, client, held) = granted(leases).await;
        is_out(&world, false);
        let returned = Instant::now();
        // Until the client has found it.
        while client.acquire(SLOTS).await.unwrap().granted().is_none() && world.leases().await < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        let found = Instant::now();
        let ran = client.slot(SLOTS).timeout(Duration::from_secs(5));
        let begun = ran.run(async |_| Ok::<_, LimitError>(found.elapsed())).await.unwrap();
        let longest = Duration::from_millis(1_250);
        assert!(
            begun > Duration::from_millis(600) && begun < longest,
            "{leases:?}: {begun:?}, {:?}",
            found - returned
        );
        drop(held);
    }
}
