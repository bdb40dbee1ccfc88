//! The end of a client: nothing stays on the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sluice_sdk::{AcquireError, Closed, LimitError};
use sluice_testkit::Fault;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{World, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
const TPM: &str = "acme#tpm";
const WITHIN: Duration = Duration::from_secs(10);

async fn world(kind: Kind) -> World {
    let world = World::new().await.with(kind);
    world.slots(SLOTS, 10).await;
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    world
}

async fn is_whole(world: &World) -> bool {
    world.free(SLOTS).await == "10" && world.leases().await == 0
}

#[tokio::test(start_paused = true)]
async fn grants_just_dropped_and_slots_that_end_in_time_are_all_given_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let mut slots = Vec::new();
        for _ in 0..5 {
            let slot = client.slot([SLOTS, TPM]).cost(TPM, 100);
            slots.push(tokio::spawn(slot.run(async |slot| {
                sleep(Duration::from_secs(2)).await;
                slot.used(TPM, 10)
            })));
        }
        settle().await;
        for _ in 0..3 {
            drop(take(&client, SLOTS).await);
        }
        let began = Instant::now();
        let closed = client.close(WITHIN).await;
        assert!(closed.is_clean() && !closed.cut_off, "{closed:?}");
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "it waits for the calls, and no longer: {:?}",
            began.elapsed()
        );
        for slot in slots {
            slot.await.unwrap().unwrap();
        }
        assert!(is_whole(&world).await);
        assert_eq!(world.whole_level(TPM).await, "950", "what they used is settled");
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_cut_off_and_given_back() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let slot = client.slot([SLOTS, TPM]).cost(TPM, 100);
        let running = tokio::spawn(slot.run(async |slot| {
            slot.used(TPM, 10)?;
            std::future::pending::<Result<(), LimitError>>().await
        }));
        let held = take(&client, SLOTS).await;
        let mut reply = take(&client, SLOTS).await.stream(stream::pending::<Result<(), LimitError>>());
        let forgotten = client.slot(SLOTS).grant().await.unwrap();
        std::mem::forget(forgotten);
        settle().await;
        let began = Instant::now();
        let closed = client.close(WITHIN).await;
        assert!(closed.is_clean() && closed.cut_off, "{closed:?}");
        assert!(
            began.elapsed() >= Duration::from_secs(7) && began.elapsed() <= WITHIN,
            "{:?}",
            began.elapsed()
        );
        assert!(matches!(running.await.unwrap(), Err(LimitError::Closed)));
        assert!(is_whole(&world).await);
        assert_eq!(world.whole_level(TPM).await, "990", "what the call used is settled");
        held.release().await.unwrap();
        let _ = futures_util::poll!(reply.next());
        drop(reply);
        settle().await;
        assert!(is_whole(&world).await, "nothing comes back twice");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_granted_anything_after_the_end_and_who_waits_learns_of_it() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(take(&client, SLOTS).await);
    }
    let waiting = tokio::spawn(client.slot(SLOTS).grant());
    settle().await;
    let closing = {
        let client = client.clone();
        tokio::spawn(async move { client.close(WITHIN).await })
    };
    assert!(matches!(waiting.await.unwrap(), Err(LimitError::Acquire(AcquireError::Closed))));
    assert!(matches!(client.acquire(SLOTS).await, Err(AcquireError::Closed)));
    for grant in held {
        grant.release().await.unwrap();
    }
    assert_eq!(closing.await.unwrap(), Closed::default());
    assert!(is_whole(&world).await);
    assert_eq!(client.close(WITHIN).await, Closed::default(), "a second time there is nothing to do");
}

