//! The recount: slots that were lost or minted in a way that nobody foresaw come right, and a busy bucket is
//! left alone.

use std::time::Duration;

use sluice_core::schema::KEY;
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::{Fault, Operation};

use crate::kind::Kind;
use crate::world::{World, dimension, number, take, text};

pub(crate) const SLOTS: &str = "elevenlabs#concurrent";

pub(crate) async fn sweep(world: &World) -> SweepReport {
    world.pass(Duration::from_secs(300));
    world.client().ops().sweep(SweepOptions::default()).await.unwrap()
}

/// With a bucket that a sweep has met, so that the next one recounts it.
pub(crate) async fn known_to_sweeps(slots: i32) -> World {
    known_to_sweeps_of(Kind::Rows, slots).await
}

/// As above, with leases of this kind.
pub(crate) async fn known_to_sweeps_of(kind: Kind, slots: i32) -> World {
    let world = kind.with_slots(SLOTS, slots).await;
    assert_eq!(sweep(&world).await.recounted, 0, "the first sweep learns that it is there");
    world
}

pub(crate) fn drift(report: &SweepReport) -> Option<String> {
    report.drift.get(&dimension(SLOTS)).map(ToString::to_string)
}

pub(crate) fn corrected(report: &SweepReport) -> Option<String> {
    report.corrected.get(&dimension(SLOTS)).map(ToString::to_string)
}

/// A write of a client that keeps `version` and knows nothing of what Sluice counts.
async fn write_as_another_client(world: &World, tokens: &str) {
    let request = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(SLOTS));
    let request = request.update_expression("SET tokens = tokens + :step, version = version + :1");
    let request = request.expression_attribute_values(":step", number(tokens));
    request.expression_attribute_values(":1", number("1")).send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drift_that_the_next_sweep_does_not_find_is_forgotten() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-1").await;
    assert_eq!(drift(&sweep(&world).await).as_deref(), Some("1"));
    world.add_tokens(SLOTS, "1").await;
    assert_eq!(drift(&sweep(&world).await), None);
    world.add_tokens(SLOTS, "-1").await;
    let again = sweep(&world).await;
    assert_eq!((drift(&again).as_deref(), corrected(&again)), (Some("1"), None), "it takes two running");
}

#[tokio::test(start_paused = true)]
async fn only_what_both_sweeps_found_is_corrected() {
    let world = known_to_sweeps(9).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "-3").await;
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("1"));
    sweep(&world).await;
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("3"));
    assert_eq!(world.free(SLOTS).await, "9");
}

/// Found by the simulation (seeds 701970, 1001063 and 2001952): the correction asked that what was left fits
/// below the capacity. That never came true, and every sweep made the same attempt.
#[tokio::test(start_paused = true)]
async fn slots_that_are_minted_after_the_first_sweep_are_taken_away_too() {
    let world = known_to_sweeps(8).await;
    world.add_tokens(SLOTS, "1").await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "1").await;
    let second = sweep(&world).await;
    assert_eq!((drift(&second).as_deref(), corrected(&second).as_deref()), (Some("-2"), Some("-1")));
    assert_eq!(world.free(SLOTS).await, "9");
    assert_eq!(corrected(&sweep(&world).await), None, "one sweep alone proves nothing");
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("-1"));
    assert_eq!(world.free(SLOTS).await, "8");
}

#[tokio::test(start_paused = true)]
async fn the_opposite_of_what_was_noted_is_noted_anew() {
    let world = known_to_sweeps(9).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    world.add_tokens(SLOTS, "2").await;
    assert_eq!(corrected(&sweep(&world).await), None);
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("-1"));
    assert_eq!(world.free(SLOTS).await, "9");
}

