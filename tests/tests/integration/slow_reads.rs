//! Readings that are old by the time that the next one has come: a round judges by what it has just read, and
//! ends.

use std::time::Duration;

use sluice_sdk::{Client, Grant, Outcome, Request, RetryReason};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{World, settle, take};

const SLOTS: &str = "openai#concurrent";
const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const READ: Duration = Duration::from_millis(250);

/// The one slot is held by another process, and reads take a quarter of a second, longer than a reading of
/// slots counts.
async fn full() -> (World, Client, Grant) {
    let world = World::with_slots(SLOTS, 1).await;
    world.rate(RPM, 100, 60).await;
    world.tokens(TPM, 10_000, 60).await;
    let client = world.client_with(|settings| settings.self_heal(false));
    client
        .acquire(Request::from([SLOTS, RPM, TPM]).cost(TPM, 1))
        .await
        .unwrap()
        .granted()
        .unwrap()
        .release()
        .await
        .unwrap();
    let held = take(&world.client(), SLOTS).await;
    world.dynamo.faults().always(Operation::GetItem, Fault::Delay(READ));
    // What is known is too old to refuse by.
    sleep(Duration::from_secs(5)).await;
    (world, client, held)
}

#[tokio::test(start_paused = true)]
async fn an_acquire_over_a_full_bucket_returns_when_reads_take_a_quarter_of_a_second() {
    let (world, client, _held) = full().await;
    world.dynamo.meter().reset();
    let began = Instant::now();
    let answer =
        timeout(Duration::from_secs(30), client.acquire(Request::from([SLOTS, RPM, TPM]).cost(TPM, 1)))
            .await
            .expect("it returns");
    let Outcome::RetryIn(retry) = answer.unwrap() else { panic!() };
    assert_eq!((retry.dimension().as_str(), retry.reason()), (SLOTS, RetryReason::NoFreeSlot));
    assert!(began.elapsed() <= 2 * READ, "a transaction, and one reading of all: {:?}", began.elapsed());
    assert!(world.dynamo.meter().of(Operation::GetItem).requests <= 3);
}

/// Also where the slot is free by the time that the reading comes.
#[tokio::test(start_paused = true)]
async fn a_lane_does_not_go_on_for_callers_who_left() {
    for is_freed in [false, true] {
        let (world, client, held) = full().await;
        let asking: Vec<_> = (0..5)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    client.acquire(Request::from([SLOTS, RPM, TPM]).cost(TPM, 1)).await.map(drop)
                })
            })
            .collect();
        sleep(Duration::from_millis(100)).await;
        asking.iter().for_each(tokio::task::JoinHandle::abort);
        match is_freed {
            true => drop(held.release().await.unwrap()),
            false => std::mem::forget(held),
        }
        world.dynamo.meter().reset();
        sleep(Duration::from_secs(10)).await;
        settle().await;
        let (all, reads) = (world.dynamo.meter().total(), world.dynamo.meter().of(Operation::GetItem));
        assert!(reads.requests <= 3, "those that were under way, and not {}", reads.requests);
        assert_eq!(all.requests, reads.requests, "{is_freed}: nobody is there to be served");
    }
}
