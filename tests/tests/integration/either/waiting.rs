//! Who waits for a slot keeps its place until its own deadline: throttling, an outage and slow replies delay
//! the line and never empty it.

use std::time::Duration;

use sluice_sdk::{AcquireError, Basis, Client, ClientBuilder, LimitError, OnUnavailable, RetryReason, StoreError};
use sluice_testkit::{Fault, Operation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::KIND;
use crate::world::{World, refusal, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";

/// A call that takes no time, once it has its slot within `patience`; and when it had its answer.
fn waits(client: &Client, patience: Duration) -> JoinHandle<(Result<Basis, LimitError>, Instant)> {
    let slot = client.slot(SLOTS).timeout(Duration::from_secs(120)).max_wait(patience);
    tokio::spawn(async move { (slot.run(async |slot| Ok(slot.basis())).await, Instant::now()) })
}

fn throttle(world: &World) {
    world.dynamo.faults().draw(|_| Some(Fault::throttled()));
}

/// Ten callers in each of five processes, of whom half would wait for less than the throttling lasts.
#[tokio::test(start_paused = true)]
async fn ten_seconds_of_throttling_refuse_nobody_who_waits_and_the_first_release_after_it_is_taken_at_once() {
    let (short, long) = (Duration::from_secs(7), Duration::from_secs(40));
    let world = KIND.with_slots(SLOTS, 1).await;
    let held = take(&world.client(), SLOTS).await;
    let began = Instant::now();
    let clients = [0; 5].map(|_| world.client());
    let in_line = |patience| {
        let waiting = clients.iter().flat_map(|client| [0; 5].map(|_| waits(client, patience)));
        waiting.collect::<Vec<_>>()
    };
    let (impatient, patient) = (in_line(short), in_line(long));
    sleep(Duration::from_secs(2)).await;
    throttle(&world);
    sleep(Duration::from_secs(10)).await;
    for caller in impatient {
        let (answer, at) = caller.await.unwrap();
        assert!(matches!(answer, Err(LimitError::Refused(_))), "{answer:?}");
        assert_eq!((at - began).as_millis() / 10, short.as_millis() / 10, "at its deadline");
    }
    assert!(patient.iter().all(|caller| !caller.is_finished()), "nobody is refused before its own deadline");
    world.dynamo.faults().clear();
    held.release().await.unwrap();
    let released = Instant::now();
    let mut first = None;
    for caller in patient {
        let (answer, at) = caller.await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        first = first.into_iter().chain([at]).min();
    }
    let taken_after = first.unwrap() - released;
    assert!(taken_after <= Duration::from_millis(500), "{taken_after:?}");
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
}

/// The bucket was full when it was read last; that is long ago.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_the_table_hangs_is_not_told_that_every_slot_is_held() {
    for (hangs_for, told) in [(2_500, RetryReason::Contended), (0, RetryReason::NoFreeSlot)] {
        let world = KIND.with_slots(SLOTS, 1).await;
        let _held = take(&world.client(), SLOTS).await;
        let client = world.client();
        let caller = waits(&client, Duration::from_secs(5));
        sleep(Duration::from_millis(5_000 - hangs_for)).await;
        world.dynamo.faults().draw(move |_| (hangs_for > 0).then_some(Fault::Hang));
        let (answer, _) = caller.await.unwrap();
        let Err(LimitError::Refused(retry)) = answer else { panic!("{answer:?}") };
        assert_eq!(retry.reason(), told);
    }
}

/// Reads only, as when the polls of others are too many; and writes only.
#[tokio::test(start_paused = true)]
async fn throttled_reads_and_throttled_writes_alone_keep_the_line_too() {
    for operation in [Operation::GetItem, KIND.write()] {
        let world = KIND.with_slots(SLOTS, 1).await;
        let (client, other) = (world.client(), world.client());
        let held = take(&other, SLOTS).await;
        refusal(&client, SLOTS).await;
        let caller = waits(&client, Duration::from_secs(30));
        world.dynamo.faults().always(operation, Fault::throttled());
        sleep(Duration::from_secs(5)).await;
        assert!(!caller.is_finished(), "{operation:?}");
        world.dynamo.faults().clear();
        held.release().await.unwrap();
        let released = Instant::now();
        let (answer, at) = caller.await.unwrap();
        assert!(answer.is_ok() && at - released <= Duration::from_millis(500), "{operation:?}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_delays_the_line_and_is_the_answer_only_at_the_deadline() {
    for fault in [
        Fault::LoseRequest,
        Fault::Hang,
        Fault::service("InternalServerError", 500, serde_json::json!({"message": "x"})),
    ] {
        let world = KIND.with_slots(SLOTS, 1).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        let began = Instant::now();
        let (impatient, patient) = (waits(&client, Duration::from_secs(15)), waits(&client, Duration::from_secs(60)));
        sleep(Duration::from_secs(1)).await;
        let all = fault.clone();
        world.dynamo.faults().draw(move |_| Some(all.clone()));
        let (answer, at) = impatient.await.unwrap();
        assert_eq!((at - began).as_secs(), 15, "{fault:?}");
        let Err(LimitError::Acquire(AcquireError::Store(error))) = answer else { panic!("{fault:?}: {answer:?}") };
        assert!(matches!(error, StoreError::Unavailable { .. }), "{fault:?}: {error}");
        assert!(!patient.is_finished(), "{fault:?}");
        world.dynamo.faults().clear();
        held.release().await.unwrap();
        assert!(patient.await.unwrap().0.is_ok(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_an_outage_is_answered_locally_nobody_waits_for_its_end() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    let _held = take(&client, SLOTS).await;
    let caller = waits(&client, Duration::from_secs(60));
    sleep(Duration::from_secs(1)).await;
    world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
    let began = Instant::now();
    let (answer, at) = caller.await.unwrap();
    assert_eq!(answer.unwrap(), Basis::Unchecked);
    assert!(at - began <= Duration::from_secs(1), "{:?}", at - began);
}

#[tokio::test(start_paused = true)]
async fn what_time_does_not_mend_is_told_to_those_who_wait_at_once() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client();
    let _held = take(&world.client(), SLOTS).await;
    let caller = waits(&client, Duration::from_secs(60));
    sleep(Duration::from_secs(1)).await;
    let denied = serde_json::json!({ "message": "not authorized" });
    world.dynamo.faults().always(Operation::GetItem, Fault::service("AccessDeniedException", 400, denied));
    let began = Instant::now();
    let (answer, at) = caller.await.unwrap();
    assert!(
        matches!(answer, Err(LimitError::Acquire(AcquireError::Store(StoreError::AccessDenied { .. })))),
        "{answer:?}"
    );
    assert!(at - began <= Duration::from_secs(1), "{:?}", at - began);
}

/// Beside one who waits, whatever hangs.
#[tokio::test(start_paused = true)]
async fn who_does_not_wait_has_its_answer_in_the_time_that_is_stated() {
    for fault in [Fault::Hang, Fault::throttled(), Fault::conflict()] {
        let world = KIND.with_slots(SLOTS, 1).await;
        let client = world.client();
        let lease = |settings: ClientBuilder| settings.lease_ttl(Duration::from_secs(3_600));
        let _held = take(&world.client_with(lease), SLOTS).await;
        let _waiting = waits(&client, Duration::from_secs(100));
        sleep(Duration::from_secs(1)).await;
        let all = fault.clone();
        world.dynamo.faults().draw(move |_| Some(all.clone()));
        for _ in 0..20 {
            let answer = timeout(client.longest_acquire(), client.acquire(SLOTS)).await.expect("bounded");
            assert!(answer.map_or(true, |outcome| outcome.granted().is_none()), "{fault:?}");
            sleep(Duration::from_millis(1_700)).await;
        }
        world.dynamo.faults().clear();
        assert_eq!(refusal(&world.client(), SLOTS).await.reason(), RetryReason::NoFreeSlot);
    }
}

/// One whose caller left while the line stood still for others is not in the way of those who come.
#[tokio::test(start_paused = true)]
async fn a_line_that_everyone_left_refuses_nobody() {
    let world = KIND.with_slots(SLOTS, 1).await;
    let client = world.client_with(|settings| settings.self_heal(false));
    let held = take(&world.client(), SLOTS).await;
    let gone = waits(&client, Duration::from_secs(60));
    sleep(Duration::from_secs(1)).await;
    throttle(&world);
    sleep(Duration::from_secs(2)).await;
    gone.abort();
    world.dynamo.faults().clear();
    held.release().await.unwrap();
    let _ = take(&client, SLOTS).await;
}

/// In a process that reads its buckets first, over a network on which each request takes 5 ms.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_before_the_table_answers_is_granted_what_is_free() {
    const RPM: &str = "openai#rpm";
    for wait in [0, 3, 20] {
        let world = KIND.with_slots(SLOTS, 1).await;
        world.rate(RPM, 2, 100).await;
        let world = world.distant();
        let slot = |client: &Client, name: &'static str| client.slot(name).max_wait(Duration::from_millis(wait));
        for name in [SLOTS, RPM] {
            let client = world.client();
            slot(&client, name).grant().await.unwrap().release().await.unwrap();
            slot(&client, name).grant().await.unwrap().release().await.unwrap();
        }
        let _held = take(&world.client(), SLOTS).await;
        for (name, told) in [(SLOTS, RetryReason::NoFreeSlot), (RPM, RetryReason::Exhausted)] {
            let refused = slot(&world.client(), name).grant().await;
            let Err(LimitError::Refused(retry)) = refused else { panic!("{wait} ms: {refused:?}") };
            assert_eq!(retry.reason(), told, "{wait} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_nothing_before_a_silent_table_is_told_of_the_silence() {
    let world = KIND.with_slots(SLOTS, 1).await;
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    let began = Instant::now();
    let answer = world.client().slot(SLOTS).max_wait(Duration::ZERO).grant().await;
    let Err(LimitError::Acquire(AcquireError::Store(error))) = answer else { panic!("{answer:?}") };
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() <= Duration::from_millis(3_250), "{:?}", began.elapsed());
}
