//! A process that a full bucket refuses gives back what crashed holders had, without a reconciler.

use std::time::Duration;

use sluice_core::schema::{HEAL_KEY, HEALED_AT, REFUSED};
use sluice_core::{Amount, Cost, HEAL_EVERY, Lease, LeaseId, Load, Timestamp};
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, Leases, LimitError, Outcome};
use sluice_testkit::{Fault, Operation};
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{TABLE, World, begin, dimension, number, refusal, settle, take, text};

mod after_an_outage;
mod budget;
mod crowd;
mod denied;
mod finish;
mod large;
mod mark;
mod pages;
mod together;
mod waits;

const SLOTS: &str = "elevenlabs#concurrent";

/// The promise: a crashed holder's slot is back so soon after it was taken.
const BACK_WITHIN: Duration = Duration::from_secs(60 + 15);

async fn crash(world: &World, holders: usize) {
    let client = world.client();
    for _ in 0..holders {
        std::mem::forget(take(&client, SLOTS).await);
    }
}

/// Asks every half second until it is granted; how long that took.
async fn polled_until_granted(client: &Client) -> Duration {
    let began = Instant::now();
    loop {
        match client.acquire(SLOTS).await.unwrap() {
            Outcome::Granted(grant) => {
                grant.release().await.unwrap();
                return began.elapsed();
            }
            Outcome::RetryIn(_) => sleep(Duration::from_millis(500)).await,
        }
        assert!(began.elapsed() < 2 * BACK_WITHIN, "never granted");
    }
}

fn scans(world: &World) -> u64 {
    world.dynamo.meter().of(Operation::Scan).requests
}

/// Requests of one scan of a small table.
const SCANS_OF_A_HEAL: u64 = 1;

