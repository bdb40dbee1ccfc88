//! After an outage, a process with a share takes nothing of a rate bucket until all have charged their parts.

use std::time::Duration;

use sluice_sdk::{Basis, Client, LimitError, Outcome, RetryIn, RetryReason};
use sluice_testkit::Fault;
use tokio::time::{Instant, sleep, timeout};

use super::RPM;
use crate::events::{lines_of, listen};
use crate::world::{World, take};

const HOLD: Duration = Duration::from_millis(750);
const SLOTS: &str = "elevenlabs#concurrent";

/// Of a bucket with a hundred calls that hardly refills.
async fn client(policy: &str) -> (World, Client) {
    listen();
    let world = World::embedded().await;
    world.rate(RPM, 100, 1_000_000_000).await;
    world.slots(SLOTS, 10).await;
    let client = world.client_with(|settings| settings.on_unavailable(policy.parse().unwrap()));
    for name in [RPM, SLOTS] {
        take(&client, name).await.release().await.unwrap();
    }
    (world, client)
}

fn is_out(world: &World, is_out: bool) {
    world.dynamo.faults().draw(move |_| is_out.then_some(Fault::Hang));
}

/// Waits until the client has found DynamoDB again.
async fn is_back() {
    let back = async {
        loop {
            listen();
            sleep(Duration::from_millis(1)).await;
            if !lines_of("dynamodb.back").is_empty() {
                return listen();
            }
        }
    };
    timeout(Duration::from_secs(1), back).await.unwrap();
}

/// A client that granted a call in an outage, and has just found DynamoDB again.
async fn just_back(policy: &str) -> (World, Client, Instant) {
    let (world, client) = client(policy).await;
    is_out(&world, true);
    assert_eq!(take(&client, RPM).await.basis(), Basis::LocalShare);
    is_out(&world, false);
    is_back().await;
    (world, client, Instant::now())
}

async fn refused(client: &Client, names: &[&str]) -> RetryIn {
    match client.acquire(names.to_vec()).await.unwrap() {
        Outcome::RetryIn(retry) => retry,
        Outcome::Granted(grant) => panic!("{grant:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_refused_from_memory_until_all_have_charged() {
    let (world, client, back) = just_back("share:0.5").await;
    sleep(Duration::from_millis(50)).await;
    let sent = world.dynamo.meter().total();
    // Of one bucket, and in a transaction with a slot.
    for names in [[RPM].as_slice(), &[SLOTS], &[SLOTS, RPM]] {
        let retry = refused(&client, names).await;
        assert_eq!((retry.dimension().as_str(), retry.reason()), (names[0], RetryReason::Exhausted));
        let ends = back.elapsed() + retry.wait();
        assert!(ends <= HOLD && ends >= HOLD - Duration::from_millis(5), "{ends:?}");
    }
    assert_eq!(world.dynamo.meter().total(), sent);
    sleep(HOLD - back.elapsed()).await;
    assert_eq!(take(&client, [SLOTS, RPM].to_vec()).await.basis(), Basis::Table);
    assert_eq!(take(&client, RPM).await.basis(), Basis::Table);
}

#[tokio::test(start_paused = true)]
async fn who_waits_stays_in_the_queue_and_is_served_at_the_end() {
    let (_world, client, back) = just_back("share:0.5").await;
    let ran =
        client.slot(RPM).timeout(Duration::from_secs(5)).run(async |_| Ok::<_, LimitError>(back.elapsed()));
    let begun = ran.await.unwrap();
    assert!(begun >= HOLD - Duration::from_millis(5) && begun <= 2 * HOLD, "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_share_takes_from_the_table_at_once() {
    for policy in ["error", "allow"] {
        let (world, client) = client(policy).await;
        is_out(&world, true);
        let _ = client.acquire(RPM).await;
        is_out(&world, false);
        is_back().await;
        assert_eq!(take(&client, RPM).await.basis(), Basis::Table);
    }
}

/// In virtual time, each request takes 5 ms: one after the other, they would take longer than the hold.
#[tokio::test(start_paused = true)]
async fn many_buckets_are_charged_within_the_hold() {
    listen();
    let world = World::embedded().await;
    let names: Vec<String> = (0..200).map(|number| format!("acme-{number}#rpm")).collect();
    let client = world.client_with(|settings| settings.on_unavailable("share:0.5".parse().unwrap()));
    for name in &names {
        world.rate(name, 100, 1_000_000_000).await;
        take(&client, name.as_str()).await.release().await.unwrap();
    }
    is_out(&world, true);
    for name in &names {
        assert_eq!(take(&client, name.as_str()).await.basis(), Basis::LocalShare);
    }
    let _world = world.distant();
    is_back().await;
    sleep(HOLD).await;
    assert_eq!(lines_of("unavailable.charged").len(), names.len());
}