/// Without `counted`, this would pass for a lost slot: one holder went and another came, uncounted, so T is
/// as before, and the lease that the scan sees is younger than the first reading.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_a_client_writes_which_does_not_count_is_left_alone() {
    let world = known_to_sweeps(5).await;
    let held = take(&world.client(), SLOTS).await;
    for _ in 0..2 {
        let key = world.client().ops().leases().await.unwrap().remove(0).key;
        let mut lease = world.row(&key).await.unwrap();
        let gate = world.dynamo.faults().hold_next(Operation::Scan);
        let sweeper = world.client();
        let mut options = SweepOptions::default();
        options.segments = 1;
        let sweeping = tokio::spawn(async move { sweeper.ops().sweep(options).await.unwrap() });
        gate.reached().await;
        write_as_another_client(&world, "1").await;
        world.delete(&key).await;
        world.pass(Duration::from_secs(5));
        write_as_another_client(&world, "-1").await;
        lease.insert(KEY.into(), text(&format!("{key}x")));
        lease.insert("created_at".into(), number(&world.dynamo.clock().now().to_string()));
        world.put(lease).await;
        gate.open();
        let report = sweeping.await.unwrap();
        assert_eq!((report.recounted, report.drift.len()), (0, 0), "{report:?}");
    }
    assert_eq!(
        world.client().ops().sweep(SweepOptions::default()).await.unwrap().recounted,
        1,
        "quiet, it is counted"
    );
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_did_not_see_every_lease_says_nothing_of_drift() {
    let world = known_to_sweeps(5).await;
    let _held = take(&world.client(), SLOTS).await;
    world.dynamo.faults().always(Operation::Scan, Fault::throttled());
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.recounted, report.drift.len(), report.segments_unscanned), (0, 0, 16));
    world.dynamo.faults().clear();
    world.dynamo.faults().always(Operation::Scan, Fault::Delay(Duration::from_millis(900)));
    let mut options = SweepOptions::default();
    options.budget = Some(Duration::from_secs(2));
    let report = world.client().ops().sweep(options).await.unwrap();
    assert!(report.deadline_hit && report.segments_unscanned > 0 && report.recounted == 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_keeps_its_bucket_from_being_judged() {
    let world = known_to_sweeps(5).await;
    world.slots("other#concurrent", 2).await;
    sweep(&world).await;
    let client = world.client();
    let (_held, _other) = (take(&client, SLOTS).await, take(&client, "other#concurrent").await);
    let keys = world.client().ops().leases().await.unwrap().into_iter().map(|row| row.key);
    let key = keys.into_iter().find(|key| key.contains(SLOTS)).unwrap();
    let mut row = world.row(&key).await.unwrap();
    row.insert("cost".into(), text("one"));
    row.remove("ttl");
    world.put(row.clone()).await;
    for name in [text(SLOTS), number("7")] {
        row.insert("dimension".into(), name);
        world.put(row.clone()).await;
        let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!((report.unparsable, report.recounted, report.drift.len()), (1, 1, 0), "{report:?}");
    }
}

/// Found by the simulation (seed 25): the scan left it out, since it names no bucket and has not ended.
#[tokio::test(start_paused = true)]
async fn a_lease_that_names_no_bucket_is_not_missed_in_the_one_that_its_key_names() {
    let world = known_to_sweeps(5).await;
    let _held = take(&world.client(), SLOTS).await;
    let key = world.client().ops().leases().await.unwrap().remove(0).key;
    let mut row = world.row(&key).await.unwrap();
    row.insert("dimension".into(), text("NaN"));
    world.put(row).await;
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.unparsable, report.recounted, report.drift.len()), (1, 0, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn many_buckets_are_recounted_alike() {
    let world = World::new().await;
    for at in 0..130 {
        world.slots(&format!("vendor{at}#concurrent"), 3).await;
        let _ = std::mem::ManuallyDrop::new(take(&world.client(), &format!("vendor{at}#concurrent")).await);
    }
    world.rate("openai#rpm", 10, 60).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    world.dynamo.meter().reset();
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.recounted, report.drift.len(), report.expired), (130, 0, 0), "{report:?}");
    // The buckets and their load rows before the scan, the buckets again after it.
    assert_eq!(world.dynamo.meter().of(Operation::BatchGetItem).requests, 3 + 2);
    assert_eq!(report.requests, world.dynamo.meter().total().requests);
}

