//! More callers in line than one write takes: all have their answer in the time that is stated, whatever
//! hangs.

use std::time::Duration;

use sluice_sdk::{AcquireError, Client, ReleaseError, Request, SettleError, StoreError};
use sluice_testkit::Fault;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::{World, settle, take};

const TPM: &str = "acme#tpm";
const SLOTS: &str = "elevenlabs#concurrent";
/// Four attempts of a second, and at most 175 ms of waits between them.
const REQUEST: Duration = Duration::from_millis(4_175);

/// The bucket holds enough for all, and this client knows it.
async fn known() -> (World, Client) {
    let world = World::embedded().await;
    world.tokens(TPM, 1_000_000, 1_000_000_000).await;
    let client = world.client();
    let _ = take(&client, Request::from(TPM).cost(TPM, 1)).await;
    (world, client)
}

fn hang(world: &World) {
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
}

/// What each was told, and that it was within the time of two requests: the one under way, and its own.
async fn within_two_requests<T>(asked: Instant, calls: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut told = Vec::new();
    for call in calls {
        told.push(call.await.unwrap());
    }
    assert!(asked.elapsed() <= REQUEST * 2, "{:?}", asked.elapsed());
    told
}

#[tokio::test(start_paused = true)]
async fn five_thousand_callers_of_one_bucket_share_writes_and_are_all_granted() {
    let (world, client) = known().await;
    let world = world.distant();
    world.dynamo.meter().reset();
    let calls: Vec<_> = (0..5_000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(Request::from(TPM).cost(TPM, 1)).await })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap().unwrap().granted().is_some());
    }
    let requests = world.dynamo.meter().reset().requests;
    assert!((5..=8).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_refused_is_refused_to_its_end() {
    let world = World::embedded().await;
    world.tokens(TPM, 10, 1_000_000_000).await;
    let client = world.client();
    let _ = take(&client, Request::from(TPM).cost(TPM, 1)).await;
    let calls: Vec<_> = (0..3_000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(Request::from(TPM).cost(TPM, 1)).await })
        })
        .collect();
    let mut granted = 0;
    for call in calls {
        granted += usize::from(call.await.unwrap().unwrap().granted().is_some());
    }
    settle().await;
    assert_eq!((granted, world.whole_level(TPM).await.as_str()), (9, "0"));
}

#[tokio::test(start_paused = true)]
async fn five_thousand_callers_hear_of_an_outage_in_time() {
    let (world, client) = known().await;
    hang(&world);
    let asked = Instant::now();
    let calls = (0..5_000).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.acquire(Request::from(TPM).cost(TPM, 1)).await.map(drop) })
    });
    for told in within_two_requests(asked, calls.collect()).await {
        assert!(matches!(told, Err(AcquireError::Store(StoreError::Unavailable { .. }))), "{told:?}");
    }
    assert!(asked.elapsed() <= client.longest_acquire(), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn three_thousand_calls_that_are_settled_hear_of_an_outage_in_time() {
    let (world, client) = known().await;
    let mut grants = Vec::new();
    for _ in 0..3_000 {
        grants.push(client.acquire(Request::from(TPM).cost(TPM, 10)).await.unwrap().granted().unwrap());
    }
    hang(&world);
    let asked = Instant::now();
    let calls =
        grants.into_iter().map(|mut grant| tokio::spawn(async move { grant.settle(TPM, 5).await.map(drop) }));
    let mut unsent = 0;
    for told in within_two_requests(asked, calls.collect()).await {
        let Err(SettleError::Acquire(AcquireError::Store(error))) = told else { panic!("{told:?}") };
        unsent += usize::from(matches!(error, StoreError::Unavailable { maybe_applied: false, .. }));
    }
    assert!(
        (1_000..2_999).contains(&unsent),
        "those that nothing was sent for may be settled again: {unsent}"
    );
}

#[tokio::test(start_paused = true)]
async fn four_hundred_releases_hear_of_an_outage_in_time() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1_000).await;
    let client = world.client();
    let mut grants = Vec::new();
    for _ in 0..400 {
        grants.push(take(&client, SLOTS).await);
    }
    hang(&world);
    let asked = Instant::now();
    let calls = grants.into_iter().map(|grant| tokio::spawn(grant.release()));
    for told in within_two_requests(asked, calls.collect()).await {
        assert!(matches!(told, Err(ReleaseError::Store(StoreError::Unavailable { .. }))), "{told:?}");
    }
}
