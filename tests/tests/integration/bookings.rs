//! Slots of rate buckets: a start is booked, and waited for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_sdk::{Client, LimitError};
use sluice_testkit::{Gate, Operation};
use tokio::time::{Instant, sleep};

use crate::endpoint;
use crate::world::{World, settle, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "openai#concurrent";

fn ok<T>(value: T) -> Result<T, LimitError> {
    Ok(value)
}

#[tokio::test(start_paused = true)]
async fn overload_is_booked_in_order_with_one_write_a_call() {
    let world = World::with_rate(RPM, 5, 5).await;
    let client = world.client();
    take(&client, RPM).await.release().await.unwrap();
    world.pass(Duration::from_secs(10));
    world.dynamo.meter().reset();
    let order = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let mut calls = Vec::new();
    for n in 0..20 {
        let (client, order) = (client.clone(), Arc::clone(&order));
        let call = async move |_| {
            order.lock().unwrap().push((n, began.elapsed().as_millis()));
            ok(())
        };
        let slot = client.slot(RPM).timeout(Duration::from_secs(30));
        calls.push(tokio::spawn(async move { slot.run(call).await.unwrap() }));
        if endpoint::url().is_some() {
            settle().await;
        }
    }
    for call in calls {
        call.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!(order.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    for (n, at) in order.iter() {
        let due = u128::from(*n as u64).saturating_sub(4) * 1_000;
        assert!((due..=due + 2).contains(at), "call {n} at {at} ms, due at {due} ms");
    }
    let usage = world.dynamo.meter().total();
    assert!(
        usage.write_units <= 22,
        "one write a call, and one or two that the first full write overtook: {usage:?}"
    );
    assert!(usage.requests <= 22 + 15, "and a look for a cool-down by each that waited: {usage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_booking_that_is_dropped_before_its_start_is_given_back() {
    let world = World::with_rate(RPM, 1, 10).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let booked = {
        let client = client.clone();
        tokio::spawn(async move { client.slot(RPM).run(async |_| ok(())).await.is_ok() })
    };
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.level(RPM).await, "-0.9");
    booked.abort();
    let _ = booked.await;
    settle().await;
    assert_eq!(world.level(RPM).await, "0.1");
}

#[tokio::test(start_paused = true)]
async fn a_start_beyond_the_wait_is_refused_at_once_and_takes_nothing() {
    let world = World::with_rate(RPM, 1, 50).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let began = Instant::now();
    let refused = client.slot(RPM).max_wait(Duration::from_secs(5)).run(async |_| ok(())).await;
    let Err(LimitError::Refused(retry)) = refused else { panic!() };
    assert_eq!((retry.wait(), began.elapsed()), (Duration::from_secs(50), Duration::ZERO));
    assert_eq!(world.level(RPM).await, "0");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_reached_at_the_timeout_begins_no_call() {
    let world = World::with_rate(RPM, 1, 50).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let mut called = false;
    let slot = client.slot(RPM).timeout(Duration::from_secs(50));
    let late = slot
        .run(async |_| {
            called = true;
            ok(())
        })
        .await;
    assert!(matches!(late, Err(LimitError::TimedOut(_))) && !called);
    settle().await;
    assert!(world.level(RPM).await.starts_with('1'), "what it had booked is there for others");
}

/// Two limits that are used up, the second of them `later`; and a client that has not heard of it, and so
/// asks for both at once.
async fn used_up(world: &World, later: Duration) -> Client {
    world.rate(RPM, 2, 20).await;
    world.rate(TPM, 2, 20).await;
    let (client, other) = (world.client(), world.client());
    let _ = take(&client, RPM).await;
    world.pass(later);
    let _ = take(&client, TPM).await;
    let _ = (take(&other, RPM).await, take(&other, TPM).await);
    client
}

#[tokio::test(start_paused = true)]
async fn a_slot_tells_the_start_in_each_of_its_limits() {
    // What lies unused for 20 ms is kept; what would for a second is given back, and taken when the call can
    // be made.
    for (later, kept) in [(20, 20), (1_000, 0)] {
        let world = World::new().await;
        world.slots(SLOTS, 1).await;
        let client = used_up(&world, Duration::from_millis(later)).await;
        let slot = client.slot([RPM, TPM, SLOTS]).run(async |slot| ok(slot)).await.unwrap();
        let [requests, tokens] = [RPM, TPM].map(|limit| slot.start_in(limit).unwrap());
        assert_eq!(
            (tokens.since(requests), slot.start_at()),
            (Duration::from_millis(kept), tokens),
            "{later} ms later"
        );
        assert_eq!((slot.start_in(SLOTS), slot.start_in("openai#other")), (None, None));
    }
}

#[tokio::test(start_paused = true)]
async fn before_a_start_the_limits_are_looked_at_side_by_side() {
    let world = World::embedded().await;
    let client = used_up(&world, Duration::ZERO).await;
    let began = Instant::now();
    let call =
        tokio::spawn(
            async move { client.slot([RPM, TPM]).run(async |_| ok(began.elapsed())).await.unwrap() },
        );
    sleep(Duration::from_secs(1)).await;
    let looks = [(); 2].map(|()| world.dynamo.faults().hold_next(Operation::GetItem));
    for look in &looks {
        look.reached().await;
        assert_eq!(began.elapsed().as_secs(), 10, "at the start");
    }
    // Neither is answered, and the call does not wait for that twice.
    let begun = call.await.unwrap();
    assert!(begun <= Duration::from_millis(10_055), "{begun:?}");
    looks.iter().for_each(Gate::open);
}
