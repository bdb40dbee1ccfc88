//! While DynamoDB does not answer: the first caller has its answer in time, all others at once, and its
//! return is found within a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_sdk::{
    AcquireError, Basis, Client, LimitError, OnUnavailable, Outcome, Request, RetryReason, StoreError,
};
use sluice_testkit::{Fault, Operation};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::events::{events, lines_of, listen};
use crate::kind::Kind;
use crate::world::{World, begin, take};

const RPM: &str = "openai#rpm";
const OTHER: &str = "cohere#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

const SECOND: Duration = Duration::from_secs(1);
/// The default of `answer_within`.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const OUTAGE: Duration = Duration::from_secs(60);

fn policies() -> [(OnUnavailable, Basis); 3] {
    let share = "0.1".parse().unwrap();
    [
        (OnUnavailable::Error, Basis::Table),
        (OnUnavailable::Allow, Basis::Unchecked),
        (OnUnavailable::Share(share), Basis::LocalShare),
    ]
}

async fn world() -> World {
    let world = World::embedded().await;
    world.rate(RPM, 1_000_000, 60).await;
    world.rate(OTHER, 1_000_000, 60).await;
    world.slots(SLOTS, 100).await;
    world
}

fn hang(world: &World) {
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
}

/// Counts the requests that are sent from now on, all of which hang.
fn count_hanging(world: &World) -> Arc<AtomicU64> {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    world.dynamo.faults().draw(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(Fault::Hang)
    });
    sent
}

fn is_out<T: std::fmt::Debug>(answer: &Result<T, AcquireError>) -> bool {
    matches!(answer, Err(AcquireError::Store(StoreError::Unavailable { .. })))
}

/// Until DynamoDB counts as out.
async fn goes_out(client: &Client) {
    assert!(is_out(&client.acquire(RPM).await));
}

/// The basis of what was granted; `None` for the error of an outage.
fn basis(answer: Result<Outcome, AcquireError>) -> Option<Basis> {
    match answer {
        Ok(outcome) => Some(outcome.granted().expect("granted").basis()),
        answer => {
            assert!(is_out(&answer), "{answer:?}");
            None
        }
    }
}

