//! A bucket that requires a later protocol: this version leaves it alone, and says so.

use sluice_core::schema::{PROTOCOL, PROTOCOL_VERSION};
use sluice_core::{Amount, Cost, DeclaredShare, Limit, Split};
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, Outcome, Request};

use crate::world::{World, dimension, number, take};

const SLOTS: &str = "elevenlabs#concurrent";
const SEARCH: &str = "elevenlabs#concurrent@search";
const RPM: &str = "openai#rpm";

async fn require_later(world: &World, name: &str) {
    let later = PROTOCOL_VERSION + 1;
    assert!(world.client().ops().require_protocol(&dimension(name), later).await.unwrap());
}

async fn refuses(client: &Client, name: &str) -> String {
    client.acquire(name).await.unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn an_acquire_says_that_the_program_is_too_old() {
    let world = World::with_slots(SLOTS, 2).await;
    world.rate(RPM, 10, 60).await;
    for name in [SLOTS, RPM] {
        require_later(&world, name).await;
        let error = refuses(&world.client(), name).await;
        assert!(
            error.contains("this version of Sluice knows 1") && error.contains("update this program"),
            "{error}"
        );
        assert!(!error.contains("rm"), "nobody is told to remove the bucket: {error}");
    }
}

/// Replies show the row: of a rate each reply, of slots the read after a refusal.
#[tokio::test(start_paused = true)]
async fn a_client_that_runs_learns_of_it_when_it_next_sees_the_row() {
    let world = World::with_slots(SLOTS, 3).await;
    world.rate(RPM, 10, 60).await;
    let client = world.client();
    for (name, most) in [(RPM, 1), (SLOTS, 3)] {
        std::mem::forget(take(&client, name).await);
        require_later(&world, name).await;
        let mut answers = 0;
        let error = loop {
            match client.acquire(name).await {
                Ok(Outcome::Granted(grant)) => std::mem::forget(grant),
                Ok(Outcome::RetryIn(retry)) => world.pass(retry.wait()),
                Err(error) => break error,
            }
            answers += 1;
            assert!(answers <= most, "{name}");
        };
        assert!(error.to_string().contains("update this program"), "{name}: {error}");
    }
}

/// What leases hold may not be what this version takes it for.
#[tokio::test(start_paused = true)]
async fn no_sweep_and_no_healing_gives_back_slots_of_a_later_protocol() {
    let world = World::with_slots(SLOTS, 2).await;
    let client = world.client();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    for _ in 0..2 {
        std::mem::forget(take(&client, SLOTS).await);
    }
    world.add_tokens(SLOTS, "-1").await;
    require_later(&world, SLOTS).await;
    let before = world.row(SLOTS).await;
    world.pass_lease();
    for _ in 0..3 {
        let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
        assert_eq!((report.restored, report.unreadable_buckets, report.recounted), (0, 1, 0));
        assert!(report.unreadable[&dimension(SLOTS)].to_string().contains("protocol"));
    }
    assert_eq!((world.row(SLOTS).await, world.leases().await), (before, 2));
}

/// Each share of slots has a row of its own, which sweeps read by itself.
#[tokio::test(start_paused = true)]
async fn the_rows_of_shares_require_what_their_bucket_does() {
    let world = World::with_slots(SLOTS, 10).await;
    let client = world.client();
    // Before there are shares, and again of those that are there.
    assert!(client.ops().require_protocol(&dimension(SLOTS), PROTOCOL_VERSION).await.unwrap());
    let limit = Limit::concurrent(Amount::from_tokens(10), Cost::ONE).unwrap();
    let search = DeclaredShare {
        name: "search".parse().unwrap(),
        part: "0.5".parse().unwrap(),
        floor: None,
        background: false,
    };
    client.ops().apply_split(&dimension(SLOTS), &Split::new(limit, &[search]).unwrap()).await.unwrap();
    assert_eq!(world.row(SEARCH).await.unwrap()[PROTOCOL], number(&PROTOCOL_VERSION.to_string()));
    std::mem::forget(take(&client, Request::from(SLOTS).share("search")).await);
    require_later(&world, SLOTS).await;
    let before = world.row(SEARCH).await;
    world.pass_lease();
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.restored, report.unreadable_buckets), (0, 2));
    assert_eq!(world.row(SEARCH).await, before);
}

#[tokio::test(start_paused = true)]
async fn what_a_bucket_requires_is_never_lowered() {
    let world = World::with_rate(RPM, 10, 60).await;
    let (ops, name) = (world.client().ops(), dimension(RPM));
    assert!(ops.require_protocol(&name, 1).await.unwrap());
    assert!(!ops.require_protocol(&name, 1).await.unwrap());
    std::mem::forget(take(&world.client(), RPM).await);
    assert!(ops.require_protocol(&name, 2).await.unwrap());
    assert!(!ops.require_protocol(&name, 1).await.unwrap());
    assert_eq!(world.row(RPM).await.unwrap()["protocol"], number("2"));
    assert!(ops.require_protocol(&dimension("openai#tpm"), 1).await.is_err(), "no such bucket");
}
