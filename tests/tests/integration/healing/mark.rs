//! The mark of the table: whatever becomes of it, one process scans at a time, and none is kept from it for
//! ever.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{HEAL_AFTER, HEAL_POSITION};
use sluice_core::{CLOCK_ERROR, LONGEST_HEAL_SPACING};
use sluice_testkit::{Call, Faults};

use super::*;

pub(super) fn is_mark(call: Call<'_>) -> bool {
    call.operation == Operation::UpdateItem && call.body.windows(6).any(|part| part == b":never")
}

async fn spoilt(name: &str, value: AttributeValue) -> World {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.put([("vendor_dimension".into(), text(HEAL_KEY)), (name.into(), value)].into()).await;
    world.pass_lease();
    world
}

/// What a clock that is far ahead wrote, what nobody can read, and what is long past.
#[tokio::test(start_paused = true)]
async fn a_spoiled_mark_keeps_nobody_from_healing() {
    let long = "x".repeat(3_000);
    for name in [HEALED_AT, HEAL_AFTER, HEAL_POSITION] {
        let values =
            [text("soon"), text(&long), number("9999999999"), number("1"), AttributeValue::Bool(true)];
        for value in values {
            let world = spoilt(name, value.clone()).await;
            let client = world.client();
            // A position that is a text may be right: then the scan begins after it, and the next at the
            // start of the table.
            for _ in 0..2 {
                refusal_or_grant(&client).await;
                sleep(HEAL_EVERY + Duration::from_secs(1)).await;
            }
            assert_eq!(world.free(SLOTS).await, "1", "{name} was {value:?}");
        }
    }
}

async fn refusal_or_grant(client: &Client) {
    if let Outcome::Granted(grant) = client.acquire(SLOTS).await.unwrap() {
        grant.release().await.unwrap();
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
        world.put([("vendor_dimension".into(), text(HEAL_KEY)), (HEAL_AFTER.into(), after)].into()).await;
        let client = world.client();
        refusal(&client, SLOTS).await;
        settle().await;
        assert_eq!(world.free(SLOTS).await, slots);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_whose_reply_was_lost_is_known_for_its_own() {
    let world = World::with_slots(SLOTS, 1).await;
    crash(&world, 1).await;
    world.pass_lease();
    let lost = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&lost);
    world
        .dynamo
        .faults()
        .draw(move |call| (is_mark(call) && !once.swap(true, Ordering::SeqCst)).then_some(Fault::LoseReply));
    let client = world.client();
    refusal(&client, SLOTS).await;
    sleep(Duration::from_secs(1)).await;
    assert!(lost.load(Ordering::SeqCst));
    assert_eq!(world.free(SLOTS).await, "1");
}

/// Each takes the other's mark for 2 s older or younger than it is: two scans may be 6 s apart, the next two
/// 10 s, and never less on the average.
#[tokio::test(start_paused = true)]
async fn processes_whose_clocks_are_two_seconds_apart_never_scan_twice_within_the_spacing() {
    for (one, other) in [(0, 2_000_000), (2_000_000, 0), (-1_000_000, 1_000_000)] {
        let world = World::embedded().await;
        world.slots(SLOTS, 1).await;
        let patient = world.client_with(|settings| settings.lease_ttl(Duration::from_secs(3_600)));
        let _held = take(&patient, SLOTS).await;
        let clients = [world.client_off_by(one), world.client_off_by(other)];
        let (began, mut known, mut scanned) = (Instant::now(), 0, Vec::new());
        world.dynamo.meter().reset();
        while began.elapsed() < HEAL_EVERY * 20 {
            for client in &clients {
                refusal(client, SLOTS).await;
            }
            sleep(Duration::from_millis(250)).await;
            let now = scans(&world);
            assert!(now <= known + 1, "two at once");
            scanned.extend((now > known).then(|| began.elapsed()));
            known = now;
        }
        let apart = scanned.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert!(apart + Duration::from_millis(500) > HEAL_EVERY - Duration::from_secs(2), "{scanned:?}");
        assert!((15..=21).contains(&known), "{known} scans in 20 times the spacing");
    }
}

/// Both mark at one instant. One loses its request, sends it again, and finds the mark of the other.
#[tokio::test(start_paused = true)]
async fn of_two_processes_that_mark_in_the_same_microsecond_one_has_the_turn() {
    let world = World::embedded().await;
    world.slots(SLOTS, 1).await;
    let _held = take(&world.client(), SLOTS).await;
    let (winner, faults, is_marked) = (world.client(), Faults::default(), Arc::new(AtomicBool::new(false)));
    let lost = Arc::new(Mutex::new(None));
    let (is_late, noted) = (Arc::clone(&is_marked), Arc::clone(&lost));
    faults.draw(move |call| {
        let is_lost = is_mark(call) && !is_late.load(Ordering::SeqCst);
        is_lost.then(|| {
            *noted.lock().unwrap() = Some(instant_of(call));
            Fault::LoseRequest
        })
    });
    let clock = world.dynamo.clock().off_by(0);
    let (scans_of_loser, counted) = (Arc::new(AtomicU64::new(0)), faults.clone());
    let scanned = Arc::clone(&scans_of_loser);
    counted.watch(move |answered| {
        scanned.fetch_add(u64::from(answered.call.operation == Operation::Scan), Ordering::SeqCst);
    });
    let loser = world.dynamo.apart(faults);
    let loser = loser.client_with(Client::builder(TABLE).clock(clock).leases(Leases::Concurrent));
    refusal(&loser, SLOTS).await;
    // No time passes while this task is ready.
    while lost.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    refusal(&winner, SLOTS).await;
    while scans(&world) == 0 {
        tokio::task::yield_now().await;
    }
    is_marked.store(true, Ordering::SeqCst);
    let instant = world.row(HEAL_KEY).await.unwrap()[HEALED_AT].as_n().unwrap().clone();
    assert_eq!(Some(instant), *lost.lock().unwrap(), "both marked at one instant");
    sleep(Duration::from_secs(2)).await;
    assert_eq!((scans(&world), scans_of_loser.load(Ordering::SeqCst)), (1, 0));
}

fn instant_of(call: Call<'_>) -> String {
    let request: serde_json::Value = serde_json::from_slice(call.body).unwrap();
    request["ExpressionAttributeValues"][":now"]["N"].as_str().unwrap().to_owned()
}