#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figure")]
async fn the_first_answer_comes_in_time_the_next_at_once_and_the_first_success_soon_after_the_return() {
    for (policy, local) in policies() {
        let expected = Some(local).filter(|basis| *basis != Basis::Table);
        let world = world().await;
        let client = world.client_with(|settings| settings.on_unavailable(policy));
        let _ = take(&client, RPM).await;
        hang(&world);
        let began = Instant::now();
        assert_eq!(basis(client.acquire(RPM).await), expected);
        let first = began.elapsed();
        assert!(first > Duration::from_secs(2) && first <= ANSWER_WITHIN, "{policy:?}: {first:?}");
        let mut took = Vec::new();
        while began.elapsed() < OUTAGE {
            let (asked, asked_really) = (Instant::now(), std::time::Instant::now());
            assert_eq!(basis(client.acquire(RPM).await), expected);
            took.push(asked_really.elapsed());
            assert_eq!(asked.elapsed(), Duration::ZERO, "{policy:?}: no timer");
            sleep(Duration::from_millis(50)).await;
        }
        took.sort();
        // Of real time, on a machine that may be busy.
        let half = took[took.len() / 2];
        println!("{policy:?}: the first after {first:?}, then {half:?} at the median");
        assert!(half < Duration::from_millis(1), "{policy:?}: {half:?}");
        world.dynamo.faults().clear();
        let returned = Instant::now();
        let of_table = |outcome: Result<Outcome, _>| matches!(outcome, Ok(Outcome::Granted(grant)) if grant.basis() == Basis::Table);
        while !of_table(client.acquire(RPM).await) {
            sleep(Duration::from_millis(10)).await;
        }
        println!("{policy:?}: the first success {:?} after the return", returned.elapsed());
        // With a share, when all processes have charged what they granted by themselves.
        let held = if local == Basis::LocalShare { Duration::from_millis(750) } else { Duration::ZERO };
        assert!(
            returned.elapsed() >= held && returned.elapsed() <= SECOND + held,
            "{policy:?}: {:?}",
            returned.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_has_its_local_answer_in_time_and_then_at_once() {
    for kind in [Kind::Rows, Kind::Inline] {
        for (policy, local) in policies().into_iter().skip(1) {
            let world = world().await.with(kind);
            let client = world.client_with(|settings| settings.on_unavailable(policy));
            take(&client, SLOTS).await.release().await.unwrap();
            hang(&world);
            for most in [ANSWER_WITHIN, Duration::ZERO] {
                let began = Instant::now();
                let slot = client.slot(SLOTS).timeout(OUTAGE);
                let basis = slot.run(async |slot| Ok::<_, LimitError>(slot.basis())).await.unwrap();
                assert_eq!(basis, local, "{kind:?}");
                assert!(began.elapsed() <= most, "{kind:?} {policy:?}: {:?}", began.elapsed());
            }
        }
    }
}

/// A caller in the queue of a bucket that its process knows, one of a bucket that it does not know, and one
/// for tokens and a slot.
#[tokio::test(start_paused = true)]
async fn slots_that_wait_through_the_outage_start_within_a_second_of_its_end() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world().await.with(kind);
        let client = world.client();
        take(&client, SLOTS).await.release().await.unwrap();
        hang(&world);
        let waiting: Vec<_> = [vec![SLOTS], vec![OTHER], vec![SLOTS, RPM]]
            .into_iter()
            .map(|dimensions| {
                let slot = client.slot(dimensions).timeout(Duration::from_secs(120));
                tokio::spawn(async move { slot.run(async |_| Ok::<_, LimitError>(Instant::now())).await })
            })
            .collect();
        sleep(OUTAGE).await;
        world.dynamo.faults().clear();
        let returned = Instant::now();
        for slot in waiting {
            let took = slot.await.unwrap().unwrap() - returned;
            assert!(took <= SECOND, "{kind:?}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_probes_a_second_are_all_that_is_sent_whatever_callers_ask() {
    let world = world().await;
    let client = world.client();
    take(&client, [RPM, SLOTS]).await.release().await.unwrap();
    let sent = count_hanging(&world);
    goes_out(&client).await;
    assert!(sent.load(Ordering::SeqCst) <= 3, "attempts of one caller");
    for slot in 0..100 {
        let slot = client.slot(if slot % 2 == 0 { SLOTS } else { OTHER }).timeout(OUTAGE);
        tokio::spawn(slot.run(async |_| Ok::<_, LimitError>(())));
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                assert!(is_out(&client.acquire([RPM, SLOTS]).await));
                sleep(Duration::from_millis(100)).await;
            }
        });
    }
    let before = sent.load(Ordering::SeqCst);
    sleep(Duration::from_secs(20)).await;
    let sent = sent.load(Ordering::SeqCst) - before;
    assert!((40..=80).contains(&sent), "one every 250 to 500 ms: {sent} in 20 s");
}

#[tokio::test(start_paused = true)]
async fn no_probe_is_sent_for_a_client_that_was_dropped() {
    let world = world().await;
    let client = world.client();
    let sent = count_hanging(&world);
    goes_out(&client).await;
    drop(client);
    sleep(SECOND).await;
    let before = sent.load(Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(sent.load(Ordering::SeqCst), before);
}

#[tokio::test(start_paused = true)]
async fn a_release_a_settlement_and_a_renewal_wait_for_the_return() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world().await.with(kind);
        let client = world.client();
        let (held, mut renewed) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
        let mut settled = take(&client, Request::from(RPM).cost(RPM, 10)).await;
        hang(&world);
        goes_out(&client).await;
        let release = begin(held.release()).await;
        let settle = begin(settled.settle(RPM, 30)).await;
        let renew = begin(renewed.renew()).await;
        sleep(Duration::from_secs(2)).await;
        world.dynamo.faults().clear();
        let (released, settled, renewed) = tokio::join!(release, settle, renew);
        assert!(
            released.is_ok() && settled.is_ok() && renewed.is_ok(),
            "{released:?} {settled:?} {renewed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn server_errors_that_come_at_once_are_an_outage_too() {
    let world = world().await;
    let client = world.client();
    let fault = Fault::service("InternalServerError", 500, serde_json::json!({"message": "x"}));
    world.dynamo.faults().draw(move |_| Some(fault.clone()));
    let began = Instant::now();
    while began.elapsed() <= ANSWER_WITHIN {
        goes_out(&client).await;
        sleep(Duration::from_millis(50)).await;
    }
    let sent = count_hanging(&world);
    goes_out(&client).await;
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_lost_now_and_then_are_no_outage() {
    let world = world().await;
    let client = world.client();
    for _ in 0..20 {
        world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseReply);
        for _ in 0..10 {
            let _ = take(&client, RPM).await;
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// DynamoDB answers others, so it is not out; but this caller has no answer.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_own_write_hangs_is_refused_in_time() {
    let world = world().await;
    let client = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    let _ = (take(&client, RPM).await, take(&client, OTHER).await);
    world.dynamo.faults().draw(|call| {
        let is_of = String::from_utf8_lossy(call.body).contains(RPM);
        is_of.then_some(Fault::Hang)
    });
    let others = client.clone();
    tokio::spawn(async move {
        loop {
            let _ = take(&others, OTHER).await;
            sleep(Duration::from_millis(500)).await;
        }
    });
    let began = Instant::now();
    let Outcome::RetryIn(retry) = client.acquire(RPM).await.unwrap() else { panic!("granted") };
    assert_eq!(
        (retry.reason(), began.elapsed().as_secs()),
        (RetryReason::Contended, ANSWER_WITHIN.as_secs())
    );
}

/// A read and a write that take 0.6 s each: the write is answered after its caller was.
#[tokio::test(start_paused = true)]
async fn tokens_that_are_granted_too_late_go_back() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 1_000_000).await;
    let client = world.client_with(|settings| settings.answer_within(SECOND));
    world.dynamo.faults().draw(|_| Some(Fault::DelayReply(Duration::from_millis(600))));
    let began = Instant::now();
    let Outcome::RetryIn(retry) = client.acquire(Request::from(RPM).cost(RPM, 4)).await.unwrap() else {
        panic!("granted")
    };
    assert_eq!((retry.reason(), began.elapsed()), (RetryReason::Contended, SECOND));
    world.dynamo.faults().clear();
    assert_eq!(world.whole_level(RPM).await, "6");
    sleep(SECOND).await;
    assert_eq!(world.whole_level(RPM).await, "10");
}

#[tokio::test(start_paused = true)]
async fn an_outage_and_its_end_are_each_logged_once() {
    listen();
    let world = world().await;
    let client = world.client_with(|settings| settings.on_unavailable(OnUnavailable::Allow));
    hang(&world);
    for _ in 0..3 {
        let _ = take(&client, RPM).await;
    }
    world.dynamo.faults().clear();
    sleep(SECOND).await;
    let events = events();
    let out = &events["dynamodb.out"];
    assert_eq!((out["level"].as_str(), out["silent_ms"].as_u64()), (Some("WARN"), Some(2_700)));
    assert!(out["cause"].as_str().unwrap().contains("no answer to any request within 2.7 s"), "{out}");
    let back = &events["dynamodb.back"];
    assert!((2_950..4_000).contains(&back["out_ms"].as_u64().unwrap()), "{back}");
    let unavailable = &events["acquire.unavailable"];
    assert_eq!(unavailable["level"], "DEBUG", "the first is a warning, the next are not");
    assert!(unavailable["message"].as_str().is_some_and(|text| text.contains("SLUICE_ON_UNAVAILABLE")));
}

/// Ten grants whose leases are due several times while DynamoDB is out.
#[tokio::test(start_paused = true)]
async fn renewals_that_fail_in_an_outage_are_a_warning_once() {
    listen();
    let world = world().await;
    let client = world.client_with(|settings| settings.renew_leases(true));
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(take(&client, SLOTS).await);
    }
    hang(&world);
    // One call makes the outage known before the first renewal is due.
    assert!(is_out(&client.acquire(RPM).await));
    sleep(OUTAGE).await;
    let failed = lines_of("lease.renewal_failed");
    assert!(failed.len() > 10, "{}", failed.len());
    let warned: Vec<_> = failed.iter().filter(|line| line["level"] == "WARN").collect();
    assert_eq!(warned.len(), 1, "{failed:#?}");
    assert!(warned[0]["message"].as_str().unwrap().contains("was not renewed"), "{warned:?}");
}

/// A program that drives its runtime only during its calls, and one whose runtime ended.
#[test]
fn the_outage_ends_although_the_runtime_that_found_it_does_not_run() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (world, client) = first.block_on(async {
        let world = world().await;
        let quick = Duration::from_millis(100);
        let client = world.client_with(|settings| settings.attempt_timeout(quick).answer_within(quick));
        let _ = take(&client, RPM).await;
        hang(&world);
        goes_out(&client).await;
        world.dynamo.faults().clear();
        (world, client)
    });
    assert!(is_out(&first.block_on(client.acquire(RPM))), "nothing drove the probes");
    std::thread::sleep(Duration::from_millis(2_100));
    assert!(
        first.block_on(client.acquire(RPM)).unwrap().granted().is_some(),
        "the next request is the probe"
    );
    hang(&world);
    first.block_on(goes_out(&client));
    drop(first);
    let probed = Arc::new(Notify::new());
    let seen = Arc::clone(&probed);
    world.dynamo.faults().draw(move |call| match call.operation {
        Operation::GetItem => {
            seen.notify_one();
            None
        }
        // No request of a caller is the probe.
        _ => Some(Fault::Hang),
    });
    second.block_on(async {
        assert!(is_out(&client.acquire(RPM).await));
        timeout(OUTAGE, probed.notified()).await.expect("the second runtime probes");
        world.dynamo.faults().clear();
        let ends = async {
            while is_out(&client.acquire(RPM).await) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(OUTAGE, ends).await.expect("the outage ends");
    });
}
