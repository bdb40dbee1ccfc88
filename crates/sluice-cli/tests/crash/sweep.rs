//! A sweep is killed in the middle: what it gave back is given back once, and the rest is the next one's.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use sluice_core::schema::TOKENS;
use sluice_core::{Amount, Bucket, Cost, Dimension, Lease, LeaseId, Limit, Operand, Put, Timestamp};
use sluice_sdk::Clock;
use sluice_testkit::EmbeddedDynamo;
use tokio::task::spawn_blocking;

use crate::program::{assert_no_faults, dice, kill, kills, sluice, sweep};
use crate::table::{self, Look};

/// Every so often a sweep runs to its end, so that the table does not grow beyond a page.
const UNDISTURBED: u32 = 5;

/// Buckets that a trial adds, each with so many leases that have ended: two transactions' worth.
const BUCKETS: i32 = 4;
const LEASES: i32 = 120;
const CAPACITY: i32 = 130;

/// The rows of one bucket of which callers that died an hour ago hold `LEASES` slots.
fn crashed(trial: u32, bucket: i32) -> Vec<Put> {
    let dimension = Dimension::new(&format!("vendor-{trial}#model-{bucket}#concurrent")).unwrap();
    let limit = Limit::concurrent(Amount::from_tokens(CAPACITY), Cost::ONE).unwrap();
    let then = Clock::system().now().before(Duration::from_secs(3_600));
    let mut row = Bucket::full(dimension.clone(), limit, then).create();
    let free = Amount::from_tokens(CAPACITY - LEASES).to_string();
    row.item
        .iter_mut()
        .filter(|(name, _)| *name == TOKENS)
        .for_each(|(_, tokens)| *tokens = Operand::Number(free.clone()));
    let lease = |n| {
        let id = LeaseId::new(format!("{n}")).unwrap();
        let ends: Timestamp = then.after(Duration::from_secs(60));
        Lease::new(dimension.clone(), &id, Cost::ONE, then, ends, "crashed").put()
    };
    (0..LEASES).map(lease).chain([row]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_is_killed_loses_and_mints_nothing() {
    let engine = EmbeddedDynamo::with_table(&table::name()).await.unwrap();
    let server = engine.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let (endpoint, dynamo) = (server.endpoint_url(), engine.dynamodb());
    let mut dice = dice("sweeps");
    let (mut killed, mut at_work, mut half_done, mut left) = (0, 0, 0, 0);
    let mut per_lease = Duration::ZERO;
    let trials = kills(130);
    for trial in 0..trials {
        // Buckets of their own: a request of the one that was killed may still be on its way to the others.
        let rows: Vec<Put> = (0..BUCKETS).flat_map(|bucket| crashed(trial, bucket)).collect();
        left += rows.len() - usize::try_from(BUCKETS).unwrap();
        engine.load(&table::name(), rows).unwrap();
        let endpoint = endpoint.clone();
        if trial % UNDISTURBED == 0 {
            per_lease = finish(&engine, &endpoint).await / u32::try_from(left).unwrap();
        } else {
            let after = (per_lease * u32::try_from(left).unwrap()).mul_f64(dice.f64());
            let killing = spawn_blocking(move || {
                let sweeper = sluice(&endpoint, &["reconcile", "--once"]).spawn().unwrap();
                kill(sweeper, after)
            });
            at_work += u32::from(killing.await.unwrap());
            killed += 1;
        }
        let look = Look::at(&dynamo).await;
        look.assert_no_slot_is_lost_or_minted();
        half_done += u32::from((1..left).contains(&look.leases.len()));
        left = look.leases.len();
    }
    finish(&engine, &endpoint).await;
    println!("sweeps: {killed} killed, {at_work} at work, {half_done} half done; a lease took {per_lease:?}");
    // Else the trial shows nothing.
    assert!(at_work * 2 > killed && half_done * 8 > killed, "too few were at work");
}

/// Two sweeps run to their end: the table is whole. Then its buckets are removed. Returns how long the first
/// took.
async fn finish(engine: &EmbeddedDynamo, endpoint: &str) -> Duration {
    let endpoint = endpoint.to_owned();
    let began = Instant::now();
    let first = spawn_blocking({
        let endpoint = endpoint.clone();
        move || sweep(&endpoint)
    });
    let first = first.await.unwrap();
    let whole = began.elapsed();
    let look = Look::at(&engine.dynamodb()).await;
    look.assert_whole();
    let second = spawn_blocking(move || sweep(&endpoint)).await.unwrap();
    assert_eq!(second["expired"], 0, "one sweep that ends finds all");
    assert_eq!(second["recounted"], look.buckets.len());
    [first, second].iter().for_each(assert_no_faults);
    let client = engine.client(&table::name());
    for name in look.buckets.keys() {
        client.ops().remove_bucket(&Dimension::new(name).unwrap()).await.unwrap();
    }
    whole
}
