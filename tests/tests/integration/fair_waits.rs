//! Nobody starves: grants that are waited for beside slots, and large calls beside small ones.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sluice_sdk::{Client, LimitError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::world::World;

const TPM: &str = "openai#tpm";
const SLOTS: &str = "elevenlabs#concurrent";
const LONG: Duration = Duration::from_secs(3_600);

fn percentile_99(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits[waits.len() * 99 / 100]
}

/// How long a call waited for its start.
async fn plain(client: Client) -> Duration {
    let asked = Instant::now();
    let slot = client.slot([SLOTS, TPM]).cost(TPM, 50).max_wait(LONG);
    let call = async |_| {
        let waited = asked.elapsed();
        sleep(Duration::from_secs(1)).await;
        Ok::<_, LimitError>(waited)
    };
    slot.run(call).await.unwrap()
}

/// The same for a call whose reply is streamed.
async fn streamed(client: Client) -> Duration {
    let asked = Instant::now();
    let slot = client.slot([SLOTS, TPM]).cost(TPM, 50).max_wait(LONG);
    let open = async |_: &mut sluice_sdk::Grant| {
        let waited = asked.elapsed();
        let pieces = stream::iter(0..10).then(async |_| {
            sleep(Duration::from_millis(100)).await;
            Ok::<_, LimitError>(())
        });
        Ok::<_, LimitError>((Box::pin(pieces), waited))
    };
    let mut waited = Duration::ZERO;
    let opened = slot.stream(async |grant| {
        let (pieces, after) = open(grant).await?;
        waited = after;
        Ok::<_, LimitError>(pieces)
    });
    let mut reply = opened.await.unwrap();
    while let Some(piece) = reply.next().await {
        piece.unwrap();
    }
    waited
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn streamed_calls_wait_no_longer_than_calls_in_slots() {
    let world = World::new().await.distant();
    world.slots(SLOTS, 5).await;
    world.tokens(TPM, 12_000, 60).await;
    let (service, batch) = (world.client(), world.client());
    let (mut streams, mut slots) = (JoinSet::new(), JoinSet::new());
    for _ in 0..50 {
        for client in [&service, &batch] {
            streams.spawn(streamed(client.clone()));
            slots.spawn(plain(client.clone()));
        }
        sleep(Duration::from_millis(500)).await;
    }
    let (streams, slots) = (percentile_99(streams.join_all().await), percentile_99(slots.join_all().await));
    println!("99th percentile of the wait: {streams:?} for streams, {slots:?} for slots");
    assert!(streams <= slots.mul_f64(1.1), "{streams:?} for streams, {slots:?} for slots");
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn a_large_call_waits_no_longer_than_its_share_beside_small_ones() {
    const SMALL: u64 = 20;
    let world = World::new().await.distant();
    // Ten tokens a second.
    world.tokens(TPM, 600, 60).await;
    let client = world.client();
    let mut small = JoinSet::new();
    for _ in 0..SMALL {
        let client = client.clone();
        small.spawn(async move {
            loop {
                let grant = client.slot(TPM).cost(TPM, 40).max_wait(LONG).grant().await.unwrap();
                grant.release().await.unwrap();
            }
        });
    }
    sleep(Duration::from_secs(120)).await;
    let asked = Instant::now();
    let grant = client.slot(TPM).cost(TPM, 400).max_wait(LONG).grant().await.unwrap();
    let waited = asked.elapsed();
    grant.release().await.unwrap();
    small.abort_all();
    // Those who were there before it, and its own tokens.
    let fair = Duration::from_secs((SMALL * 40 + 400) / 10);
    println!("a call of 400 tokens beside {SMALL} of 40 waited {waited:?}; its fair wait is {fair:?}");
    assert!(waited <= fair * 2, "{waited:?}");
}
