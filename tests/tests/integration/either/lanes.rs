//! Lanes of slots: who takes, who gives back and who waits share their writes, in their order.

use std::time::Duration;

use sluice_sdk::{Client, Released, RetryReason};
use sluice_testkit::Fault;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::KIND;
use crate::kind::Kind;
use crate::world::{World, begin, refusal, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";

/// Longer than any request here is on its way.
const A_WHILE: Duration = Duration::from_millis(50);

/// A call that runs for a minute once it has its slot; when that was.
fn waits(client: &Client) -> JoinHandle<Instant> {
    waits_for(client, 1)
}

/// As above, for so many slots.
fn waits_for(client: &Client, cost: i32) -> JoinHandle<Instant> {
    let slot = client.slot(SLOTS).cost(SLOTS, cost).timeout(Duration::from_secs(600));
    let call = slot.run(async |_| {
        let began = Instant::now();
        sleep(Duration::from_secs(60)).await;
        Ok::<_, sluice_sdk::LimitError>(began)
    });
    tokio::spawn(async move { call.await.unwrap() })
}

/// Requests that take slots or give them back, since the last reset.
fn writes(world: &World) -> u64 {
    world.dynamo.meter().of(KIND.write()).requests
}

#[tokio::test(start_paused = true)]
async fn fifty_that_take_and_fifty_that_give_back_need_a_write_or_two() {
    let world = KIND.with_slots(SLOTS, 60).await.distant();
    let client = world.client();
    let _known = take(&client, SLOTS).await;
    world.dynamo.meter().reset();
    let takers: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { take(&client, SLOTS).await })
        })
        .collect();
    let mut held = Vec::new();
    for taker in takers {
        held.push(taker.await.unwrap());
    }
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("9", 51));
    assert!(writes(&world) <= 2, "{} writes", writes(&world));
    world.dynamo.meter().reset();
    let releases: Vec<_> = held.into_iter().map(|grant| tokio::spawn(grant.release())).collect();
    for release in releases {
        assert_eq!(release.await.unwrap().unwrap(), Released::GivenBack);
    }
    assert!(writes(&world) <= 2, "{} writes", writes(&world));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("59", 1));
}

#[tokio::test(start_paused = true)]
async fn a_freed_slot_goes_to_the_head_of_the_line_at_once() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let waiters = [waits(&client), waits(&client)];
    settle().await;
    sleep(Duration::from_secs(3)).await;
    let freed = Instant::now();
    held.release().await.unwrap();
    let [first, second] = waiters;
    assert_eq!(first.await.unwrap(), freed);
    assert!(second.await.unwrap() >= freed + Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_freed_at_once_serve_as_many_waiters_in_one_write() {
    let world = KIND.with_slots(SLOTS, 4).await.distant();
    // Other writes of a waiting process for its bucket are not counted here, nor are renewals.
    let client = world.client_with(|settings| settings.self_heal(false).lease_ttl(Duration::from_secs(600)));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(take(&client, SLOTS).await);
    }
    let waiters = [0, 1, 2, 3].map(|_| waits(&client));
    settle().await;
    world.dynamo.meter().reset();
    let releases: Vec<_> = held.into_iter().map(|grant| tokio::spawn(grant.release())).collect();
    for release in releases {
        release.await.unwrap().unwrap();
    }
    let began = Instant::now();
    // Over a socket, the time of the test may go on while a reply is on its way.
    let soon = if crate::endpoint::url().is_some() { A_WHILE * 20 } else { A_WHILE };
    for waiter in waiters {
        assert!(waiter.await.unwrap() <= began + soon);
    }
    settle().await;
    // Of twelve changes: those that are first in a lane are alone. Inline leases change hands in one.
    // Those that wait also draw numbers and say so.
    let most = if KIND == Kind::Inline { 4 } else { 9 };
    assert!(writes(&world) <= most, "{} writes", writes(&world));
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("4", 0));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_does_not_overtake_those_who_do() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let held = take(&world.client(), SLOTS).await;
    let waiter = waits(&client);
    settle().await;
    held.release().await.unwrap();
    let freed = Instant::now();
    assert_eq!(refusal(&client, SLOTS).await.reason(), RetryReason::NoFreeSlot, "free, and another's turn");
    assert_eq!(freed.elapsed(), Duration::ZERO, "it is told at once");
    assert!(waiter.await.unwrap() - freed <= Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn a_small_call_does_not_overtake_a_large_one_that_waits() {
    let world = KIND.with_slots(SLOTS, 2).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let large = waits_for(&client, 2);
    settle().await;
    let small = waits_for(&client, 1);
    refusal(&client, SLOTS).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.free(SLOTS).await, "1", "it is kept for the head of the line");
    let freed = Instant::now();
    held.release().await.unwrap();
    assert_eq!(large.await.unwrap(), freed);
    assert!(small.await.unwrap() >= freed + Duration::from_secs(60));
}

