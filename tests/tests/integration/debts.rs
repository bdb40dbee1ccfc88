//! A use that is wrong by orders of magnitude costs one refill time, and somebody learns of it.

use std::time::Duration;

use sluice_core::Amount;
use sluice_sdk::{Client, Grant, LimitError, Request, Settled};

use crate::events::{lines_of, listen};
use crate::metrics::{Listening, counted};
use crate::settle::{TPM, call, owed};
use crate::world::{World, refusal, take};

/// 60,000 tokens a minute.
async fn world() -> World {
    let world = World::new().await;
    world.tokens(TPM, 60_000, 60).await;
    world
}

fn capped(taken: i32, not_charged: i32) -> Settled {
    Settled::Capped { taken: Amount::from_tokens(taken), not_charged: Amount::from_tokens(not_charged) }
}

async fn wait_for_one(client: &Client) -> u64 {
    refusal(client, Request::from(TPM).cost(TPM, 1)).await.wait().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_wrong_unit_stops_the_fleet_for_one_refill_time_and_is_logged_once_a_minute() {
    listen();
    let (listening, world) = (Listening::begin(), world().await);
    let client = world.client();
    let said = client.slot(TPM).cost(TPM, 1_000).run(async |slot| slot.used(TPM, 10_000_000));
    said.await.unwrap();
    assert_eq!(world.level(TPM).await, "-60000");
    for other in [&client, &world.client()] {
        assert!((60..=61).contains(&wait_for_one(other).await), "and not 166 minutes");
    }
    for _ in 0..3 {
        world.pass(Duration::from_secs(61));
        call(&client, 500).await.settle(TPM, 10_000_000).await.unwrap();
    }
    let lines = lines_of("settle.capped");
    assert_eq!(
        lines.len(),
        1,
        "once a minute by the clock of the process, in which no time passed: {lines:?}"
    );
    for (field, value) in
        [("dimension", TPM), ("used", "10000000"), ("reserved", "1000"), ("capacity", "60000")]
    {
        assert_eq!(lines[0][field], value, "{}", lines[0]);
    }
    assert!(lines[0]["message"].as_str().unwrap().contains("check that `used`"), "{}", lines[0]);
    let labels = [("dimension", TPM), ("outcome", "capped")];
    assert_eq!(counted(&listening.recorded(), "sluice.settles", &labels), 4);
}

#[tokio::test(start_paused = true)]
async fn fifty_wrong_units_in_flight_cost_little_more_than_one() {
    let world = world().await;
    let client = world.client();
    let mut grants: Vec<Grant> = Vec::new();
    for _ in 0..50 {
        grants.push(call(&client, 100).await);
    }
    let settling =
        grants.into_iter().map(|mut grant| async move { grant.settle(TPM, 10_000_000).await.unwrap() });
    for settled in futures_util::future::join_all(settling).await {
        assert!(matches!(settled, Settled::Capped { .. }), "{settled:?}");
    }
    let level: f64 = world.level(TPM).await.parse().unwrap();
    assert!((-65_000.0..=-60_000.0).contains(&level), "{level}");
}

/// The process remembers the bucket as it was; the row says that others have taken most of it.
#[tokio::test(start_paused = true)]
async fn the_cap_goes_by_the_row_and_not_by_what_the_process_remembers() {
    let world = world().await;
    let (client, other) = (world.client(), world.client());
    let mut grant = call(&client, 1_000).await;
    let _ = take(&other, Request::from(TPM).cost(TPM, 59_000)).await;
    assert_eq!(grant.settle(TPM, 10_000_000).await.unwrap(), capped(60_000, 9_939_000));
    assert_eq!(world.level(TPM).await, "-60000");
    // From then on at most as much again as was reserved, of which this call has taken more already.
    assert_eq!(grant.settle(TPM, 10_000_000).await.unwrap(), capped(0, 9_939_000));
    assert_eq!(world.level(TPM).await, "-60000");
}

#[tokio::test(start_paused = true)]
async fn an_overrun_of_what_was_reserved_is_charged_in_full_whatever_is_booked() {
    let world = world().await;
    let client = world.client();
    let (mut first, mut second) = (call(&client, 20_000).await, call(&client, 20_000).await);
    let booked: Vec<_> = (0..4)
        .map(|_| {
            let slot = client.slot(TPM).cost(TPM, 40_000).timeout(Duration::from_secs(600));
            tokio::spawn(slot.run(async |_| Ok::<_, LimitError>(())))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before: f64 = world.level(TPM).await.parse().unwrap();
    assert!(before < -60_000.0, "booked further ahead than the cap: {before}");
    assert_eq!(first.settle(TPM, 40_000).await.unwrap(), owed(20_000));
    assert_eq!(second.settle(TPM, 10_000_000).await.unwrap(), capped(20_000, 9_960_000));
    booked.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn without_the_cap_a_debt_is_as_large_as_the_use() {
    let world = world().await;
    let client = world.client_with(|settings| settings.cap_debt(false));
    assert_eq!(call(&client, 1_000).await.settle(TPM, 10_000_000).await.unwrap(), owed(9_999_000));
    assert_eq!(world.level(TPM).await, "-9940000");
    assert!(wait_for_one(&client).await > 9_900);
}
