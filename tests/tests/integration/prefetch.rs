//! Prefetch: a stock of tokens that saves requests, and never lets more through than without.

use std::time::Duration;

use sluice_core::schema::BLOCKED_UNTIL;
use sluice_sdk::{AcquireError, Client, Request, RetryReason};
use sluice_testkit::Operation;
use tokio::time::sleep;

use crate::world::{World, dimension, number, refusal, requests, settle, take};

const RPM: &str = "openai#rpm";

/// At first a process is taken to need three quarters of what it asked for in 50 ms, for a second: 15 a call.
const FIRST_LOT: i32 = 15;

fn prefetching(world: &World) -> Client {
    world.client_with(|settings| settings.prefetch([RPM]))
}

/// A bucket that hardly refills.
async fn slow(capacity: i32) -> World {
    World::with_rate(RPM, capacity, 1_000_000_000).await
}

/// How many grants are there this instant.
async fn burst(client: &Client) -> usize {
    let mut granted = 0;
    while client.acquire(RPM).await.unwrap().granted().is_some() {
        granted += 1;
    }
    granted
}

async fn left(world: &World) -> i32 {
    settle().await;
    world.level(RPM).await.split('.').next().unwrap().parse().unwrap()
}

fn sent(world: &World) -> u64 {
    world.dynamo.meter().reset().requests
}

#[tokio::test(start_paused = true)]
async fn grants_from_stock_take_no_request() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    world.dynamo.meter().reset();
    let _ = take(&client, RPM).await;
    assert_eq!(sent(&world), 2, "the row is read, and written");
    for _ in 0..FIRST_LOT {
        let _ = take(&client, RPM).await;
    }
    assert_eq!(sent(&world), 0);
    assert_eq!(left(&world).await, 1_000 - 1 - FIRST_LOT);
    world.dynamo.meter().reset();
    let _ = take(&client, RPM).await;
    assert_eq!(sent(&world), 1, "the next lot");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_served_from_stock_too() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    world.dynamo.meter().reset();
    let call = client.slot(RPM).run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.start_at()));
    assert_eq!(call.await.unwrap(), world.dynamo.clock().now());
    assert_eq!(sent(&world), 0);
}

/// Stock is for the head of the line as long as there is one.
#[tokio::test(start_paused = true)]
async fn stock_lets_nobody_past_those_in_line() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    settle().await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let ask = |cost| {
        let client = client.clone();
        tokio::spawn(async move {
            client.acquire(Request::from(RPM).cost(RPM, cost)).await.unwrap().granted().is_some()
        })
    };
    let large = ask(FIRST_LOT + 1);
    gate.reached().await;
    let small = ask(1);
    settle().await;
    assert!(!small.is_finished());
    gate.open();
    assert!(large.await.unwrap() && small.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nobody_prefetches_who_did_not_ask_for_it() {
    let world = slow(1_000).await;
    for client in [world.client(), world.client_with(|settings| settings.prefetch(["openai#other"]))] {
        let before = left(&world).await;
        for _ in 0..10 {
            let _ = take(&client, RPM).await;
        }
        assert_eq!(left(&world).await, before - 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lot_grows_with_demand_and_shrinks_after_it() {
    let world = slow(1_000_000).await.distant();
    let client = prefetching(&world);
    let lot_after = async |calls: i32| {
        let before = left(&world).await;
        let asks = (0..calls).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { take(&client, RPM).await })
        });
        for ask in asks.collect::<Vec<_>>() {
            let _ = ask.await.unwrap();
        }
        before - left(&world).await - calls
    };
    assert_eq!(lot_after(40).await, 40 * FIRST_LOT);
    // One call in ten seconds: half as much each time.
    let mut lots = Vec::new();
    for _ in 0..12 {
        sleep(Duration::from_secs(10)).await;
        lots.push(lot_after(1).await);
    }
    assert!(lots[0] <= 20 * FIRST_LOT + 1, "{lots:?}");
    assert!(lots.windows(2).all(|lots| lots[1] <= lots[0] / 2 + 1), "{lots:?}");
    assert_eq!(lots[11], 0, "for so few calls none is taken: {lots:?}");
}

#[tokio::test(start_paused = true)]
async fn the_upper_half_of_a_bucket_is_all_that_is_taken_ahead() {
    let world = slow(10).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    assert_eq!(left(&world).await, 5);
    for _ in 0..4 {
        let _ = take(&client, RPM).await;
    }
    assert_eq!(left(&world).await, 5, "from stock");
    for rest in (0..5).rev() {
        let _ = take(&client, RPM).await;
        assert_eq!(left(&world).await, rest, "one by one");
    }
    refusal(&client, RPM).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_used_goes_back_after_a_second() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    for _ in 0..5 {
        let _ = take(&client, RPM).await;
    }
    assert_eq!(left(&world).await, 1_000 - 1 - FIRST_LOT);
    sleep(Duration::from_millis(990)).await;
    assert_eq!(left(&world).await, 1_000 - 1 - FIRST_LOT);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(left(&world).await, 995);
    world.dynamo.meter().reset();
    let _ = take(&client, RPM).await;
    assert_eq!(sent(&world), 1, "nothing is in stock any more");
}

/// A clock that jumps, as for a process that was frozen: what it had taken is long missed, and refills.
#[tokio::test(start_paused = true)]
async fn a_stock_that_was_frozen_is_neither_used_nor_returned() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    world.pass(Duration::from_secs(5));
    world.dynamo.meter().reset();
    sleep(Duration::from_millis(1_100)).await;
    settle().await;
    assert_eq!(sent(&world), 0, "no return");
    assert_eq!(left(&world).await, 1_000 - 1 - FIRST_LOT);
    world.dynamo.meter().reset();
    let _ = take(&client, RPM).await;
    assert_eq!(sent(&world), 1, "not from stock");
}

