//! Several dimensions, one answer: all of them or none.

use std::time::Duration;

use crate::world::{World, take};
use sluice_sdk::{Outcome, Request, RetryReason};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "openai#concurrent";

async fn world() -> World {
    let world = World::with_rate(RPM, 10, 1_000_000).await;
    world.rate(TPM, 1_000, 1_000_000).await;
    world.slots(SLOTS, 1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_one_rate_leaves_the_others_as_they_were() {
    let world = world().await;
    let client = world.client();
    let answer = client.acquire(Request::from([RPM, TPM]).cost(TPM, 900)).await.unwrap();
    assert!(matches!(answer, Outcome::Granted(_)));
    // A second process has not seen that, and sends both writes.
    let Outcome::RetryIn(retry) =
        world.client().acquire(Request::from([RPM, TPM]).cost(TPM, 200)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((retry.dimension().as_str(), retry.reason()), (TPM, RetryReason::Exhausted));
    assert_eq!((world.level(RPM).await.as_str(), world.level(TPM).await.as_str()), ("9", "100"));
}

#[tokio::test(start_paused = true)]
async fn what_one_granted_is_given_back_when_the_other_was_overtaken() {
    let world = world().await;
    let (first, second) = (world.client(), world.client());
    let both = |cost| Request::from([RPM, TPM]).cost(TPM, cost);
    for client in [&first, &second] {
        assert!(client.acquire(both(10)).await.unwrap().granted().is_some());
    }
    assert!(second.acquire(both(900)).await.unwrap().granted().is_some());
    // The first still believes that about 980 are left.
    assert!(first.acquire(both(500)).await.unwrap().granted().is_none());
    assert_eq!((world.level(RPM).await.as_str(), world.level(TPM).await.as_str()), ("7", "80"));
}

#[tokio::test(start_paused = true)]
async fn tokens_whose_return_got_no_reply_are_not_returned_twice() {
    use sluice_testkit::{Fault, Operation};
    let world = world().await;
    let client = world.client();
    let both = |cost| Request::from([RPM, TPM]).cost(TPM, cost);
    for _ in 0..4 {
        assert!(client.acquire(both(240)).await.unwrap().granted().is_some());
    }
    // A second process reads the rows before the last of it was taken, and sends both writes; then the return
    // loses its reply.
    let late = world.client();
    let stale = late.acquire(both(1)).await.unwrap();
    assert!(stale.granted().is_some());
    assert!(client.acquire(both(30)).await.unwrap().granted().is_some());
    for fault in [Fault::Delay(Duration::ZERO), Fault::Delay(Duration::ZERO), Fault::LoseReply] {
        world.dynamo.faults().next(Operation::UpdateItem, fault);
    }
    let before = world.level(RPM).await;
    assert!(late.acquire(both(30)).await.unwrap().granted().is_none());
    assert_eq!(world.level(RPM).await, before);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_is_told() {
    let world = World::with_rate(RPM, 1, 60).await;
    world.rate(TPM, 1, 4_000).await;
    let client = world.client();
    for name in [RPM, TPM] {
        let _ = take(&client, name).await;
    }
    let Outcome::RetryIn(retry) = client.acquire([RPM, TPM]).await.unwrap() else { panic!() };
    assert_eq!((retry.dimension().as_str(), retry.wait()), (TPM, Duration::from_secs(4_000)));
}

#[tokio::test(start_paused = true)]
async fn with_a_concurrency_limit_among_them_it_is_one_transaction() {
    let world = world().await;
    let client = world.client();
    let grant = client.acquire([RPM, TPM, SLOTS]).await.unwrap().granted().unwrap();
    grant.release().await.unwrap();
    world.dynamo.meter().reset();
    let grant = client.acquire([RPM, TPM, SLOTS]).await.unwrap().granted().unwrap();
    assert_eq!(world.dynamo.meter().reset().requests, 1);
    let refused = world.client().acquire([RPM, TPM, SLOTS]).await.unwrap();
    assert!(matches!(refused, Outcome::RetryIn(retry) if retry.reason() == RetryReason::NoFreeSlot));
    assert_eq!(world.level(RPM).await, "8");
    grant.release().await.unwrap();
    assert_eq!((world.free(SLOTS).await.as_str(), world.level(RPM).await.as_str()), ("1", "8"));
}
