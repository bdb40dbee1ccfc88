//! What a sweep finds, restores and leaves.

use std::time::Duration;

use sluice_core::schema::TOKENS;
use sluice_core::{Amount, Bucket, Cost, Lease, LeaseId, Limit, Operand, Put};
use sluice_ops::{SweepOptions, SweepReport};
use sluice_testkit::{Fault, Operation};

use crate::world::{World, dimension, take, text};

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
async fn leases_of_a_bucket_come_back_in_one_transaction() {
    let world = World::with_slots(SLOTS, 99).await;
    crash(&world, SLOTS, 99).await;
    world.pass_lease();
    world.dynamo.meter().reset();
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.dimensions.len(), report.left), (99, 1, 0));
    assert_eq!(world.dynamo.meter().of(Operation::TransactWriteItems).requests, 1);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("99", 0));
    assert_eq!(sweep(&world).await.restored, 0);
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_bucket_that_is_gone_are_deleted() {
    let world = World::with_slots(SLOTS, 3).await;
    crash(&world, SLOTS, 3).await;
    world.client().ops().remove_bucket(&dimension(SLOTS)).await.unwrap();
    world.pass_lease();
    assert_eq!(sweep(&world).await.restored, 3);
    assert_eq!(world.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_are_counted_and_left_alone() {
    let world = World::with_slots(SLOTS, 2).await;
    crash(&world, SLOTS, 2).await;
    let keys: Vec<String> =
        world.client().ops().leases().await.unwrap().into_iter().map(|row| row.key).collect();
    let mut without_end = world.row(&keys[0]).await.unwrap();
    without_end.remove("ttl");
    world.put(without_end).await;
    let mut text_end = world.row(&keys[1]).await.unwrap();
    text_end.insert("ttl".into(), text("soon"));
    world.put(text_end).await;
    world.pass_lease();
    let report = sweep(&world).await;
    assert_eq!((report.unparsable, report.restored, world.leases().await), (2, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_cannot_be_read_fails_its_leases_and_no_others() {
    let world = World::with_slots(SLOTS, 2).await;
    world.slots("other#concurrent", 1).await;
    crash(&world, SLOTS, 2).await;
    crash(&world, "other#concurrent", 1).await;
    let mut row = world.row(SLOTS).await.unwrap();
    row.insert("capacity".into(), text("many"));
    world.put(row).await;
    world.pass_lease();
    let report = sweep(&world).await;
    assert_eq!((report.refused, report.restored, world.leases().await), (2, 1, 2));
}

/// Nobody has to hold a lease for a sweep to find the buckets, and no sweep has to know them.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_cannot_be_read_is_counted_and_named() {
    let world = World::with_slots(SLOTS, 2).await;
    world.rate("openai#rpm", 10, 60).await;
    world.rate("openai#tpm", 10, 60).await;
    for name in [SLOTS, "openai#rpm"] {
        let mut row = world.row(name).await.unwrap();
        row.insert("capacity".into(), text("many"));
        world.put(row).await;
    }
    for _ in 0..2 {
        let report = sweep(&world).await;
        assert_eq!((report.unreadable_buckets, report.unparsable, report.refused), (2, 0, 0));
        let named: Vec<_> =
            report.unreadable.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
        let fault = "attribute \"capacity\" is not a number (N)";
        assert_eq!(named, [format!("{SLOTS}: {fault}"), format!("openai#rpm: {fault}")]);
    }
    let row = world.row("openai#rpm").await.unwrap();
    assert_eq!(row["capacity"], text("many"), "a sweep changes no such bucket");
}

#[tokio::test(start_paused = true)]
async fn the_names_of_unreadable_buckets_are_bounded() {
    let world = World::with_slots(SLOTS, 2).await;
    for at in 0..25 {
        let name = format!("vendor{at}#rpm");
        world.rate(&name, 10, 60).await;
        let mut row = world.row(&name).await.unwrap();
        row.remove("version");
        world.put(row).await;
    }
    let report = sweep(&world).await;
    assert_eq!((report.unreadable_buckets, report.unreadable.len()), (25, 20));
}

/// What is in the table beside buckets is none, and a bucket with everything that callers write is readable.
#[tokio::test(start_paused = true)]
async fn a_healthy_table_has_no_unreadable_bucket() {
    let world = World::with_slots(SLOTS, 2).await;
    world.rate("openai#rpm", 1, 60).await;
    let client = world.client();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    crash(&world, SLOTS, 1).await;
    crash(&world, "openai#rpm", 1).await;
    client.cool_down(&dimension("openai#rpm"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(sweep(&world).await.unreadable_buckets, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_dynamodb_never_accepts_keeps_no_other() {
    let world = World::with_slots(SLOTS, 4).await;
    crash(&world, SLOTS, 4).await;
    world.pass_lease();
    world.dynamo.faults().next(
        Operation::TransactWriteItems,
        Fault::cancelled(&["None", "None", "None", "ValidationError", "None"]),
    );
    world
        .dynamo
        .faults()
        .next(Operation::TransactWriteItems, Fault::cancelled(&["None", "ValidationError", "None"]));
    world.dynamo.faults().next(Operation::TransactWriteItems, Fault::cancelled(&["ValidationError", "None"]));
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.refused, world.leases().await), (3, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_of_a_table_that_does_not_answer_is_an_error() {
    let world = World::with_slots(SLOTS, 1).await;
    world.dynamo.faults().always(Operation::Scan, Fault::LoseRequest);
    assert!(world.client().ops().sweep(SweepOptions::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn more_buckets_than_fill_transactions_are_all_given_back_to() {
    let world = World::embedded().await;
    let now = world.dynamo.clock().now();
    let limit = Limit::concurrent(Amount::from_tokens(52), Cost::ONE).unwrap();
    let names: Vec<_> = (0..500).map(|at| dimension(&format!("vendor{at}#concurrent"))).collect();
    let held = |mut row: Put| {
        row.item
            .iter_mut()
            .filter(|(name, _)| *name == TOKENS)
            .for_each(|(_, value)| *value = Operand::Number("0".into()));
        row
    };
    let buckets = names.iter().map(|name| held(Bucket::full(name.clone(), limit, now).create()));
    let leases = (0..26_000).map(|at| {
        let id = LeaseId::new(at.to_string()).unwrap();
        Lease::new(names[at % 500].clone(), &id, Cost::ONE, now, now.after(Duration::from_secs(60)), "test")
            .put()
    });
    assert_eq!(world.dynamo.load(crate::world::TABLE, buckets.chain(leases)).unwrap(), 26_500);
    world.pass_lease();
    let report = sweep(&world).await;
    assert_eq!((report.restored, report.dimensions.len(), report.left), (26_000, 500, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_found_before_the_scan_failed_is_given_back() {
    let world = World::with_slots(SLOTS, 40).await;
    crash(&world, SLOTS, 40).await;
    world.pass_lease();
    let mut options = SweepOptions::default();
    options.concurrency = 1;
    for _ in 0..8 {
        world.dynamo.faults().next(Operation::Scan, Fault::Delay(Duration::from_millis(1)));
    }
    world.dynamo.faults().always(Operation::Scan, Fault::LoseRequest);
    let error = world.client().ops().sweep(options).await.unwrap_err();
    assert!(error.report.restored > 0 && error.report.restored == error.report.expired, "{error:?}");
    assert_eq!(error.report.segments_unscanned, 8);
}
