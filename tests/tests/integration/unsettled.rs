//! What calls keep because nobody says what they used: counted, and said once.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use sluice_sdk::{Client, LimitError, Request};

use crate::events::{lines_of, listen};
use crate::metrics::{Listening, counted};
use crate::settle::{TPM, call, world};
use crate::world::{settle, take};

const RPM: &str = "openai#rpm";
const SPEECH: &str = "elevenlabs#tpm";

/// What was counted since the last time.
fn unsettled(listening: &Listening, dimension: &str) -> u64 {
    counted(&listening.recorded(), "sluice.tokens.unsettled", &[("dimension", dimension)])
}

#[tokio::test(start_paused = true)]
async fn what_a_call_keeps_without_a_stated_use_is_counted_however_it_ends() {
    let (listening, world) = (Listening::begin(), world().await);
    world.rate(RPM, 100, 1_000_000_000).await;
    let (client, with_leases) =
        (world.client(), world.client_with(|settings| settings.leases(sluice_sdk::Leases::All)));
    call(&client, 1).await.release().await.unwrap();
    assert_eq!(unsettled(&listening, TPM), 1, "released");
    drop(call(&client, 2).await);
    assert_eq!(unsettled(&listening, TPM), 2, "dropped");
    let slot = |cost: i32| client.slot([RPM, TPM]).cost(TPM, cost).timeout(Duration::from_secs(1));
    slot(10).run(async |_| Ok::<_, LimitError>(())).await.unwrap();
    assert_eq!(unsettled(&listening, TPM), 10, "a slot whose closure said nothing, as of a 429");
    let late = slot(20).run(async |_| std::future::pending::<Result<(), LimitError>>().await);
    late.await.unwrap_err();
    assert_eq!(unsettled(&listening, TPM), 20, "timed out");
    drop(call(&client, 100).await.stream(stream::pending::<Result<(), Infallible>>()));
    settle().await;
    assert_eq!(unsettled(&listening, TPM), 100, "a stream that its reader left");
    call(&with_leases, 200).await.release().await.unwrap();
    drop(call(&with_leases, 200).await);
    settle().await;
    let recorded = listening.recorded();
    let kept = |dimension| counted(&recorded, "sluice.tokens.unsettled", &[("dimension", dimension)]);
    assert_eq!((kept(TPM), kept(RPM)), (400, 0), "with leases of their own; a call is always one request");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_said_what_it_used_or_failed_keeps_nothing_unsaid() {
    let (listening, world) = (Listening::begin(), world().await);
    world.tokens(SPEECH, 1_000, 1_000_000_000).await;
    let client = world.client();
    for used in [0, 50, 100, 150] {
        let mut grant = call(&client, 100).await;
        grant.settle(TPM, used).await.unwrap();
        grant.release().await.unwrap();
    }
    client.slot(TPM).cost(TPM, 100).run(async |slot| slot.used(TPM, 100)).await.unwrap();
    call(&client, 100).await.failed().await.unwrap();
    // Whatever a vendor counts of a failed call.
    take(&client, Request::from(SPEECH).cost(SPEECH, 100)).await.failed().await.unwrap();
    // A grant that nobody took is not a call.
    let left =
        client.slot([TPM, SPEECH]).cost(TPM, 10).cost(SPEECH, 5_000).run(async |_| Ok::<_, LimitError>(()));
    left.await.unwrap_err();
    settle().await;
    let recorded = listening.recorded();
    let kept = |dimension| counted(&recorded, "sluice.tokens.unsettled", &[("dimension", dimension)]);
    assert_eq!((kept(TPM), kept(SPEECH)), (0, 0));
}

/// What was settled stays: a use that equals the reservation is a use.
#[tokio::test(start_paused = true)]
async fn a_call_that_used_what_it_took_stays_charged_if_it_fails_later() {
    let world = world().await;
    let mut grant = call(&world.client(), 100).await;
    grant.settle(TPM, 100).await.unwrap();
    grant.failed().await.unwrap();
    assert_eq!(world.level(TPM).await, "900");
}

#[tokio::test(start_paused = true)]
async fn grants_from_stock_are_counted_about_once_a_second() {
    let (listening, world) = (Listening::begin(), world().await);
    let client = world.client_with(|settings| settings.prefetch([TPM]));
    for _ in 0..40 {
        drop(call(&client, 1).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The end of this grant comes after what its beginning reports.
    drop(call(&client, 1).await);
    let gauges = client.publish_gauges(Duration::from_secs(15));
    let before = unsettled(&listening, TPM);
    settle().await;
    assert_eq!(
        (before, unsettled(&listening, TPM)),
        (40, 1),
        "with a grant of the next second, and with the gauges"
    );
    drop(gauges);
}

async fn silent_calls(client: &Client, calls: usize) {
    for _ in 0..calls {
        drop(call(client, 1).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_whose_calls_never_say_what_they_used_is_named_once() {
    listen();
    let world = world().await;
    world.rate(RPM, 1_000, 60).await;
    let client = world.client();
    silent_calls(&client, 19).await;
    // A failure says nothing of what calls use.
    call(&client, 1).await.failed().await.unwrap();
    for _ in 0..30 {
        drop(take(&client, RPM).await);
    }
    let heard = [world.client(), world.client()];
    call(&heard[0], 1).await.settle(TPM, 1).await.unwrap();
    let grant = call(&heard[1], 1).await;
    heard[1].observe(TPM, &[("x-ratelimit-remaining-tokens", "1000")], Some(&grant)).await.unwrap();
    for client in &heard {
        silent_calls(client, 40).await;
    }
    silent_calls(&client, 40).await;
    let lines = lines_of("settle.never");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((lines[0]["dimension"].as_str(), lines[0]["calls"].as_u64()), (Some(TPM), Some(20)));
    assert!(lines[0]["message"].as_str().unwrap().contains("slot.used"), "{}", lines[0]);
}
