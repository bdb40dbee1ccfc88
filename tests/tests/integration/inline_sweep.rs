//! What a sweep does to inline leases: it finds those that have ended, gives their slots back, and leaves the
//! rest alone.

use std::time::Duration;

use sluice_core::MOST_CHANGES;
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::{Fault, Operation};

use crate::inline_leases::{held, lease, put, renew};
use crate::recount::{corrected, drift, known_to_sweeps};
use crate::world::{World, dimension, number, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn inline_leases_come_back_in_one_write() {
    let world = World::with_slots(SLOTS, 5).await;
    lease(&world, &["a", "b"], -60).await;
    lease(&world, &["alive"], 60).await;
    world.dynamo.meter().reset();
    let report = sweep(&world).await;
    let restored = report.dimensions[&dimension(SLOTS)];
    assert_eq!((report.expired, report.restored, report.restored_slots, report.left), (2, 2, 2, 0));
    assert_eq!((restored.leases, restored.slots, report.lost_races), (2, 2, 0));
    // The directory, and the sweep's own line.
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 1 + 2);
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await), ("4", vec!["alive".to_owned()]));
    assert_eq!(sweep(&world).await.restored, 0);
}

#[tokio::test(start_paused = true)]
async fn an_inline_lease_counts_as_ended_two_seconds_after_its_end() {
    let world = World::with_slots(SLOTS, 1).await;
    lease(&world, &["a"], 60).await;
    world.pass(Duration::from_secs(62));
    assert_eq!(sweep(&world).await.expired, 0, "its holder's clock may lag");
    world.pass(Duration::from_secs(1));
    assert_eq!(sweep(&world).await.restored, 1);
}

#[tokio::test(start_paused = true)]
async fn leases_of_both_kinds_come_back_in_one_sweep() {
    let world = World::with_slots(SLOTS, 5).await;
    lease(&world, &["a", "b"], 60).await;
    for _ in 0..3 {
        std::mem::forget(take(&world.client(), SLOTS).await);
    }
    world.pass_lease();
    let report = sweep(&world).await;
    assert_eq!((report.expired, report.restored, report.dimensions[&dimension(SLOTS)].slots), (5, 5, 5));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("5", 0));
}

#[tokio::test(start_paused = true)]
async fn more_than_one_write_may_carry_comes_back_in_several() {
    let world = World::with_slots(SLOTS, 100).await;
    let ids: Vec<String> = (0..MOST_CHANGES + 6).map(|n| n.to_string()).collect();
    lease(&world, &ids.iter().map(String::as_str).collect::<Vec<_>>(), -60).await;
    world.dynamo.meter().reset();
    assert_eq!(sweep(&world).await.restored, MOST_CHANGES + 6);
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 2 + 2);
    assert_eq!(world.free(SLOTS).await, "100");
}

#[tokio::test(start_paused = true)]
async fn an_inline_lease_that_cannot_be_read_is_counted_and_left_alone() {
    let world = World::with_slots(SLOTS, 3).await;
    lease(&world, &["a"], -60).await;
    put(&world, "spoiled", number("1")).await;
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.unparsable), (1, 1));
    let listed = world.client().ops().leases().await.unwrap();
    assert_eq!((listed.len(), listed[0].lease.is_err()), (1, true));
    assert_eq!(sweep(&world).await.recounted, 0, "nothing can be said of its slots");
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_is_removed_without_its_slots() {
    let world = World::with_slots(SLOTS, 2).await;
    lease(&world, &["a", "b"], -60).await;
    world.add_tokens(SLOTS, "1").await;
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.already_capped), (1, 1));
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await.len()), ("2", 0));
}

/// The condition of each lease, `#leases.#id.#ends = :read_ends`.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_under_the_sweep_is_kept_and_the_others_come_back() {
    let world = World::with_slots(SLOTS, 3).await;
    lease(&world, &["a", "b"], -60).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let client = world.client();
    let sweeping = tokio::spawn(async move { client.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    renew(&world, "b", world.dynamo.clock().now().after(Duration::from_secs(60))).await;
    gate.open();
    let report = sweeping.await.unwrap();
    assert_eq!((report.expired, report.restored, report.lost_races), (2, 1, 1));
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await), ("2", vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn two_sweeps_give_an_inline_lease_back_once() {
    let world = World::with_slots(SLOTS, 3).await;
    lease(&world, &["a", "b"], -60).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let client = world.client();
    let late = tokio::spawn(async move { client.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    assert_eq!(sweep(&world).await.restored, 2);
    lease(&world, &["c"], 60).await;
    gate.open();
    let late = late.await.unwrap();
    assert_eq!((late.restored, late.lost_races), (0, 2));
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await), ("2", vec!["c".to_owned()]));
}

/// The second try finds the leases gone.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_gives_inline_leases_back_once() {
    let world = World::with_slots(SLOTS, 3).await;
    lease(&world, &["a"], -60).await;
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    let report = sweep(&world).await;
    assert_eq!((report.restored + report.lost_races, report.left), (1, 0));
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await.len()), ("3", 0));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_goes_away_under_the_sweep_is_no_error() {
    let world = World::with_slots(SLOTS, 3).await;
    lease(&world, &["a"], -60).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let client = world.client();
    let sweeping = tokio::spawn(async move { client.ops().sweep(SweepOptions::default()).await.unwrap() });
    gate.reached().await;
    world.delete(SLOTS).await;
    gate.open();
    let report = sweeping.await.unwrap();
    assert_eq!((report.restored, report.lost_races, world.row(SLOTS).await), (0, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_bucket_is_left_to_the_next_sweep() {
    let world = known_to_sweeps(3).await;
    lease(&world, &["a"], -60).await;
    world.dynamo.faults().always(Operation::UpdateItem, Fault::throttled());
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.left), (0, 1));
    world.dynamo.faults().clear();
    assert_eq!((sweep(&world).await.restored, world.free(SLOTS).await.as_str()), (1, "3"));
}

/// They are in the row itself, so that the scan is no matter: whatever is taken and given back while it runs.
#[tokio::test(start_paused = true)]
async fn a_recount_of_inline_leases_is_exact_while_they_come_and_go() {
    let world = known_to_sweeps(6).await;
    world.add_tokens(SLOTS, "-1").await;
    lease(&world, &["a", "b"], -60).await;
    for (round, ids) in [["c", "d"], ["e", "f"]].iter().enumerate() {
        let gate = world.dynamo.faults().hold_next(Operation::Scan);
        let client = world.client();
        let sweeping =
            tokio::spawn(async move { client.ops().sweep(SweepOptions::default()).await.unwrap() });
        gate.reached().await;
        lease(&world, &ids[..], -60).await;
        gate.open();
        let report = sweeping.await.unwrap();
        let expected = (round == 1).then_some("1");
        assert_eq!((report.recounted, drift(&report).as_deref()), (1, Some("1")), "{report:?}");
        assert_eq!(corrected(&report).as_deref(), expected);
        world.pass(Duration::from_secs(300));
    }
    let last = sweep(&world).await;
    assert_eq!((drift(&last), held(&world).await.len(), world.free(SLOTS).await.as_str()), (None, 0, "6"));
}
