//! What a sweep finds, restores and leaves.

use std::time::Duration;

use serde_json::json;
use sluice_core::{Amount, Cost, Limit};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::{Fault, Operation};

use super::KIND;
use crate::world::{World, dimension, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

async fn crash(world: &World, name: &str, holders: usize) {
    let client = world.client();
    for _ in 0..holders {
        std::mem::forget(take(&client, name).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lives_is_left_alone() {
    let world = KIND.with_slots(SLOTS, 5).await;
    crash(&world, SLOTS, 2).await;
    world.pass_lease();
    let _alive = take(&world.client(), SLOTS).await;
    let report = sweep(&world).await;
    assert_eq!((report.expired, report.restored, world.leases().await), (2, 2, 1));
    assert_eq!(world.free(SLOTS).await, "4");
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_as_ended_two_seconds_after_its_end() {
    let world = KIND.with_slots(SLOTS, 1).await;
    crash(&world, SLOTS, 1).await;
    world.pass(Duration::from_secs(62));
    assert_eq!(sweep(&world).await.expired, 0, "its holder's clock may lag");
    world.pass(Duration::from_secs(1));
    assert_eq!(sweep(&world).await.restored, 1);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_is_split_until_the_lease_that_is_too_much_is_found() {
    let world = KIND.with_slots(SLOTS, 8).await;
    crash(&world, SLOTS, 8).await;
    world.add_tokens(SLOTS, "1").await;
    world.pass_lease();
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.already_capped), (7, 1));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("8", 0));
}

/// Condition: `limit_type` on giving back.
#[tokio::test(start_paused = true)]
async fn a_slot_is_never_given_back_to_a_bucket_that_became_a_rate() {
    let world = KIND.with_slots(SLOTS, 5).await;
    crash(&world, SLOTS, 1).await;
    let held = take(&world.client(), SLOTS).await;
    world.client().ops().remove_bucket(&dimension(SLOTS)).await.unwrap();
    world.rate(SLOTS, 5, 100_000_000).await;
    for _ in 0..4 {
        let _ = take(&world.client(), SLOTS).await;
    }
    held.release().await.unwrap();
    world.pass_lease();
    sweep(&world).await;
    let level: f64 = world.level(SLOTS).await.parse().unwrap();
    assert!((level - 1.0).abs() < 0.01 && world.leases().await == 0, "{level}");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_stops_at_its_deadline_and_the_next_goes_on() {
    let world = KIND.with_slots(SLOTS, 190).await;
    crash(&world, SLOTS, 190).await;
    world.pass_lease();
    world.dynamo.faults().always(KIND.write(), Fault::Delay(Duration::from_millis(600)));
    let mut options = SweepOptions::default();
    options.budget = Some(Duration::from_millis(500));
    options.concurrency = 1;
    let report = world.client().ops().sweep(options).await.unwrap();
    assert!(report.deadline_hit && report.left > 0 && report.restored > 0, "{report:?}");
    assert_eq!(report.restored + report.left, 190);
    world.dynamo.faults().clear();
    assert_eq!(sweep(&world).await.restored, report.left);
    assert_eq!(world.free(SLOTS).await, "190");
}

#[tokio::test(start_paused = true)]
async fn a_scan_longer_than_the_budget_still_gives_back_what_it_found() {
    let world = KIND.with_slots(SLOTS, 60).await;
    crash(&world, SLOTS, 60).await;
    world.pass_lease();
    world.dynamo.faults().always(Operation::Scan, Fault::Delay(Duration::from_millis(900)));
    let mut options = SweepOptions::default();
    options.budget = Some(Duration::from_secs(3));
    let mut sweeps = 0;
    while world.free(SLOTS).await != "60" {
        let report = world.client().ops().sweep(options.clone()).await.unwrap();
        assert!(report.deadline_hit && report.segments_unscanned > 0, "{report:?}");
        sweeps += 1;
        assert!(sweeps < 50, "no tail starves");
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_sweep_leaves_what_it_cannot_do_and_says_so() {
    let world = KIND.with_slots(SLOTS, 3).await;
    crash(&world, SLOTS, 3).await;
    world.pass_lease();
    world.dynamo.faults().always(KIND.write(), Fault::throttled());
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.left, world.leases().await), (0, 3, 3));
    world.dynamo.faults().clear();
    world.dynamo.faults().always(Operation::Scan, Fault::throttled());
    let report = sweep(&world).await;
    assert_eq!((report.rows_scanned, report.segments_unscanned), (0, 16));
    world.dynamo.faults().clear();
    assert_eq!(sweep(&world).await.restored, 3);
}

#[tokio::test(start_paused = true)]
async fn a_resize_under_a_sweep_is_followed() {
    let world = KIND.with_slots(SLOTS, 4).await;
    crash(&world, SLOTS, 4).await;
    world.pass_lease();
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let sweeper = world.client();
    let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    let limit = Limit::concurrent(Amount::from_tokens(6), Cost::ONE).unwrap();
    world.client().ops().apply_limit(&dimension(SLOTS), &limit).await.unwrap();
    gate.open();
    assert_eq!(sweeping.await.unwrap().restored, 4);
    assert_eq!(world.free(SLOTS).await, "6");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_fails_ends_the_sweep_and_what_was_done_is_told() {
    let world = KIND.world().await;
    for at in 0..30 {
        let name = format!("vendor{at}#concurrent");
        world.slots(&name, 1).await;
        crash(&world, &name, 1).await;
    }
    world.pass_lease();
    world.dynamo.meter().reset();
    for _ in 0..8 {
        world.dynamo.faults().next(KIND.write(), Fault::Delay(Duration::from_millis(1)));
    }
    world.dynamo.faults().always(KIND.write(), Fault::service("InternalServerError", 500, json!({})));
    let error = world.client().ops().sweep(SweepOptions::default()).await.unwrap_err();
    assert!(error.source.is_unavailable(), "{error}");
    assert_eq!((error.report.restored, error.report.restored + error.report.left), (8, 30), "{error:?}");
    let sent = world.dynamo.meter().of(KIND.write()).requests;
    assert!(sent <= 8 + 4 * 4, "no bucket is begun after the first failure: {sent} writes");
}
