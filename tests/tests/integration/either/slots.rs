//! A slot waits, runs, and gives back, however it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_sdk::{Client, LimitError};
use sluice_testkit::{Fault, Operation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::KIND;
use crate::world::{LEASE_TTL, World, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
const RPM: &str = "openai#rpm";

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn ok<T>(value: T) -> Result<T, LimitError> {
    Ok(value)
}

/// A holder that goes on for `time`, and tells in the end whether it lost its lease.
fn held_until_done(client: Client, time: Duration) -> JoinHandle<bool> {
    tokio::spawn(async move {
        let slot = client.slot(SLOTS);
        let held = slot.run(async |slot| {
            sleep(time).await;
            ok(slot.is_lease_lost())
        });
        held.await.unwrap()
    })
}

async fn all_free(world: &World, free: &str) {
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), (free, 0));
}

#[tokio::test(start_paused = true)]
async fn success_error_panic_timeout_and_drop_give_the_slot_back() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    assert_eq!(client.slot(SLOTS).run(async |_| ok(7)).await.unwrap(), 7);
    all_free(&world, "1").await;

    let failed = client.slot(SLOTS).run(async |_| Err::<(), BoxError>("vendor".into())).await;
    assert_eq!(failed.unwrap_err().to_string(), "vendor");
    all_free(&world, "1").await;

    let panicking = client.clone();
    let panicked = tokio::spawn(async move {
        panicking.slot(SLOTS).run(async |_| -> Result<(), LimitError> { panic!("in the call") }).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    all_free(&world, "1").await;

    let timeout = Duration::from_secs(3);
    let began = Instant::now();
    let timed_out = client.slot(SLOTS).timeout(timeout).run(async |_| ok(sleep(Duration::from_secs(9)).await)).await;
    assert!(matches!(timed_out, Err(LimitError::TimedOut(t)) if t == timeout));
    assert_eq!(began.elapsed().as_secs(), 3);
    all_free(&world, "1").await;

    let dropped = {
        let client = client.clone();
        tokio::spawn(async move {
            client.slot(SLOTS).run(async |_| ok(sleep(Duration::from_secs(9)).await)).await.map(|_| ())
        })
    };
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.free(SLOTS).await, "0");
    dropped.abort();
    let _ = dropped.await;
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_holds_the_calls_value_up_for_three_seconds_at_most() {
    let world = KIND.with_slots(SLOTS, 1).await;
    // No outage is noted: the probe after it is not what hangs here, so the next attempt could hang too.
    let client = world.client_with(|settings| settings.answer_within(Duration::from_secs(60)));
    let began = Instant::now();
    let faults = world.dynamo.faults();
    let value = client.slot(SLOTS).run(async |_| {
        faults.always(KIND.write(), Fault::Hang);
        ok(7)
    });
    assert_eq!(value.await.unwrap(), 7);
    assert!(began.elapsed() <= Duration::from_millis(3_100), "{:?}", began.elapsed());
    faults.clear();
    // The release went on by itself: its next attempt gets through.
    sleep(Duration::from_secs(2)).await;
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn waiters_for_a_slot_are_served_in_order() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for n in 0..8 {
        let (client, order) = (client.clone(), Arc::clone(&order));
        let call = async move |_| {
            order.lock().unwrap().push(n);
            ok(sleep(Duration::from_millis(400)).await)
        };
        calls.push(tokio::spawn(async move { client.slot(SLOTS).run(call).await.unwrap() }));
        // In line before the next one comes.
        settle().await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_another_process_frees_is_found_within_a_quarter_second() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let held = take(&world.client(), SLOTS).await;
    let waiting = {
        let client = world.client();
        tokio::spawn(async move { client.slot(SLOTS).run(async |_| ok(Instant::now())).await.unwrap() })
    };
    sleep(Duration::from_secs(2)).await;
    let freed = Instant::now();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap() - freed <= Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_ends_at_the_timeout() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let _held = take(&world.client(), SLOTS).await;
    let client = world.client();
    for _ in 0..2 {
        let began = Instant::now();
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(
                    async move { client.slot(SLOTS).timeout(Duration::from_secs(4)).run(async |_| ok(())).await },
                )
            })
            .collect();
        for call in calls {
            assert!(matches!(call.await.unwrap(), Err(LimitError::Refused(_))));
        }
        assert!((4_000..4_100).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlasts_its_slots_timeout() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let long = Duration::from_secs(300);
    let call = {
        let client = client.clone();
        tokio::spawn(async move {
            client.slot(SLOTS).timeout(long).run(async |_| ok(sleep(Duration::from_secs(290)).await)).await
        })
    };
    sleep(LEASE_TTL * 4).await;
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0);
    call.await.unwrap().unwrap();
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_held_until_done_renews_its_lease_even_through_an_outage() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let call = held_until_done(world.client(), Duration::from_secs(600));
    for minute in 0..9 {
        sleep(Duration::from_secs(60)).await;
        if minute == 3 {
            world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
            sleep(Duration::from_secs(20)).await;
            world.dynamo.faults().clear();
        }
        assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().expired, 0);
    }
    assert!(!call.await.unwrap());
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_lease_is_gone_is_told_and_not_killed() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let call = held_until_done(world.client(), Duration::from_secs(100));
    sleep(Duration::from_secs(1)).await;
    // The clock jumps, as after a long freeze: the lease is over before its holder can renew it.
    world.pass_lease();
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
    assert!(call.await.unwrap(), "the call went on, and knew");
    all_free(&world, "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_that_fits_into_the_wait_is_waited_for() {
    let world = KIND.with_rate(RPM, 10, 60).await;
    world.slots(SLOTS, 1).await;
    for name in [RPM, SLOTS] {
        let mut row = world.row(name).await.unwrap();
        let until = world.dynamo.clock().now().after(Duration::from_secs(7));
        row.insert(sluice_core::schema::BLOCKED_UNTIL.into(), crate::world::number(&until.to_string()));
        world.put(row).await;
        let began = Instant::now();
        world.client().slot(name).run(async |_| ok(())).await.unwrap();
        // Starts are spread over a tenth of the wait, and looks over 10 ms.
        assert!((7_000..7_720).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_grant_of_a_raw_acquire_gives_back_when_it_is_dropped() {
    let world = KIND.with_slots(SLOTS, 2).await;
    drop(take(&world.client(), SLOTS).await);
    all_free(&world, "2").await;
}

/// The write that took the slot was applied, and nobody heard of it while the table was out of reach. Its
/// lease is as old as that write: a holder that believed in the one of its later plan would renew it after
/// its end, and others would have its slot meanwhile.
#[tokio::test(start_paused = true)]
async fn a_holder_that_hears_of_its_grant_after_an_outage_has_the_slot_alone() {
    for outage in [40, 75].map(Duration::from_secs) {
        let world = KIND.with_slots(SLOTS, 1).await;
        let client = world.client();
        take(&client, SLOTS).await.release().await.unwrap();
        let (began, is_taken) = (Instant::now(), AtomicBool::new(false));
        world.dynamo.faults().draw(move |call| {
            let is_first = call.operation == KIND.write() && !is_taken.swap(true, Ordering::SeqCst);
            let lost = if is_first { Fault::LoseReply } else { Fault::LoseRequest };
            (began.elapsed() < outage).then_some(lost)
        });
        let (starts, started) = tokio::sync::oneshot::channel();
        let holding = tokio::spawn(async move {
            let slot = client.slot(SLOTS).max_wait(Duration::from_secs(120));
            let held = slot.run(async |slot| {
                starts.send(()).unwrap();
                sleep(Duration::from_secs(150)).await;
                ok(slot.is_lease_lost())
            });
            held.await.unwrap()
        });
        started.await.unwrap();
        assert!(began.elapsed() >= outage);
        let other = world.client();
        while !holding.is_finished() {
            other.ops().sweep(SweepOptions::default()).await.unwrap();
            let outcome = other.acquire(SLOTS).await.unwrap();
            assert!(holding.is_finished() || outcome.granted().is_none(), "granted after {:?}", began.elapsed());
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!holding.await.unwrap(), "the lease was lost");
    }
}
