//! The recount, while slots are held: what was lost or minted comes right, and a busy bucket is left alone.

use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_testkit::{Fault, Operation};

use super::KIND;
use crate::recount::{SLOTS, corrected, drift, known_to_sweeps_of, sweep};
use crate::recount_races::held_at_its_write;
use crate::world::{dimension, take, text};

#[tokio::test(start_paused = true)]
async fn a_lost_slot_is_given_back_when_two_sweeps_running_miss_it() {
    let world = known_to_sweeps_of(KIND, 5).await;
    let held = take(&world.client(), SLOTS).await;
    world.add_tokens(SLOTS, "-2").await;
    let first = sweep(&world).await;
    // The lease has ended by now; its slot comes back too, and blurs nothing.
    assert_eq!((first.recounted, drift(&first).as_deref(), corrected(&first)), (1, Some("2"), None));
    assert_eq!(world.free(SLOTS).await, "3");
    let second = sweep(&world).await;
    assert_eq!((drift(&second).as_deref(), corrected(&second).as_deref()), (Some("2"), Some("2")));
    assert_eq!(world.free(SLOTS).await, "5");
    let third = sweep(&world).await;
    assert_eq!((third.recounted, drift(&third)), (1, None));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_minted_slot_is_taken_away_even_while_all_are_held() {
    let world = known_to_sweeps_of(KIND, 2).await;
    world.add_tokens(SLOTS, "1").await;
    for report in [None, Some("-1")] {
        world.pass(Duration::from_secs(300));
        let swept = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!((drift(&swept).as_deref(), corrected(&swept).as_deref()), (Some("-1"), report));
    }
    assert_eq!(world.free(SLOTS).await, "2");
    let client = world.client();
    world.add_tokens(SLOTS, "1").await;
    for _ in 0..3 {
        std::mem::forget(take(&client, SLOTS).await);
    }
    for _ in 0..2 {
        world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    }
    assert_eq!(world.free(SLOTS).await, "-1", "three hold what two may");
}

#[tokio::test(start_paused = true)]
async fn a_busy_bucket_does_not_seem_to_leak() {
    let world = known_to_sweeps_of(KIND, 20).await;
    for _ in 0..5 {
        let gates = [0, 1].map(|_| world.dynamo.faults().hold_next(Operation::Scan));
        let client = world.client();
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(take(&client, SLOTS).await);
        }
        let sweeper = world.client();
        let sweeping = tokio::spawn(async move { sweeper.ops().sweep(SweepOptions::default()).await.unwrap() });
        gates[0].reached().await;
        held.pop().unwrap().release().await.unwrap();
        held.push(take(&client, SLOTS).await);
        gates[0].open();
        gates[1].reached().await;
        for grant in held.drain(..4) {
            grant.release().await.unwrap();
        }
        gates[1].open();
        let report = sweeping.await.unwrap();
        assert_eq!((report.recounted, report.drift.len()), (1, 0), "{report:?}");
        for grant in held {
            grant.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_that_cannot_be_read_keeps_nobody_out() {
    let world = known_to_sweeps_of(KIND, 5).await;
    for (name, value) in [("drift", text("two")), ("drift_seen_at", text("noon"))] {
        let mut row = world.row(SLOTS).await.unwrap();
        row.insert(name.into(), value);
        world.put(row).await;
        take(&world.client(), SLOTS).await.release().await.unwrap();
    }
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("1"), "it is noted over");
}

/// Condition: the note that was read, on correcting.
#[tokio::test(start_paused = true)]
async fn two_sweeps_that_agree_correct_once() {
    let world = known_to_sweeps_of(KIND, 5).await;
    let _held = [take(&world.client(), SLOTS).await, take(&world.client(), SLOTS).await];
    world.add_tokens(SLOTS, "-1").await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let (first, second) = (held_at_its_write(&world).await, held_at_its_write(&world).await);
    let mut corrections = 0;
    for (sweeping, gate) in [first, second] {
        gate.open();
        corrections += sweeping.await.unwrap().corrected.len();
    }
    assert_eq!((corrections, world.free(SLOTS).await.as_str()), (1, "3"));
}

/// Conditions: version and kind, on noting.
#[tokio::test(start_paused = true)]
async fn nothing_is_noted_in_a_bucket_that_was_made_anew() {
    for kind in ["slots", "rate"] {
        let world = known_to_sweeps_of(KIND, 5).await;
        world.add_tokens(SLOTS, "-1").await;
        // So that the old version is above that of the new bucket, for slots; and below it, for a rate.
        if kind == "slots" {
            take(&world.client(), SLOTS).await.release().await.unwrap();
        }
        let (sweeping, gate) = held_at_its_write(&world).await;
        world.client().ops().remove_bucket(&dimension(SLOTS)).await.unwrap();
        if kind == "slots" {
            world.slots(SLOTS, 5).await
        } else {
            world.rate(SLOTS, 5, 60).await
        }
        gate.open();
        assert_eq!(drift(&sweeping.await.unwrap()).as_deref(), Some("1"));
        assert!(!world.row(SLOTS).await.unwrap().contains_key("drift"), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_correction_whose_reply_is_lost_is_made_once() {
    let world = known_to_sweeps_of(KIND, 5).await;
    let _held = [take(&world.client(), SLOTS).await, take(&world.client(), SLOTS).await];
    world.add_tokens(SLOTS, "-1").await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!(world.free(SLOTS).await, "3");
}
