//! Grants that a tracker holds between the start and the end of a call.

use std::time::Duration;

use sluice_core::Amount;
use sluice_ops::SweepOptions;
use sluice_sdk::reservations::{ReservationConfig, ReservationError, ReservationTracker};
use sluice_sdk::{Client, Released};
use sluice_testkit::{Fault, Operation};
use tokio::time::{sleep, timeout};

use crate::world::{LEASE_TTL, World, settle, take};

mod renewals;

const SLOTS: &str = "elevenlabs#concurrent";
const MAX_AGE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(5);

fn tracker(client: &Client, most: usize) -> ReservationTracker {
    let mut config = ReservationConfig::default();
    config.max_reservations = most;
    config.max_reservation_age = MAX_AGE;
    config.stale_cleanup_interval = INTERVAL;
    client.reservations(config)
}

/// Stores a new grant for each of these requests.
async fn hold(client: &Client, tracker: &ReservationTracker, requests: &[&str]) {
    for request in requests {
        tracker.store(request, SLOTS, take(client, SLOTS).await).unwrap();
    }
}

/// Until the background task must have found what is stale now, with a release behind it.
async fn a_cleaning() {
    sleep(INTERVAL + Duration::from_secs(1)).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_is_known_until_it_is_taken_and_released_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    let stored_at = world.dynamo.clock().now();
    let id = tracker.store("r", SLOTS, take(&client, SLOTS).await).unwrap();
    tracker.store("r", "my own name", take(&client, SLOTS).await).unwrap();
    assert_eq!((tracker.reservation_count(), tracker.request_count()), (2, 1));
    let known = tracker.get("r", SLOTS).unwrap();
    assert_eq!((known.id(), known.request(), known.bucket()), (id, "r", SLOTS));
    assert_eq!(known.estimated_tokens(), Some(Amount::from_tokens(1)));
    assert!(known.created_at() >= stored_at && known.created_at() <= world.dynamo.clock().now());
    assert_eq!(tracker.get("r", "my own name").unwrap().estimated_tokens(), None);
    let taken = tracker.take("r", SLOTS).unwrap();
    assert_eq!(taken.reservation, known);
    assert_eq!(taken.grant.release().await.unwrap(), Released::GivenBack);
    assert!(tracker.take("r", SLOTS).is_none() && tracker.get("r", SLOTS).is_none());
    assert_eq!(world.free(SLOTS).await, "1");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_gives_back_all_that_it_held() {
    let world = World::with_slots(SLOTS, 2).await;
    world.rate("openai#rpm", 10, 60).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["failed", "other"]).await;
    tracker.store("failed", "openai#rpm", take(&client, "openai#rpm").await).unwrap();
    let taken: Vec<_> =
        tracker.take_oldest("failed").into_iter().chain(tracker.take_request("failed")).collect();
    let buckets: Vec<&str> = taken.iter().map(|tracked| tracked.reservation.bucket()).collect();
    assert_eq!(buckets, [SLOTS, "openai#rpm"]);
    for tracked in taken {
        tracked.grant.release().await.unwrap();
    }
    assert_eq!((tracker.reservation_count(), tracker.request_count()), (1, 1));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_as_stale_is_back_in_the_table() {
    let world = World::with_slots(SLOTS, 3).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    tracker.start();
    hold(&client, &tracker, &["forgotten 1", "forgotten 2"]).await;
    world.pass(MAX_AGE / 2);
    hold(&client, &tracker, &["young"]).await;
    a_cleaning().await;
    assert_eq!((world.free(SLOTS).await.as_str(), tracker.reservation_count()), ("0", 3));
    world.pass(MAX_AGE / 2);
    a_cleaning().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 1));
    assert_eq!((tracker.reservation_count(), tracker.request_count()), (1, 1));
    let report = tracker.stale_report();
    assert_eq!((report.given_back, report.late, report.failed), (2, 0, 0));
    tracker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_take_after_the_stale_cleaning_finds_nothing() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["slow"]).await;
    world.pass(MAX_AGE + Duration::from_secs(1));
    assert!(tracker.get("slow", SLOTS).is_some(), "nobody looked yet");
    assert_eq!(tracker.release_stale().await.given_back, 1);
    assert!(tracker.take("slow", SLOTS).is_none() && tracker.take_request("slow").is_empty());
    assert_eq!(tracker.release_stale().await, sluice_sdk::reservations::StaleReport::default());
    assert_eq!(world.free(SLOTS).await, "1");
}

