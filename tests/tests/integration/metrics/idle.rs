//! Gauges while nothing happens, and recorders that come late.

use std::collections::HashMap;
use std::time::Duration;

use sluice_core::schema::{ADMITTED, DRAIN_RATE, KEY, MEASURED_AT, PENDING, SEQUENCE};
use sluice_ops::SweepOptions;
use sluice_sdk::reservations::ReservationConfig;
use sluice_testkit::Operation;

use super::{Listening, Recorded, counted, gauge};
use crate::world::{World, dimension, number, take, text};

const RPM: &str = "a#rpm";
const SLOTS: &str = "a#concurrent";

/// A load row as a sweep writes it.
pub(super) async fn put_load(world: &World, name: &str, pending: &str, drain_rate: &str) {
    let numbers = [
        (PENDING, pending),
        (DRAIN_RATE, drain_rate),
        (ADMITTED, "12"),
        (MEASURED_AT, "1709550000"),
        (SEQUENCE, "3"),
    ];
    let mut row: HashMap<_, _> =
        numbers.into_iter().map(|(name, value)| (name.to_owned(), number(value))).collect();
    row.insert(KEY.to_owned(), text(&format!("load#{name}")));
    world.put(row).await;
}

#[tokio::test(start_paused = true)]
async fn gauges_are_refreshed_while_a_bucket_is_idle_and_until_the_guard_goes() {
    let listening = Listening::begin();
    let world = World::embedded().await;
    world.rate(RPM, 100, 1_000_000_000).await;
    world.slots(SLOTS, 5).await;
    put_load(&world, SLOTS, "3", "0.25").await;
    let (client, other) = (world.client(), world.client());
    let _ = take(&client, RPM).await;
    take(&client, SLOTS).await.release().await.unwrap();
    let tracker = client.reservations(ReservationConfig::default());
    tracker.store("request-7", RPM, take(&client, RPM).await).unwrap();
    let gauges = client.publish_gauges(Duration::from_secs(15));
    let again = client.publish_gauges(Duration::from_secs(1));
    for _ in 0..10 {
        let _ = take(&other, RPM).await;
    }
    listening.recorded();
    world.dynamo.meter().reset();
    tokio::time::sleep(Duration::from_secs(16)).await;
    let recorded = listening.recorded();
    let level = |name: &str| gauge(&recorded, "sluice.bucket.level", &[("dimension", name)]).unwrap();
    assert_eq!((level(RPM).floor(), level(SLOTS)), (88.0, 5.0), "what another process took");
    assert_eq!(gauge(&recorded, "sluice.load.pending", &[("dimension", SLOTS)]), Some(3.0));
    assert_eq!(gauge(&recorded, "sluice.load.drain_rate", &[("dimension", SLOTS)]), Some(0.25));
    assert_eq!(gauge(&recorded, "sluice.tracker.reservations", &[]), Some(1.0));
    let reads = world.dynamo.meter().reset();
    assert_eq!(reads.requests, 2, "now and 15 s later; two guards are one task");
    drop(gauges);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.dynamo.meter().reset().requests, 2, "the other guard keeps it");
    drop(again);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn the_gauges_task_ends_with_the_client() {
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let _gauges = client.publish_gauges(Duration::from_secs(1));
    drop(client);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.dynamo.meter().reset();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.dynamo.meter().reset().requests, 0);
}

/// Told as nothing once, and then no more: a gauge that stood still at what the bucket was would be taken for
/// what it is.
#[tokio::test(start_paused = true)]
async fn gauges_of_a_bucket_that_is_gone_do_not_stand_still() {
    let listening = Listening::begin();
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    world.slots(SLOTS, 5).await;
    put_load(&world, SLOTS, "3", "0.25").await;
    let (client, other) = (world.client(), world.client());
    let _ = take(&client, RPM).await;
    take(&client, SLOTS).await.release().await.unwrap();
    let _gauges = client.publish_gauges(Duration::from_secs(15));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Reading what was recorded sets the gauges of this recorder to zero, so nobody reads it before the
    // buckets are gone.
    let told = |recorded: &Recorded, name: &str| {
        ["sluice.bucket.level", "sluice.bucket.capacity", "sluice.load.pending", "sluice.load.drain_rate"]
            .map(|metric| gauge(recorded, metric, &[("dimension", name)]))
    };
    for name in [RPM, SLOTS] {
        assert!(other.ops().remove_bucket(&dimension(name)).await.unwrap());
    }
    put_load(&world, SLOTS, "3", "0.25").await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    let recorded = listening.recorded();
    assert_eq!(told(&recorded, SLOTS), [0.0; 4].map(Some), "its load row is there still");
    assert_eq!(told(&recorded, RPM), [Some(0.0), Some(0.0), None, None]);
    world.slots(SLOTS, 2).await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(
        told(&listening.recorded(), SLOTS),
        [2.0, 2.0, 3.0, 0.25].map(Some),
        "and one that was made anew is told anew"
    );
}

/// One that only sweeps has never read the bucket itself.
#[tokio::test(start_paused = true)]
async fn what_a_sweep_told_of_a_bucket_does_not_outlive_it_where_gauges_are_published() {
    let listening = Listening::begin();
    let world = World::embedded().await;
    world.slots(SLOTS, 5).await;
    let (sweeper, caller) = (world.client(), world.client());
    sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
    let _held = take(&caller, SLOTS).await;
    world.pass(Duration::from_secs(10));
    let told = sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(told.loads[&dimension(SLOTS)].pending().to_string(), "1");
    assert!(caller.ops().remove_bucket(&dimension(SLOTS)).await.unwrap());
    let _gauges = sweeper.publish_gauges(Duration::from_secs(15));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(gauge(&listening.recorded(), "sluice.load.pending", &[("dimension", SLOTS)]), Some(0.0));
}

/// As after a failure of the network, or without the right to read so.
#[tokio::test(start_paused = true)]
async fn gauges_tell_what_was_seen_last_where_the_rows_cannot_be_read() {
    let world = World::embedded().await;
    world.rate(RPM, 100, 1_000_000_000).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    world.dynamo.faults().draw(|call| {
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException","message":"no"}"#;
        let denied = || sluice_testkit::Fault::Answer { status: 400, body: body.into() };
        (call.operation == Operation::BatchGetItem).then(denied)
    });
    let listening = Listening::begin();
    let _gauges = client.publish_gauges(Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let level = gauge(&listening.recorded(), "sluice.bucket.level", &[("dimension", RPM)]).unwrap();
    assert_eq!(level.floor(), 99.0);
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_is_installed_late_hears_of_a_busy_bucket_a_second_later() {
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let listening = Listening::begin();
    let grants = |listening: &Listening| {
        counted(&listening.recorded(), "sluice.grants", &[("dimension", RPM), ("source", "table")])
    };
    let _ = take(&client, RPM).await;
    assert_eq!(grants(&listening), 0, "by handles of before");
    tokio::time::advance(Duration::from_secs(1)).await;
    let _ = take(&client, RPM).await;
    assert_eq!(grants(&listening), 1);
}