#[tokio::test(start_paused = true)]
async fn stock_goes_back() {
    let world = World::with_rate("acme#rpm", 1_000, 1_000_000_000).await;
    let client = world.client_with(|settings| settings.prefetch(["acme#rpm"]));
    for _ in 0..20 {
        let _ = take(&client, "acme#rpm").await;
        sleep(Duration::from_millis(20)).await;
    }
    assert!(world.whole_level("acme#rpm").await.parse::<u32>().unwrap() < 980, "some is in stock");
    client.close(WITHIN).await;
    assert_eq!(world.whole_level("acme#rpm").await, "980");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_named_when_the_table_does_not_answer() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let _held = take(&client, SLOTS).await;
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let began = Instant::now();
        let closed = client.close(Duration::from_secs(4)).await;
        assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
        let [left] = closed.left.as_slice() else { panic!("{closed:?}") };
        assert_eq!(left.dimension.as_str(), SLOTS);
        world.dynamo.faults().draw(|_| None);
    }
}

/// Processes come and go under load; each closes its client before its runtime ends.
#[test]
fn runtimes_that_close_their_client_leave_nothing_and_those_that_do_not_leave_leases() {
    let setup = tokio::runtime::Runtime::new().unwrap();
    let world = setup.block_on(world(Kind::Rows));
    let run = |closes: bool| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let client = world.client();
            let begun = Arc::new(AtomicUsize::new(0));
            for _ in 0..5 {
                let (slot, begun) = (client.slot(SLOTS), Arc::clone(&begun));
                tokio::spawn(slot.run(async move |_| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<Result<(), LimitError>>().await
                }));
            }
            let dropped =
                [take(&client, SLOTS).await, take(&client, SLOTS).await, take(&client, SLOTS).await];
            while begun.load(Ordering::SeqCst) < 5 {
                sleep(Duration::from_millis(1)).await;
            }
            drop(dropped);
            if closes {
                assert!(client.close(Duration::from_secs(2)).await.is_clean());
            }
        });
        runtime.shutdown_background();
        setup.block_on(async { (world.free(SLOTS).await, world.leases().await) })
    };
    assert_eq!(run(true), ("10".to_owned(), 0));
    let (free, leases) = run(false);
    let free: usize = free.parse().unwrap();
    // Those of the slots, and perhaps some that were being given back.
    assert!(free <= 5 && leases >= 5, "{free} free, {leases} leases");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_under_way_is_waited_for_and_granted_nothing() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        drop(take(&client, SLOTS).await);
        settle().await;
        let late = Fault::DelayReply(Duration::from_millis(300));
        world.dynamo.faults().draw(move |_| Some(late.clone()));
        let asking = {
            let client = client.clone();
            tokio::spawn(async move { client.acquire(SLOTS).await })
        };
        settle().await;
        let closed = client.close(WITHIN).await;
        assert!(closed.is_clean(), "{closed:?}");
        assert!(matches!(asking.await.unwrap(), Err(AcquireError::Closed)));
        world.dynamo.faults().draw(|_| None);
        assert!(is_whole(&world).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_failed_meanwhile_is_named() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let closing = {
            let client = client.clone();
            tokio::spawn(async move { client.close(Duration::from_secs(40)).await })
        };
        settle().await;
        held.release().await.unwrap_err();
        let closed = closing.await.unwrap();
        assert_eq!(closed.left.len(), 1, "{closed:?}");
    }
}

/// The task that renews ends with its runtime; what another runtime holds is renewed there.
#[test]
fn leases_are_renewed_on_the_runtime_of_their_holder() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let world = second.block_on(world(Kind::Rows));
    let client = world.client_with(|settings| settings.renew_leases(true).lease_ttl(Duration::from_secs(1)));
    let one = first.block_on(take(&client, SLOTS));
    let other = second.block_on(take(&client, SLOTS));
    first.shutdown_background();
    second.block_on(async {
        let before = other.lease_ends().unwrap();
        for _ in 0..20 {
            sleep(Duration::from_millis(200)).await;
        }
        assert!(other.lease_ends().unwrap() > before, "it is renewed");
        other.release().await.unwrap();
    });
    std::mem::forget(one);
}