/// A directory that someone broke is written anew.
#[tokio::test(start_paused = true)]
async fn the_directory_heals() {
    let world = known_to_sweeps(5).await;
    let broken = [(KEY.to_owned(), text("load#directory")), ("buckets".to_owned(), number("5"))];
    world.put(broken.into_iter().collect()).await;
    assert_eq!(sweep(&world).await.recounted, 0);
    assert_eq!(sweep(&world).await.recounted, 1);
}

/// A lease that lives, and names its bucket in its key alone, is counted all the same.
#[tokio::test(start_paused = true)]
async fn a_lease_without_its_dimension_is_recounted() {
    let world = World::with_slots(SLOTS, 4).await;
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let _held = take(&world.client(), SLOTS).await;
    let key = world.client().ops().leases().await.unwrap().remove(0).key;
    let mut row = world.row(&key).await.unwrap();
    row.remove("dimension");
    world.put(row).await;
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.recounted, report.drift.len()), (1, 0), "{report:?}");
}

/// An ended lease of a client that gave the slot back and left the row.
pub(crate) async fn leave_a_lease(world: &World) {
    std::mem::forget(take(&world.client(), SLOTS).await);
    world.add_tokens(SLOTS, "1").await;
    world.pass_lease();
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_deleted_alone_never_cost_a_slot() {
    let world = known_to_sweeps(5).await;
    for _ in 0..4 {
        leave_a_lease(&world).await;
        let report = sweep(&world).await;
        assert_eq!((report.already_capped, report.drift.len()), (1, 0), "{report:?}");
        assert_eq!(world.free(SLOTS).await, "5");
    }
}

/// The first SDK's reconciler restores without touching `version`.
#[tokio::test(start_paused = true)]
async fn a_restore_that_keeps_no_version_is_no_lost_slot() {
    let world = known_to_sweeps(5).await;
    for _ in 0..2 {
        let _other = take(&world.client(), SLOTS).await;
        std::mem::forget(take(&world.client(), SLOTS).await);
        let keys: Vec<String> =
            world.client().ops().leases().await.unwrap().into_iter().map(|row| row.key).collect();
        let gate = world.dynamo.faults().hold_next(Operation::Scan);
        let sweeper = world.client();
        let mut options = SweepOptions::default();
        options.segments = 1;
        let sweeping = tokio::spawn(async move { sweeper.ops().sweep(options).await.unwrap() });
        gate.reached().await;
        world.delete(&keys[1]).await;
        world.add_tokens(SLOTS, "1").await;
        gate.open();
        let report = sweeping.await.unwrap();
        assert_eq!((report.recounted, report.drift.len()), (0, 0), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_of_long_ago_confirms_nothing() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-1").await;
    sweep(&world).await;
    world.pass(Duration::from_secs(2 * 60 * 60));
    assert_eq!(corrected(&sweep(&world).await), None);
    assert_eq!(corrected(&sweep(&world).await).as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn the_noise_of_floats_is_no_drift() {
    let world = known_to_sweeps(5).await;
    world.add_tokens(SLOTS, "-0.0000000001").await;
    assert_eq!(drift(&sweep(&world).await), None);
}

#[tokio::test(start_paused = true)]
async fn a_hot_bucket_keeps_no_other_from_being_put_right() {
    let world = known_to_sweeps(5).await;
    world.slots("a#concurrent", 5).await;
    sweep(&world).await;
    for name in ["a#concurrent", SLOTS] {
        world.add_tokens(name, "-1").await;
    }
    let report = sweep(&world).await;
    assert_eq!(report.drift.len(), 2, "{report:?}");
    for _ in 0..4 {
        world.dynamo.faults().next(Operation::UpdateItem, Fault::conflict());
    }
    let report = sweep(&world).await;
    assert_eq!((report.corrected.len(), corrected(&report).as_deref()), (1, Some("1")), "{report:?}");
}
