//! How long those who wait pause beside a crowd of others, and whom their pause may not hold up.

use std::time::Duration;

use sluice_core::schema::{CROWD, CROWD_PERIOD, KEY};
use sluice_core::{Load, NOTE_EVERY};
use sluice_sdk::{Client, RetryReason};
use sluice_testkit::{Fault, Operation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::kind::Kind;
use crate::world::{World, dimension, number, refusal, take, text};

const SLOTS: &str = "elevenlabs#concurrent";
const KINDS: [Kind; 2] = [Kind::Rows, Kind::Inline];

/// One slot, and a count of the processes that wait for it that no process wrote.
async fn crowded(kind: Kind) -> World {
    let world = World::embedded().await.with(kind);
    world.slots(SLOTS, 1).await;
    let period = world.dynamo.clock().now().micros() / i64::try_from(NOTE_EVERY.as_micros()).unwrap();
    let row = [
        (KEY, text(&Load::key(&dimension(SLOTS)))),
        (CROWD_PERIOD, number(&period.to_string())),
        (CROWD, number("1000000000")),
    ];
    world.put(row.map(|(name, value)| (name.to_owned(), value)).into()).await;
    world
}

/// A call that takes no time, and when it began.
fn waits(client: &Client, patience: Duration) -> JoinHandle<Option<Instant>> {
    let slot = client.slot(SLOTS).timeout(patience);
    tokio::spawn(
        async move { slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(Instant::now())).await.ok() },
    )
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_nobody_is_in_delays_a_slot_by_two_seconds_at_most() {
    for kind in KINDS {
        let world = crowded(kind).await;
        let held = take(&world.client(), SLOTS).await;
        let client = world.client();
        let waiting = waits(&client, Duration::from_secs(60));
        sleep(Duration::from_secs(3)).await;
        held.release().await.unwrap();
        let released = Instant::now();
        let began = waiting.await.unwrap().expect("a slot is free for most of its time");
        assert!(began - released <= Duration::from_millis(2_100), "{kind:?}: {:?}", began - released);
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_not_held_through_a_pause_of_those_who_do() {
    let look = Duration::from_millis(150);
    for kind in KINDS {
        let world = crowded(kind).await;
        let _held = take(&world.client(), SLOTS).await;
        let client = world.client();
        let _waiting = waits(&client, Duration::from_secs(100));
        sleep(Duration::from_secs(1)).await;
        world.dynamo.faults().draw(move |_| Some(Fault::Delay(look)));
        // They come at any time of a look and of the pause after it.
        for _ in 0..200 {
            let asked = Instant::now();
            assert_eq!(refusal(&client, SLOTS).await.reason(), RetryReason::NoFreeSlot);
            assert!(asked.elapsed() <= look * 2, "{kind:?}: {:?}", asked.elapsed());
            sleep(Duration::from_millis(31)).await;
        }
    }
}

/// While DynamoDB throttles, the crowd looks rarely; the slot that it waits for is given back at once when
/// that ends.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_pause_as_long_as_the_crowd_that_waits_for_it() {
    for _ in 0..5 {
        let world = crowded(Kind::Inline).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        let _waiting = waits(&client, Duration::from_secs(100));
        sleep(Duration::from_secs(1)).await;
        world.dynamo.faults().draw(|_| Some(Fault::throttled()));
        let releasing = tokio::spawn(held.release());
        sleep(Duration::from_secs(3)).await;
        world.dynamo.faults().clear();
        timeout(Duration::from_millis(500), releasing).await.expect("at once").unwrap().unwrap();
    }
}

/// All of them know when it ends.
#[tokio::test(start_paused = true)]
async fn processes_that_wait_for_the_end_of_a_cool_down_do_not_ask_in_the_same_instant() {
    let world = World::embedded().await;
    world.slots(SLOTS, 100).await;
    let clients: Vec<Client> = (0..40).map(|_| world.client()).collect();
    clients[0].cool_down(SLOTS, Duration::from_millis(20_300)).await.unwrap();
    let waiting: Vec<_> = clients.iter().map(|client| waits(client, Duration::from_secs(100))).collect();
    let mut began = Vec::new();
    for waiting in waiting {
        began.push(waiting.await.unwrap().expect("a slot is free after the cool-down"));
    }
    let (first, last) = (began.iter().min().unwrap(), began.iter().max().unwrap());
    let spread = *last - *first;
    assert!((500..=1_100).contains(&spread.as_millis()), "{spread:?}");
}

/// In one process, one look or one booking could serve them all in the same instant.
#[tokio::test(start_paused = true)]
async fn twenty_slots_that_wait_out_a_cool_down_start_at_different_instants() {
    for (kind, name) in [(Kind::Rows, SLOTS), (Kind::Inline, SLOTS), (Kind::Rows, "openai#rpm")] {
        let world = World::embedded().await.with(kind);
        world.slots(SLOTS, 100).await;
        world.rate("openai#rpm", 600, 60).await;
        let client = world.client();
        client.cool_down(name, Duration::from_secs(1)).await.unwrap();
        let began = Instant::now();
        let waiting: Vec<_> = (0..20)
            .map(|n| {
                // Some have hardly longer than the cool-down.
                let patience = Duration::from_millis(if n % 4 == 0 { 1_050 } else { 30_000 });
                let slot = client.slot(name).timeout(Duration::from_secs(30)).max_wait(patience);
                tokio::spawn(async move {
                    let started = slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(began.elapsed())).await;
                    (started.expect("there is room for all after the cool-down"), patience)
                })
            })
            .collect();
        let mut starts = Vec::new();
        for waiting in waiting {
            let (start, patience) = waiting.await.unwrap();
            assert!(start <= patience, "{name}, {kind:?}: {start:?} of {patience:?}");
            starts.push(start.as_micros());
        }
        starts.sort_unstable();
        let spread = starts[19] - starts[0];
        assert!(starts[0] >= 1_000_000 && starts[19] <= 1_125_000, "{name}, {kind:?}: {starts:?}");
        assert!(spread >= 50_000, "{name}, {kind:?}: {starts:?}");
    }
}

/// The line stands still for releases alone: the first who comes goes on at once, and so do all who come
/// beside it.
#[tokio::test(start_paused = true)]
async fn all_who_come_while_only_releases_wait_are_served_at_once() {
    for later in 0..20 {
        let world = World::embedded().await.with(Kind::Inline);
        world.slots(SLOTS, 5).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        world.dynamo.faults().always(Operation::UpdateItem, Fault::throttled());
        let releasing = tokio::spawn(async move { held.release().await });
        sleep(Duration::from_millis(600 + 17 * later)).await;
        // In the pause after a round, or in the next.
        world.dynamo.faults().clear();
        let asking = (0..3).map(|_| client.acquire(SLOTS));
        for answer in futures_util::future::join_all(asking).await {
            assert!(answer.unwrap().granted().is_some(), "{later}");
        }
        releasing.await.unwrap().unwrap();
    }
}
