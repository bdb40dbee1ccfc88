//! Large tables: how often they are scanned, by all processes together.

use sluice_core::schema::HEAL_AFTER;
use sluice_core::{CLOCK_ERROR, LONGEST_HEAL_SPACING};

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_sdk::Grant;

use super::*;

/// Some 600 read units: three times what is spent on one sweep.
fn fill(world: &World) {
    let now = world.dynamo.clock().now();
    let filler = "x".repeat(400);
    let leases = (0..5_000).map(|at| {
        let id = LeaseId::new(format!("{at}")).unwrap();
        let ends = now.after(Duration::from_secs(86_400));
        Lease::new(dimension("some#rpm"), &id, Cost::ONE, now, ends, &filler).put()
    });
    world.dynamo.load(TABLE, leases).unwrap();
}

fn key() -> String {
    Load::key(&dimension(SLOTS))
}

#[tokio::test(start_paused = true)]
async fn a_large_table_is_scanned_less_often() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    fill(&world);
    let _held = take(&world.client(), SLOTS).await;
    let client = world.client();
    world.dynamo.meter().reset();
    let began = Instant::now();
    let mut sweeps = Vec::new();
    let mut known = 0;
    while began.elapsed() < HEAL_EVERY * 7 {
        refusal(&client, SLOTS).await;
        sleep(Duration::from_millis(500)).await;
        if scans(&world) > known {
            known = scans(&world);
            sweeps.push(began.elapsed().as_secs());
        }
    }
    let apart = sweeps.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart > 2 * HEAL_EVERY.as_secs(), "{sweeps:?}");
}