#[tokio::test(start_paused = true)]
async fn what_the_caller_takes_as_stale_is_left_to_it() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["r1", "r2"]).await;
    assert!(tracker.take_stale().is_empty());
    world.pass(MAX_AGE + Duration::from_secs(1));
    let mut stale = tracker.take_stored_before(tracker.get("r2", SLOTS).unwrap().created_at());
    stale.extend(tracker.take_stale());
    assert_eq!((stale.len(), tracker.reservation_count(), world.free(SLOTS).await.as_str()), (2, 0, "0"));
    for tracked in stale {
        assert_eq!(tracked.grant.release().await.unwrap(), Released::GivenBack);
    }
    assert_eq!(world.free(SLOTS).await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_full_tracker_hands_the_grant_back_and_loses_nothing() {
    let world = World::with_slots(SLOTS, 3).await;
    let client = world.client();
    let tracker = tracker(&client, 2);
    hold(&client, &tracker, &["r1", "r2"]).await;
    let refused = tracker.store("r3", SLOTS, take(&client, SLOTS).await).unwrap_err();
    assert!(matches!(refused, ReservationError::AtCapacity { capacity: 2, .. }), "{refused}");
    assert_eq!((world.free(SLOTS).await.as_str(), tracker.reservation_count()), ("0", 2));
    assert_eq!(refused.into_grant().release().await.unwrap(), Released::GivenBack);
    assert_eq!(world.free(SLOTS).await, "1");
}

#[tokio::test(start_paused = true)]
async fn a_full_tracker_gives_back_what_is_stale_before_it_refuses() {
    let world = World::with_slots(SLOTS, 3).await;
    let client = world.client();
    let tracker = tracker(&client, 2);
    hold(&client, &tracker, &["r1", "r2"]).await;
    world.pass(MAX_AGE + Duration::from_secs(1));
    hold(&client, &tracker, &["r3"]).await;
    settle().await;
    assert_eq!((tracker.reservation_count(), world.free(SLOTS).await.as_str()), (1, "2"));
    assert_eq!(tracker.stale_report().given_back, 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_keeps_its_grant_and_a_stale_one_gives_way() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["r"]).await;
    let first = tracker.get("r", SLOTS).unwrap();
    let refused = tracker.store("r", SLOTS, take(&client, SLOTS).await).unwrap_err();
    assert!(matches!(refused, ReservationError::Taken { .. }), "{refused}");
    assert_eq!(tracker.get("r", SLOTS).unwrap(), first);
    world.pass(MAX_AGE + Duration::from_secs(1));
    let second = tracker.store("r", SLOTS, refused.into_grant()).unwrap();
    settle().await;
    assert_eq!(tracker.get("r", SLOTS).unwrap().id(), second);
    assert_eq!((second > first.id(), world.free(SLOTS).await.as_str()), (true, "1"));
}

#[tokio::test(start_paused = true)]
async fn starting_and_stopping_twice_is_starting_and_stopping_once() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    tracker.stop().await;
    let before = alive_tasks();
    for _ in 0..3 {
        tracker.start();
        tracker.clone().start();
    }
    assert_eq!(alive_tasks(), before + 1);
    tokio::join!(tracker.stop(), tracker.stop());
    tracker.stop().await;
    assert_eq!(alive_tasks(), before);
    hold(&client, &tracker, &["r1"]).await;
    world.pass(MAX_AGE + Duration::from_secs(1));
    a_cleaning().await;
    assert_eq!((tracker.reservation_count(), world.free(SLOTS).await.as_str()), (1, "1"), "nobody cleans");
    tracker.start();
    a_cleaning().await;
    assert_eq!((tracker.reservation_count(), world.free(SLOTS).await.as_str()), (0, "2"));
    tracker.stop().await;
    assert_eq!(alive_tasks(), before);
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_releases_under_way_and_a_given_up_stop_leaves_them_to_the_next() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["r"]).await;
    world.pass(MAX_AGE + Duration::from_secs(1));
    tracker.start();
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::Delay(Duration::from_millis(500)));
    sleep(INTERVAL + Duration::from_millis(100)).await;
    assert_eq!(tracker.reservation_count(), 0, "the release is under way");
    assert!(timeout(Duration::from_millis(50), tracker.stop()).await.is_err());
    assert_eq!(tracker.stale_report().given_back, 0);
    tracker.start();
    tracker.stop().await;
    assert_eq!((tracker.stale_report().given_back, world.free(SLOTS).await.as_str()), (1, "1"));
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_tracker_holds_can_still_be_taken_and_a_dropped_one_gives_it_back() {
    let world = World::with_slots(SLOTS, 3).await;
    let client = world.client();
    let before = alive_tasks();
    let tracker = tracker(&client, 10);
    tracker.start();
    hold(&client, &tracker, &["r1", "r2", "r3"]).await;
    tracker.stop().await;
    tracker.take("r1", SLOTS).unwrap().grant.release().await.unwrap();
    tracker.start();
    let clone = tracker.clone();
    drop(tracker);
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), clone.reservation_count()), ("1", 2));
    drop(clone);
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("3", 0));
    // The task that renews leases ends when it looks and finds none.
    sleep(LEASE_TTL / 8).await;
    assert_eq!(alive_tasks(), before, "the task went with its tracker");
}