/// It may have been taken at any time.
#[tokio::test(start_paused = true)]
async fn a_stock_from_the_future_is_not_used() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    let world = slow(1_000).await;
    let off = Arc::new(AtomicI64::new(0));
    let client = world.client_with(|settings| {
        let (clock, off) = (world.dynamo.clock().clone(), Arc::clone(&off));
        let now =
            move || sluice_core::Timestamp::from_micros(clock.now().micros() + off.load(Ordering::SeqCst));
        settings.prefetch([RPM]).clock(sluice_sdk::Clock::from_fn(now))
    });
    let _ = take(&client, RPM).await;
    world.dynamo.meter().reset();
    off.store(-1_000, Ordering::SeqCst);
    let _ = take(&client, RPM).await;
    assert_eq!(sent(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_that_the_process_knows_of_keeps_its_stock_from_being_used() {
    let world = slow(100).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    let mut row = world.row(RPM).await.unwrap();
    let until = world.dynamo.clock().now().after(Duration::from_secs(30));
    row.insert(BLOCKED_UNTIL.into(), number(&until.to_string()));
    world.put(row).await;
    // More than is in stock, so that the table is asked.
    let refused = client.acquire(Request::from(RPM).cost(RPM, FIRST_LOT + 1)).await.unwrap();
    assert!(refused.granted().is_none());
    settle().await;
    assert_eq!(refusal(&client, RPM).await.reason(), RetryReason::CoolingDown);
}

#[tokio::test(start_paused = true)]
async fn a_stock_lapses_with_the_limit_that_it_was_taken_from() {
    let world = slow(1_000).await;
    let client = prefetching(&world);
    let _ = take(&client, RPM).await;
    client.ops().apply_limit(&dimension(RPM), &requests(500, 1_000_000_000)).await.unwrap();
    world.dynamo.meter().reset();
    let call = || Request::from(RPM).cost(RPM, 1);
    assert!(client.acquire(call()).await.unwrap().granted().is_some());
    assert_eq!(world.dynamo.meter().of(Operation::UpdateItem).requests, 1, "not from stock");
    client.ops().remove_bucket(&dimension(RPM)).await.unwrap();
    settle().await;
    let error = client.acquire(call()).await.unwrap_err();
    assert!(matches!(error, AcquireError::UnknownDimension { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn slots_are_never_prefetched() {
    let world = World::with_slots(RPM, 100).await;
    let held = take(&prefetching(&world), RPM).await;
    assert_eq!((world.free(RPM).await.as_str(), world.leases().await), ("99", 1));
    held.release().await.unwrap();
}

/// The case that the cap of a lot is for: it was taken from a bucket that has filled up again since. Used in
/// full on top of that, a burst would be larger than the capacity.
#[tokio::test(start_paused = true)]
async fn a_burst_from_stock_and_a_bucket_at_its_brim_is_no_larger_than_the_capacity() {
    for (after_millis, stock) in [(0, 4), (200, 3), (400, 1), (500, 0), (900, 0)] {
        let world = World::with_rate(RPM, 10, 1).await;
        let (client, other) = (prefetching(&world), world.client());
        let _ = take(&client, RPM).await;
        assert_eq!(left(&world).await, 5, "four are in stock");
        sleep(Duration::from_millis(after_millis)).await;
        let all = (burst(&other).await, burst(&client).await);
        let from_bucket = if after_millis == 0 { 5 } else { 10 - stock };
        assert_eq!(all, (from_bucket, stock), "after {after_millis} ms");
    }
}

/// As above, with the stock used first: the tokens it leaves must not come on top either.
#[tokio::test(start_paused = true)]
async fn bursts_of_processes_that_both_prefetch_stay_below_the_capacity() {
    for after_millis in [0, 50, 300, 700, 990] {
        let world = World::with_rate(RPM, 100, 10).await;
        let clients = [prefetching(&world), prefetching(&world), world.client()];
        for client in &clients {
            let _ = take(client, RPM).await;
        }
        sleep(Duration::from_millis(after_millis)).await;
        let mut granted = 0;
        for client in &clients {
            granted += burst(client).await;
        }
        assert!(granted <= 100, "{granted} after {after_millis} ms");
        assert!(granted >= 90, "{granted} after {after_millis} ms: the stock is not lost either");
    }
}

#[tokio::test(start_paused = true)]
async fn steady_demand_costs_two_writes_a_second_at_most() {
    let world = World::with_rate(RPM, 60_000, 60).await;
    let client = prefetching(&world);
    let call_for_a_second = async || {
        for _ in 0..200 {
            let _ = take(&client, RPM).await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    call_for_a_second().await;
    world.dynamo.meter().reset();
    for _ in 0..20 {
        call_for_a_second().await;
    }
    let writes = world.dynamo.meter().of(Operation::UpdateItem).requests;
    assert!(writes <= 40, "{writes} writes in 20 s, those that give back among them");
}