/// A fleet of processes that live for one call each: none of them knows what the table costs.
#[tokio::test(start_paused = true)]
async fn who_knows_nothing_of_a_large_table_keeps_to_what_another_learnt() {
    for lost in [false, true] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        fill(&world);
        let _held = take(&world.client(), SLOTS).await;
        if lost {
            // The mark's reply: it is found to be its own.
            world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
        }
        world.dynamo.meter().reset();
        let mut clients = vec![world.client()];
        refusal(&clients[0], SLOTS).await;
        sleep(Duration::from_secs(1)).await;
        let row = world.row(&key()).await.unwrap();
        let told = |name: &str| row[name].as_n().unwrap().parse::<Timestamp>().unwrap();
        let (from, until) = (told(HEALED_AT), told(HEAL_AFTER));
        assert!(until.since(from) >= HEAL_EVERY * 3, "{:?}", until.since(from));
        while world.dynamo.clock().now() < until.before(Duration::from_secs(1)) {
            let client = world.client();
            refusal(&client, SLOTS).await;
            clients.push(client);
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(scans(&world), SCANS_OF_A_HEAL, "replies lost: {lost}");
        // And no longer.
        while world.dynamo.clock().now() < until.after(Duration::from_secs(2)) {
            refusal(&clients[0], SLOTS).await;
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(scans(&world), 2 * SCANS_OF_A_HEAL, "replies lost: {lost}");
    }
}

/// What a clock that is far ahead wrote, or nobody can read, and what is past.
#[tokio::test(start_paused = true)]
async fn a_spacing_that_cannot_be_keeps_nobody_from_it() {
    for after in [text("soon"), number("9999999999"), number("1")] {
        let world = World::with_slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world.put([("vendor_dimension".into(), text(&key())), (HEAL_AFTER.into(), after)].into()).await;
        world.pass_lease();
        let client = world.client();
        refusal(&client, SLOTS).await;
        settle().await;
        assert_eq!(world.free(SLOTS).await, "1");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_spacing_by_a_clock_that_is_ahead_is_kept_to_and_no_longer() {
    for (micros, slots) in [(-1, "0"), (1, "1")] {
        let world = World::with_slots(SLOTS, 1).await;
        crash(&world, 1).await;
        world.pass_lease();
        let latest = world.dynamo.clock().now().after(LONGEST_HEAL_SPACING + CLOCK_ERROR * 2);
        let after = number(&Timestamp::from_micros(latest.micros() + micros).to_string());
        world.put([("vendor_dimension".into(), text(&key())), (HEAL_AFTER.into(), after)].into()).await;
        let client = world.client();
        refusal(&client, SLOTS).await;
        settle().await;
        assert_eq!(world.free(SLOTS).await, slots);
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_small_again_is_swept_as_any() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.put([("vendor_dimension".into(), text(&key())), (HEAL_AFTER.into(), number("1"))].into()).await;
    let client = world.client();
    refusal(&client, SLOTS).await;
    settle().await;
    assert!(!world.row(&key()).await.unwrap().contains_key(HEAL_AFTER));
}

/// A sweep that took longer than its time says nothing of another's.
#[tokio::test(start_paused = true)]
async fn what_a_sweep_cost_is_not_told_of_anothers_mark() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    fill(&world);
    let _held = take(&world.client(), SLOTS).await;
    let (slow, other) = (world.client(), world.client());
    let gate = world.dynamo.faults().hold_next(Operation::Scan);
    refusal(&slow, SLOTS).await;
    gate.reached().await;
    world.pass(HEAL_EVERY);
    refusal(&other, SLOTS).await;
    settle().await;
    let told = world.row(&key()).await.unwrap()[HEAL_AFTER].clone();
    gate.open();
    settle().await;
    assert_eq!(world.row(&key()).await.unwrap()[HEAL_AFTER], told);
}

/// Rows of some 40 KB, of which 26 are a page, and the leases of crashed holders among them, wherever they fall.
async fn crashed_in_a_large_table(rows: u32) -> World {
    let world = World::embedded().await;
    world.slots(SLOTS, 20).await;
    let now = world.dynamo.clock().now();
    let filler = "x".repeat(40_000);
    let leases = (0..rows).map(|at| {
        let id = LeaseId::new(format!("{at}")).unwrap();
        let ends = now.after(A_DAY);
        Lease::new(dimension("some#rpm"), &id, Cost::ONE, now, ends, &filler).put()
    });
    world.dynamo.load(TABLE, leases).unwrap();
    crash(&world, 20).await;
    world.pass_lease();
    world
}

const A_DAY: Duration = Duration::from_secs(86_400);

/// Takes all that is free, and keeps it.
async fn drain(client: &Client, held: &mut Vec<Grant>) {
    while let Outcome::Granted(grant) = client.acquire(SLOTS).await.unwrap() {
        held.push(grant);
    }
}

/// Thirteen pages for each of four parts, a second each: longer than the time between two sweeps of a small table.
#[tokio::test(start_paused = true)]
async fn a_large_table_is_read_to_its_end_and_by_one_process_at_a_time() {
    let world = crashed_in_a_large_table(1_300).await;
    world.dynamo.faults().always(Operation::Scan, Fault::Delay(Duration::from_millis(900)));
    let (client, other, mut held) = (world.client(), world.client(), Vec::new());
    world.dynamo.meter().reset();
    refusal(&client, SLOTS).await;
    for _ in 0..18 {
        sleep(Duration::from_secs(1)).await;
        drain(&other, &mut held).await;
    }
    assert_eq!(held.len(), 20);
    let scans = scans(&world);
    assert!(scans <= 60, "{scans}: 52 pages, and the last of each part");
}

/// Whatever cuts them off, here the throughput of the table: a sweep reads half of it.
#[tokio::test(start_paused = true)]
async fn sweeps_that_are_cut_off_read_another_part_each_time() {
    for is_new_each_time in [false, true] {
        let world = crashed_in_a_large_table(400).await;
        let pages = AtomicU64::new(0);
        world.dynamo.faults().draw(move |call| {
            // A mark.
            if call.operation == Operation::UpdateItem && call.body.windows(6).any(|part| part == b":never") {
                pages.store(0, Ordering::SeqCst);
            }
            // Side by side, as on a network.
            let read = (call.operation == Operation::Scan).then(|| pages.fetch_add(1, Ordering::SeqCst))?;
            Some(if read < 8 { Fault::Delay(Duration::from_millis(20)) } else { Fault::throttled() })
        });
        let patient = || world.client_with(|settings| settings.lease_ttl(A_DAY));
        let (mut clients, mut held) = (vec![patient()], Vec::new());
        // What is left is found with a chance of a quarter or more each time, so that some 10 times are enough.
        for _ in 0..60 {
            drain(clients.last().unwrap(), &mut held).await;
            if held.len() == 20 {
                break;
            }
            sleep(LONGEST_HEAL_SPACING).await;
            if is_new_each_time {
                clients.push(patient());
            }
        }
        assert_eq!(held.len(), 20, "new each time: {is_new_each_time}");
    }
}
