//! Recounts that meet other writers between their readings and their writes. Each test fails when the
//! condition that it names is taken out of the expression.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::{Gate, Operation};
use tokio::task::JoinHandle;

use crate::recount::{SLOTS, corrected, known_to_sweeps, leave_a_lease, sweep};
use crate::world::{World, dimension, number};

/// A sweep that has judged, and is about to write what it found.
pub(crate) async fn held_at_its_write(world: &World) -> (JoinHandle<SweepReport>, Gate) {
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let sweeper = world.client();
    let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    (sweeping, gate)
}

/// Condition: no note is there, on noting. The second of two sweeps side by side would overwrite the note of
/// the first, and with it the time that tells them apart.
#[tokio::test(start_paused = true)]
async fn two_sweeps_side_by_side_are_not_two_running() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-1").await;
    let (first, first_gate) = held_at_its_write(&world).await;
    world.pass(Duration::from_secs(1));
    let (second, second_gate) = held_at_its_write(&world).await;
    first_gate.open();
    assert!(first.await.unwrap().corrected.is_empty());
    let noted = world.row(SLOTS).await.unwrap()["drift_seen_at"].clone();
    second_gate.open();
    assert!(second.await.unwrap().corrected.is_empty());
    assert_eq!(world.row(SLOTS).await.unwrap()["drift_seen_at"], noted);
    assert_eq!(world.free(SLOTS).await, "4");
}

/// Condition: the note that was read, on forgetting it.
#[tokio::test(start_paused = true)]
async fn a_late_sweep_does_not_forget_a_newer_note() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "1").await;
    let (late, gate) = held_at_its_write(&world).await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    gate.open();
    late.await.unwrap();
    assert_eq!(world.row(SLOTS).await.unwrap()["drift"], number("1"));
}

/// Condition: the note that was read, on noting the opposite.
#[tokio::test(start_paused = true)]
async fn a_late_sweep_does_not_note_what_was_put_right() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "2").await;
    let (late, gate) = held_at_its_write(&world).await;
    sweep(&world).await;
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("-1"));
    gate.open();
    late.await.unwrap();
    assert!(!world.row(SLOTS).await.unwrap().contains_key("drift"));
}

/// Condition: capacity and room, on correcting.
#[tokio::test(start_paused = true)]
async fn a_correction_never_fills_a_bucket_beyond_its_capacity() {
    for change in ["resize", "refill"] {
        let world = known_to_sweeps(5).await;
        world.add_tokens(SLOTS, "-2").await;
        sweep(&world).await;
        let (sweeping, gate) = held_at_its_write(&world).await;
        if change == "resize" {
            let limit = Limit::concurrent(Amount::from_tokens(4), Cost::ONE).unwrap();
            world.client().ops().apply_limit(&dimension(SLOTS), &limit).await.unwrap();
        } else {
            world.add_tokens(SLOTS, "2").await;
        }
        gate.open();
        assert!(sweeping.await.unwrap().corrected.is_empty(), "{change}");
        assert_eq!(world.free(SLOTS).await, if change == "resize" { "2" } else { "5" });
    }
}

#[tokio::test(start_paused = true)]
async fn another_sweep_that_deletes_them_is_seen() {
    let world = known_to_sweeps(5).await;
    for _ in 0..2 {
        leave_a_lease(&world).await;
        let gate = world.dynamo.faults().hold_next(Operation::TransactWriteItems);
        let sweeper = world.client();
        let late = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
        gate.reached().await;
        world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        gate.open();
        let report = late.await.unwrap();
        assert_eq!((report.lost_races, report.drift.len()), (1, 0), "{report:?}");
    }
    assert_eq!(world.free(SLOTS).await, "5");
}

/// Condition: the bucket is a concurrency bucket, on counting a lease that is deleted alone.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_goes_while_a_lease_is_deleted_alone_is_not_made_anew() {
    let world = known_to_sweeps(5).await;
    leave_a_lease(&world).await;
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::TransactWriteItems));
    let sweeper = world.client();
    let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
    gates[0].reached().await;
    gates[0].open();
    gates[1].reached().await;
    world.client().ops().remove_bucket(&dimension(SLOTS)).await.unwrap();
    gates[1].open();
    let report = sweeping.await.unwrap();
    assert_eq!((report.restored, report.already_capped, world.leases().await), (1, 0, 0), "{report:?}");
    assert!(world.row(SLOTS).await.is_none());
}