#[tokio::test(start_paused = true)]
async fn a_crashed_holders_slot_is_back_in_time_for_those_who_ask_again() {
    // Whenever it is taken, and whenever asking begins: the spacing of the sweeps may fall anywhere.
    for (early, late) in [(0, 0), (700, 3_300), (50, 6_100), (990, 47_000)] {
        let world = World::with_slots(SLOTS, 1).await;
        sleep(Duration::from_millis(early)).await;
        let crashed_at = Instant::now();
        crash(&world, 1).await;
        sleep(Duration::from_millis(late)).await;
        polled_until_granted(&world.client()).await;
        assert!(crashed_at.elapsed() <= BACK_WITHIN, "{early}, {late}: {:?}", crashed_at.elapsed());
        settle().await;
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holders_slot_is_back_in_time_for_those_who_wait_in_line() {
    for kind in [Kind::Rows, Kind::Inline] {
        // Another process's lease, with a row of its own, under callers of either kind.
        let world = World::with_slots(SLOTS, 1).await.with(kind);
        let crashed_at = Instant::now();
        let other = world.client_with(|settings| settings.leases(Leases::Concurrent));
        std::mem::forget(take(&other, SLOTS).await);
        let client = world.client();
        client
            .slot(SLOTS)
            .timeout(Duration::from_secs(100))
            .run(async |_| Ok::<_, LimitError>(()))
            .await
            .unwrap();
        assert!(crashed_at.elapsed() <= BACK_WITHIN, "{kind:?}: {:?}", crashed_at.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_two_seconds_keep_nobody_waiting_for_longer() {
    for (one, other) in [(0, 2_000_000), (2_000_000, 0), (-1_000_000, 1_000_000)] {
        let world = World::with_slots(SLOTS, 1).await;
        let crashed_at = Instant::now();
        crash(&world, 1).await;
        let (one, other) = (world.client_off_by(one), world.client_off_by(other));
        // Both want it, and which of them marks is as their clocks have it.
        let beside = tokio::spawn(async move { polled_until_granted(&other).await });
        polled_until_granted(&one).await;
        beside.await.unwrap();
        assert!(crashed_at.elapsed() <= BACK_WITHIN, "{:?}", crashed_at.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_was_told_to_come_back_later_finds_the_slot_free() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    let client = world.client();
    sleep(Duration::from_secs(62)).await;
    // Refused before the lease has ended for every clock: its process sweeps again while the caller waits,
    // though nobody asks.
    let wait = refusal(&client, SLOTS).await.wait();
    sleep(wait + HEAL_EVERY).await;
    world.dynamo.meter().reset();
    assert!(client.acquire(SLOTS).await.unwrap().granted().is_some());
    assert_eq!(scans(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn one_process_of_the_fleet_sweeps_at_a_time_and_none_within_the_spacing() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let _held = take(&world.client(), SLOTS).await;
    world.dynamo.meter().reset();
    let fleet: Vec<Client> = (0..8).map(|_| world.client()).collect();
    let spacings = 5;
    let began = Instant::now();
    while began.elapsed() < HEAL_EVERY * spacings - Duration::from_secs(1) {
        for client in &fleet {
            refusal(client, SLOTS).await;
        }
        sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(scans(&world), SCANS_OF_A_HEAL * u64::from(spacings));
    // And the row tells how many were refused.
    let load = world.row(&Load::key(&dimension(SLOTS))).await.unwrap();
    let refused: u64 = load[REFUSED].as_n().unwrap().parse().unwrap();
    assert!(refused > 100, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn leases_that_live_are_left_alone() {
    let world = World::with_slots(SLOTS, 2).await;
    world.slots("other#concurrent", 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    let client = world.client();
    let (held, other) = (take(&client, SLOTS).await, take(&client, "other#concurrent").await);
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.free("other#concurrent").await.as_str()), ("1", "0"));
    assert_eq!(world.leases().await, 2);
    held.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(world.free(SLOTS).await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_heal_beside_a_late_release_and_beside_a_sweep_gives_each_slot_back_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let (late, _crashed) =
        (take(&client, SLOTS).await, std::mem::ManuallyDrop::new(take(&client, SLOTS).await));
    world.pass_lease();
    let gate = world.dynamo.faults().hold_next(Operation::Scan);
    refusal(&client, SLOTS).await;
    gate.reached().await;
    late.release().await.unwrap();
    let swept = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(swept.restored, 1);
    gate.open();
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
}

#[tokio::test(start_paused = true)]
async fn a_heal_that_found_leases_before_a_sweep_took_them_restores_nothing_twice() {
    let world = World::with_slots(SLOTS, 3).await;
    crash(&world, 3).await;
    world.pass_lease();
    let gate = world.dynamo.faults().hold_next(Operation::TransactWriteItems);
    // A bucket that was never met is read, and sends no transaction to be refused.
    let client = world.client();
    refusal(&client, SLOTS).await;
    gate.reached().await;
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 3);
    let held = take(&world.client(), SLOTS).await;
    gate.open();
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn inline_leases_and_lease_rows_of_one_bucket_both_come_back() {
    let world = World::with_slots(SLOTS, 2).await;
    crash(&world, 1).await;
    let inline = world.client_with(|settings| settings.leases(Leases::Inline));
    std::mem::forget(take(&inline, SLOTS).await);
    world.pass_lease();
    let client = world.client();
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_whose_slots_are_all_held_inline_is_not_scanned_for() {
    let world = World::embedded().await.with(Kind::Inline);
    world.slots(SLOTS, 2).await;
    let client = world.client();
    let _held = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.dynamo.meter().reset();
    refusal(&client, SLOTS).await;
    settle().await;
    assert!(world.row(&Load::key(&dimension(SLOTS))).await.is_some());
    assert_eq!(scans(&world), 0);
}

/// Nothing can be added to it, and no sweep replaces it: nobody would sweep the bucket any more.
#[tokio::test(start_paused = true)]
async fn a_count_of_refusals_that_is_none_keeps_nobody_from_it() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    let key = Load::key(&dimension(SLOTS));
    world.put([("vendor_dimension".into(), text(&key)), (REFUSED.into(), text("many"))].into()).await;
    world.pass_lease();
    let client = world.client();
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!(world.free(SLOTS).await, "1");
    assert_eq!(world.row(&key).await.unwrap()[REFUSED], number("1"));
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_sends_nothing() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    let client = world.client_with(|settings| settings.self_heal(false));
    refusal(&client, SLOTS).await;
    sleep(HEAL_EVERY).await;
    refusal(&client, SLOTS).await;
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 1));
    assert!(world.row(&Load::key(&dimension(SLOTS))).await.is_none());
    assert!(world.row(HEAL_KEY).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_table_that_does_not_answer_the_heal_refuses_as_before_and_is_tried_again() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    let client = world.client();
    world.dynamo.faults().always(Operation::Scan, Fault::LoseRequest);
    let began = Instant::now();
    refusal(&client, SLOTS).await;
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    sleep(HEAL_EVERY).await;
    world.dynamo.faults().clear();
    assert!(polled_until_granted(&client).await <= HEAL_EVERY + Duration::from_secs(1));
}

/// Two buckets that are full: a caller of both is refused by one, and either is healed.
#[tokio::test(start_paused = true)]
async fn of_several_full_buckets_each_is_healed() {
    let world = World::with_slots(SLOTS, 1).await;
    world.slots("other#concurrent", 1).await;
    let client = world.client();
    std::mem::forget(client.acquire([SLOTS, "other#concurrent"]).await.unwrap().granted().unwrap());
    world.pass_lease();
    assert!(client.acquire([SLOTS, "other#concurrent"]).await.unwrap().granted().is_none());
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.free("other#concurrent").await.as_str()), ("1", "1"));
}