/// The caller was not dead, only slow: its lease ended, a sweep gave the slot to others, and then it comes
/// back.
#[tokio::test(start_paused = true)]
async fn a_late_release_after_an_orphan_was_reclaimed_restores_nothing() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["slow"]).await;
    world.pass_lease();
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
    let other = take(&world.client(), SLOTS).await;
    let late = tracker.take("slow", SLOTS).unwrap().grant.release().await.unwrap();
    assert_eq!((late, world.free(SLOTS).await.as_str()), (Released::LeaseGone, "0"));
    other.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

#[tokio::test(start_paused = true)]
async fn a_stale_grant_that_a_sweep_gave_back_before_is_counted_as_late() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["gone"]).await;
    world.pass_lease();
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
    let report = tracker.release_stale().await;
    assert_eq!((report.given_back, report.late, report.failed), (0, 1, 0));
    assert_eq!(world.free(SLOTS).await, "1");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_counted_and_the_sweep_gives_the_slot_back() {
    let world = World::with_slots(SLOTS, 1).await;
    let client = world.client();
    let tracker = tracker(&client, 10);
    hold(&client, &tracker, &["r"]).await;
    world.pass_lease();
    world.dynamo.faults().always(Operation::TransactWriteItems, Fault::LoseRequest);
    let report = tracker.release_stale().await;
    assert_eq!((report.given_back, report.late, report.failed), (0, 0, 1));
    assert_eq!((tracker.stale_report(), tracker.reservation_count()), (report, 0));
    world.dynamo.faults().clear();
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
    assert_eq!(world.free(SLOTS).await, "1");
}

#[tokio::test(start_paused = true)]
async fn the_heap_of_ages_compacts_itself_past_one_half_and_by_hand_at_any_time() {
    let world = World::embedded().await;
    world.slots(SLOTS, 200).await;
    let client = world.client();
    let tracker = tracker(&client, 1_000);
    let names: Vec<String> = (0..101).map(|n| format!("r{n}")).collect();
    hold(&client, &tracker, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(tracker.stale_entry_ratio().abs() < f64::EPSILON);
    names[..50].iter().for_each(|name| drop(tracker.take(name, SLOTS)));
    assert!((tracker.stale_entry_ratio() - 50.0 / 101.0).abs() < 1e-9, "{}", tracker.stale_entry_ratio());
    drop(tracker.take(&names[50], SLOTS));
    assert!(tracker.stale_entry_ratio().abs() < f64::EPSILON, "{}", tracker.stale_entry_ratio());
    drop(tracker.take(&names[51], SLOTS));
    assert_eq!(tracker.compact(), 1);
    assert!(tracker.stale_entry_ratio().abs() < f64::EPSILON);
    assert_eq!(tracker.reservation_count(), 49);
}
