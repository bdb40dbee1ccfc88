//! What a process remembers of buckets is bounded, and what it forgets costs a read.

use std::time::Duration;

use sluice_sdk::{AcquireError, Client, Released};
use sluice_testkit::Operation;

use crate::world::{World, dimension, take};

const RPM: &str = "openai#rpm";

fn reads(world: &World) -> u64 {
    world.dynamo.meter().of(Operation::GetItem).requests
}

async fn is_unknown(client: &Client, name: &str) -> bool {
    matches!(client.acquire(name).await, Err(AcquireError::UnknownDimension { .. }))
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_costs_a_read_a_second() {
    let world = World::embedded().await;
    let client = world.client();
    for _ in 0..3 {
        let before = reads(&world);
        for _ in 0..100 {
            assert!(is_unknown(&client, RPM).await);
            assert!(client.slot(RPM).run(async |_| Ok::<_, ()>(())).await.is_err());
        }
        assert_eq!(reads(&world) - before, 1);
        world.pass(Duration::from_millis(1_001));
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_of_an_unknown_name_read_it_once() {
    let world = World::embedded().await.distant();
    let client = world.client();
    let callers = (0..50).map(|_| is_unknown(&client, RPM));
    assert!(futures_util::future::join_all(callers).await.into_iter().all(|is_unknown| is_unknown));
    assert_eq!(reads(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_this_process_makes_is_known_at_once_and_anothers_after_a_second() {
    let world = World::embedded().await;
    let (here, elsewhere) = (world.client(), world.client());
    assert!(is_unknown(&here, RPM).await && is_unknown(&elsewhere, RPM).await);
    here.apply_limit(&dimension(RPM), &crate::world::requests(10, 60)).await.unwrap();
    let _ = take(&here, RPM).await;
    assert!(is_unknown(&elsewhere, RPM).await, "it asked a moment ago");
    world.pass(Duration::from_millis(1_001));
    let _ = take(&elsewhere, RPM).await;
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_forgotten_comes_back_by_one_read() {
    let world = World::embedded().await;
    for name in ["a#rpm", "b#rpm", "c#rpm", "d#rpm"] {
        world.rate(name, 100, 60).await;
    }
    let client = world.client_with(|settings| settings.max_buckets(1));
    let _ = take(&client, "a#rpm").await;
    for name in ["b#rpm", "c#rpm", "d#rpm"] {
        let _ = take(&client, name).await;
    }
    let before = reads(&world);
    for _ in 0..5 {
        let _ = take(&client, "a#rpm").await;
    }
    assert_eq!(reads(&world) - before, 1);
}

/// The grant keeps its bucket in memory, and both kinds of lease go back through it.
#[tokio::test(start_paused = true)]
async fn a_grant_outlives_any_number_of_other_names() {
    for kind in [crate::kind::Kind::Rows, crate::kind::Kind::Inline] {
        let world = World::embedded().await.with(kind);
        world.slots("elevenlabs#concurrent", 1).await;
        let client = world.client_with(|settings| settings.max_buckets(1));
        let held = take(&client, "elevenlabs#concurrent").await;
        for n in 0..200 {
            assert!(is_unknown(&client, &format!("vendor{n}#rpm")).await);
        }
        assert_eq!(held.release().await.unwrap(), Released::GivenBack);
        let _ = take(&client, "elevenlabs#concurrent").await.release().await.unwrap();
    }
}