/// More wait than one write can serve: neither who gives back nor who does not wait stands behind them.
#[tokio::test(start_paused = true)]
async fn a_long_line_keeps_nobody_from_giving_back() {
    let world = KIND.with_slots(SLOTS, 2).await.distant();
    let client = world.client();
    let held = [take(&client, SLOTS).await, take(&client, SLOTS).await];
    let waiters: Vec<_> = (0..150)
        .map(|_| {
            let slot = client.slot(SLOTS).timeout(Duration::from_secs(600));
            tokio::spawn(async move {
                slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(sleep(A_WHILE).await)).await.unwrap()
            })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    refusal(&client, SLOTS).await;
    for grant in held {
        grant.release().await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// In one batch with it, and not only behind a line that stands.
#[tokio::test(start_paused = true)]
async fn who_does_not_wait_and_stands_behind_one_who_does_is_refused_at_once() {
    let world = KIND.with_slots(SLOTS, 3).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let first = waits(&client);
    gate.reached().await;
    let large = waits_for(&client, 2);
    settle().await;
    let small = {
        let client = client.clone();
        tokio::spawn(async move { refusal(&client, SLOTS).await })
    };
    settle().await;
    let began = Instant::now();
    gate.open();
    assert_eq!(small.await.unwrap().reason(), RetryReason::NoFreeSlot);
    assert_eq!(began.elapsed(), Duration::ZERO);
    held.release().await.unwrap();
    assert_eq!(large.await.unwrap(), first.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_the_line_leaves_its_turn_to_the_next() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let held = take(&client, SLOTS).await;
    let (gone, next) = (waits(&client), waits(&client));
    settle().await;
    gone.abort();
    settle().await;
    let freed = Instant::now();
    held.release().await.unwrap();
    assert_eq!(next.await.unwrap(), freed);
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

/// Both ask for leases that are as long.
#[tokio::test(start_paused = true)]
async fn a_slot_that_a_caller_leaves_during_its_write_goes_to_the_next() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    take(&client, SLOTS).await.release().await.unwrap();
    world.dynamo.meter().reset();
    let gate = world.dynamo.faults().hold_next(KIND.write());
    let gone = {
        let client = client.clone();
        tokio::spawn(async move { client.acquire(SLOTS).await })
    };
    gate.reached().await;
    let next = {
        let client = client.clone();
        tokio::spawn(async move { take(&client, SLOTS).await })
    };
    settle().await;
    gone.abort();
    gate.open();
    let held = next.await.unwrap();
    assert_eq!((writes(&world), world.free(SLOTS).await.as_str(), world.leases().await), (1, "0", 1));
    assert_eq!(held.release().await.unwrap(), Released::GivenBack);
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_with_its_slot_untaken_gives_it_back() {
    let world = KIND.with_slots(SLOTS, 2).await.distant();
    let client = world.client();
    let _known = take(&client, SLOTS).await;
    // With a second one the lane is served on a task of its own, whether they are polled or not.
    let (asking, refused) = (begin(client.acquire(SLOTS)).await, begin(client.acquire(SLOTS)).await);
    sleep(A_WHILE).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 2));
    drop((asking, refused));
    sleep(A_WHILE).await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 1));
}

#[tokio::test(start_paused = true)]
async fn an_outage_answers_all_who_take_and_all_who_give_back() {
    let world = KIND.with_slots(SLOTS, 30).await;
    let client = world.client();
    let held = [take(&client, SLOTS).await, take(&client, SLOTS).await];
    world.dynamo.faults().always(KIND.write(), Fault::LoseRequest);
    let takers: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(SLOTS).await.map(drop) })
        })
        .collect();
    let releases = held.map(|grant| tokio::spawn(grant.release()));
    let answered = async {
        for taker in takers {
            assert!(taker.await.unwrap().is_err());
        }
        for release in releases {
            assert!(release.await.unwrap().is_err());
        }
    };
    tokio::time::timeout(Duration::from_secs(10), answered).await.expect("nobody hangs");
    world.dynamo.faults().clear();
    // If DynamoDB counted as out, a probe shows its return.
    let mut tries = 0;
    while client.acquire(SLOTS).await.is_err() {
        tries += 1;
        assert!(tries < 10, "it is not back");
        sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn who_waits_behind_a_runtime_that_ends_is_served_by_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (ending, staying) = (runtime(), runtime());
    let world = staying.block_on(KIND.with_slots(SLOTS, 1));
    let client = world.client();
    let held = staying.block_on(async {
        let held = take(&client, SLOTS).await;
        // Who served it has left its seat.
        settle().await;
        held
    });
    let [lost, waiter] = [&ending, &staying].map(|runtime| {
        let _entered = runtime.enter();
        let waiter = waits(&client);
        runtime.block_on(settle());
        waiter
    });
    drop(ending);
    staying.block_on(async {
        assert!(lost.await.is_err());
        held.release().await.unwrap();
        tokio::time::timeout(Duration::from_secs(61), waiter).await.expect("it is served").unwrap();
        settle().await;
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
    });
}
