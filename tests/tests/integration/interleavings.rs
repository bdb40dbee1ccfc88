//! Two parties change the same slot. Whatever the order, it ends as if one had. Each test fails when the
//! condition that it names is taken out of the expression.

use std::time::Duration;

use sluice_core::{Amount, Cost, Limit};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::Operation;

use crate::world::{LEASE_TTL, World, dimension, take};

const SLOTS: &str = "elevenlabs#concurrent";

async fn sweep(world: &World) -> SweepReport {
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

/// The table's TTL is on `purge_at`: on `ttl`, the only trace of the slot would be gone before a sweep saw
/// it.
#[tokio::test(start_paused = true)]
async fn a_ttl_sweep_of_dynamodb_at_any_point_loses_no_slot() {
    for point in 0..4 {
        let world = World::embedded().await;
        world.slots(SLOTS, 2).await;
        let held = take(&world.client(), SLOTS).await;
        let ttl_sweep = |at| {
            if at == point {
                assert_eq!(world.dynamo.sweep_ttl().unwrap(), 0, "at point {point}");
            }
        };
        ttl_sweep(0);
        std::mem::forget(held);
        world.pass(LEASE_TTL);
        ttl_sweep(1);
        world.pass(Duration::from_secs(6 * 24 * 60 * 60));
        ttl_sweep(2);
        assert_eq!(sweep(&world).await.restored, 1, "at point {point}");
        ttl_sweep(3);
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
    }
}

/// As above, between the scan and the reclaim; and after seven days, when the row goes, the sweep restores
/// nothing for it.
#[tokio::test(start_paused = true)]
async fn a_ttl_sweep_of_dynamodb_between_scan_and_reclaim_changes_nothing() {
    for (since_end, deleted, restored) in
        [(Duration::from_secs(10), 0, 1), (Duration::from_secs(8 * 24 * 60 * 60), 1, 0)]
    {
        let world = World::embedded().await;
        world.slots(SLOTS, 2).await;
        std::mem::forget(take(&world.client(), SLOTS).await);
        world.pass(LEASE_TTL + since_end);
        let gate = world.dynamo.faults().hold_next(Operation::TransactWriteItems);
        let sweeper = world.client();
        let sweeping =
            tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
        gate.reached().await;
        assert_eq!(world.dynamo.sweep_ttl().unwrap(), deleted);
        gate.open();
        let report = sweeping.await.unwrap();
        assert_eq!((report.restored, report.lost_races), (restored, 1 - restored));
    }
}

/// Condition: `#capacity = :read_capacity` on the resize.
#[tokio::test(start_paused = true)]
async fn two_resizes_from_one_reading_change_the_slots_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::UpdateItem));
    let resizes = [0, 1].map(|_| {
        let client = world.client();
        let limit = Limit::concurrent(Amount::from_tokens(5), Cost::ONE).unwrap();
        tokio::spawn(async move { client.ops().apply_limit(&dimension(SLOTS), &limit).await.unwrap() })
    });
    for gate in &gates {
        gate.reached().await;
    }
    gates.iter().for_each(sluice_testkit::Gate::open);
    for resize in resizes {
        resize.await.unwrap();
    }
    assert_eq!(world.free(SLOTS).await, "5");
}

/// Condition: `T <= C - x` on *spend*. Between the reading and the write others gave tokens back, and the
/// line stands above the capacity: without the bound the call would be paid from what has overflowed.
#[tokio::test(start_paused = true)]
async fn a_spend_is_not_paid_from_above_the_brim() {
    let world = World::with_rate("openai#rpm", 10, 100_000_000).await;
    let client = world.client();
    let _ = take(&client, "openai#rpm").await;
    world.add_tokens("openai#rpm", "5").await;
    let _ = take(&client, "openai#rpm").await;
    assert_eq!(world.level("openai#rpm").await, "9");
}

/// A clock that lags must not move the anchor of a bucket above its brim back, and gain what flows in
/// between.
#[tokio::test(start_paused = true)]
async fn an_anchor_never_moves_back() {
    let world = World::with_rate("openai#rpm", 10, 10).await;
    world.add_tokens("openai#rpm", "5").await;
    let lagging = world.client_off_by(-2_000_000);
    let _ = take(&lagging, "openai#rpm").await;
    assert_eq!(world.level("openai#rpm").await, "9");
}

/// Three processes whose readings are old meet a bucket that was idle: one full write, and spends on what it
/// left.
#[tokio::test(start_paused = true)]
async fn an_idle_bucket_pays_out_its_capacity_and_no_more() {
    let world = World::with_rate("openai#rpm", 10, 60).await;
    let clients = [world.client(), world.client(), world.client()];
    for client in &clients {
        let _ = take(client, "openai#rpm").await;
    }
    world.pass(Duration::from_secs(50));
    let _ = take(&clients[0], "openai#rpm").await;
    world.pass(Duration::from_secs(50));
    let mut granted = 0;
    for _ in 0..10 {
        for client in &clients {
            granted += usize::from(client.acquire("openai#rpm").await.unwrap().granted().is_some());
        }
    }
    assert_eq!(granted, 10);
}
