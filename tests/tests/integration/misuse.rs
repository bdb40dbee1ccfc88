//! Mistakes that programs make: each is impossible, refused, or named.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sluice_sdk::{
    AcquireError, Client, Dimension, LimitError, Outcome, Released, Request, RequestError, SettleError,
};
use tokio::time::{Instant, sleep, timeout};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, settle, take};

const SLOTS: &str = "elevenlabs#concurrent";
const TPM: &str = "acme#tpm";

async fn world(kind: Kind) -> World {
    let world = World::new().await.with(kind);
    world.slots(SLOTS, 2).await;
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_slot_inside_of_a_slot_of_the_same_bucket_is_refused_at_once() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let nested = |client: Client| async move {
            let began = Instant::now();
            let inner = client.slot(SLOTS).run(async |_| Ok::<_, LimitError>(())).await;
            (inner, began.elapsed())
        };
        let outer = client.slot([SLOTS, TPM]).cost(TPM, 1);
        let (inner, took) =
            outer.run(async |_| Ok::<_, LimitError>(nested(client.clone()).await)).await.unwrap();
        let error = inner.unwrap_err();
        assert!(
            matches!(&error, LimitError::Acquire(AcquireError::Request(RequestError::Nested(of))) if of.as_str() == SLOTS),
            "{error:?}"
        );
        assert!(took < Duration::from_secs(1), "{took:?}");
        // Another client, another bucket, and another task wait for nobody around them.
        let other = world.client();
        let fine = client.slot(SLOTS).run(async |_| {
            nested(other.clone()).await.0?;
            client.slot(TPM).cost(TPM, 1).run(async |_| Ok::<_, LimitError>(())).await?;
            tokio::spawn(client.slot(SLOTS).run(async |_| Ok::<_, LimitError>(()))).await.unwrap()
        });
        fine.await.unwrap();
        assert_eq!(world.free(SLOTS).await, "2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_use_that_is_reported_after_the_slot_has_ended_is_an_error() {
    let world = world(Kind::Rows).await;
    let slot =
        world.client().slot(TPM).cost(TPM, 100).run(async |slot| Ok::<_, LimitError>(slot)).await.unwrap();
    let error = slot.used(TPM, 10).unwrap_err();
    assert!(matches!(error, LimitError::Settle(SettleError::Ended(_))), "{error:?}");
    assert!(error.to_string().contains("before the closure returns"), "{error}");
    assert_eq!(world.whole_level(TPM).await, "900");
}

#[test]
fn an_acquire_outside_of_a_runtime_is_an_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_world, client) = runtime.block_on(async {
        let world = world(Kind::Rows).await;
        let client = world.client();
        (world, client)
    });
    let error = futures_executor(client.acquire(SLOTS)).unwrap_err();
    assert!(matches!(error, AcquireError::NoRuntime) && error.to_string().contains("tokio::main"), "{error}");
    let error = futures_executor(client.slot(SLOTS).run(async |_| Ok::<_, LimitError>(()))).unwrap_err();
    assert!(matches!(error, LimitError::Acquire(AcquireError::NoRuntime)), "{error}");
}

/// Polls a future that must be ready at once, without any runtime.
fn futures_executor<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_grant_that_is_dropped_on_a_bare_thread_is_given_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (world, grant) = runtime.block_on(async {
        let world = world(Kind::Rows).await;
        let grant = take(&world.client(), SLOTS).await;
        assert_eq!(world.free(SLOTS).await, "1");
        (world, grant)
    });
    std::thread::spawn(move || drop(grant)).join().unwrap();
    runtime.block_on(async {
        let back = async {
            while world.free(SLOTS).await != "2" {
                sleep(Duration::from_millis(5)).await
            }
        };
        timeout(Duration::from_secs(5), back).await.expect("the slot comes back");
        assert_eq!(world.leases().await, 0);
    });
}

#[tokio::test(start_paused = true)]
async fn a_grant_from_acquire_keeps_its_lease_unless_it_is_told_not_to() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let renewed = take(&world.client_with(|settings| settings.renew_leases(true)), SLOTS).await;
        let forgotten = take(&world.client_with(|settings| settings.renew_leases(false)), SLOTS).await;
        for _ in 0..20 {
            sleep(LEASE_TTL / 8).await;
        }
        world.client().ops().sweep(sluice_ops::SweepOptions::default()).await.unwrap();
        assert_eq!(world.free(SLOTS).await, "1", "that of the one that is not renewed");
        assert!(!renewed.is_lease_lost());
        assert_eq!(renewed.release().await.unwrap(), Released::GivenBack);
        assert_eq!(forgotten.release().await.unwrap(), Released::LeaseGone);
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_as_long_as_it_takes_unless_a_time_is_named() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let call = async |slot: sluice_sdk::Slot| {
            sleep(Duration::from_secs(200)).await;
            Ok::<_, LimitError>(slot.is_lease_lost())
        };
        assert!(!client.slot(SLOTS).run(call).await.unwrap());
        let began = Instant::now();
        let cut = client.slot(SLOTS).max_call(Duration::from_secs(31)).run(call).await.unwrap_err();
        assert!(matches!(cut, LimitError::TimedOut(after) if after >= Duration::from_secs(31)), "{cut:?}");
        assert!(began.elapsed() < Duration::from_secs(33));
        let (began, deadline) = (Instant::now(), std::time::SystemTime::now() + Duration::from_secs(60));
        let cut = client.slot(SLOTS).until(deadline).run(call).await.unwrap_err();
        assert!(matches!(cut, LimitError::TimedOut(_)), "{cut:?}");
        let left = Duration::from_secs(60).saturating_sub(began.elapsed());
        assert!(
            left >= Duration::from_secs(3) && left <= Duration::from_secs(5),
            "{left:?} are left for the release"
        );
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_gives_its_slot_back() {
    #[derive(Debug, thiserror::Error)]
    enum AppError {
        #[error(transparent)]
        Limit(#[from] LimitError),
    }
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let idle = Duration::from_secs(30);
        // A piece each 20 s is not idle.
        let slow = stream::unfold(0, async |n| {
            sleep(Duration::from_secs(20)).await;
            (n < 5).then_some((Ok::<_, AppError>(n), n + 1))
        });
        let reply = take(&client, SLOTS).await.stream(slow).idle_timeout(idle);
        assert_eq!(reply.try_collect::<Vec<_>>().await.unwrap(), [0, 1, 2, 3, 4]);
        // A reader that stalls.
        let mut stalled = take(&client, SLOTS)
            .await
            .stream(stream::repeat_with(|| Ok::<_, AppError>(1)))
            .idle_timeout(idle);
        assert_eq!(stalled.try_next().await.unwrap(), Some(1));
        sleep(Duration::from_secs(29)).await;
        assert_eq!(world.free(SLOTS).await, "1");
        sleep(Duration::from_secs(2)).await;
        settle().await;
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("2", 0));
        // What the reader had read of the use counts.
        let pieces = stream::iter([Ok::<_, AppError>(7)]).chain(stream::pending());
        let slot = client.slot([SLOTS, TPM]).cost(TPM, 100);
        let reply = slot.stream(async |_| Ok::<_, AppError>(Box::pin(pieces))).await.unwrap();
        let mut reply = reply.used(TPM, |piece| Some(*piece)).idle_timeout(idle);
        assert_eq!(reply.try_next().await.unwrap(), Some(7));
        assert!(reply.try_next().await.is_err());
        settle().await;
        assert_eq!(world.whole_level(TPM).await, "993");
        let error = stalled.try_next().await.unwrap_err();
        assert!(matches!(error, AppError::Limit(LimitError::Idle(after)) if after == idle), "{error:?}");
        assert!(stalled.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_carried_ticket_is_redeemed_by_its_own_request_alone() {
    let world = World::with_rate("acme#rpm", 1, 1).await;
    world.rate("other#rpm", 10, 60).await;
    world.slots(SLOTS, 2).await;
    world.rate("slow#rpm", 2, 20).await;
    let client = world.client();
    let request = || Request::from("slow#rpm").ticket_within(Duration::from_secs(60));
    let _two = [take(&client, "slow#rpm").await, take(&client, "slow#rpm").await];
    let Outcome::RetryIn(retry) = client.acquire(request()).await.unwrap() else { panic!("there are two") };
    let ticket = retry.ticket().unwrap().clone();
    // Not yet.
    let early = client.acquire(request().with_ticket(Some(ticket.clone()))).await.unwrap();
    assert!(matches!(&early, Outcome::RetryIn(retry) if retry.ticket() == Some(&ticket)), "{early:?}");
    let other =
        client.acquire(Request::from("other#rpm").with_ticket(Some(ticket.clone()))).await.unwrap_err();
    assert!(matches!(other, AcquireError::Request(RequestError::OtherTicket(_))), "{other}");
    let slot = client.slot(request().with_ticket(Some(ticket.clone()))).grant().await.unwrap_err();
    assert!(
        matches!(slot, LimitError::Acquire(AcquireError::Request(RequestError::TicketForSlot))),
        "{slot}"
    );
    world.pass(retry.wait());
    let granted = client.acquire(request().with_ticket(Some(ticket.clone()))).await.unwrap();
    assert!(granted.granted().is_some());
    // Spent: the request acquires anew, and books a start of its own.
    let again = client.acquire(request().with_ticket(Some(ticket.clone()))).await.unwrap();
    assert!(
        matches!(&again, Outcome::RetryIn(retry) if retry.ticket().is_some_and(|new| *new != ticket)),
        "{again:?}"
    );
}

/// Nothing would cut the call of a grant off.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_waited_for_takes_no_longest_call() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let slot = || client.slot(SLOTS).max_call(Duration::from_secs(5));
    let error = slot().grant().await.unwrap_err();
    assert!(
        matches!(error, LimitError::Acquire(AcquireError::Request(RequestError::MaxCallForGrant))),
        "{error}"
    );
    let streamed =
        slot().stream(async |_| Ok::<_, LimitError>(stream::empty::<Result<(), LimitError>>())).await;
    let error = streamed.err().unwrap();
    assert!(error.to_string().contains("leave max_call out"), "{error}");
    assert_eq!(world.whole_level(SLOTS).await, "2");
}

/// A dimension that is a constant is taken wherever a text is.
#[tokio::test(start_paused = true)]
async fn dimensions_may_be_constants() {
    const SLOT: Dimension = Dimension::constant(SLOTS);
    const TOKENS: Dimension = Dimension::constant(TPM);
    let world = world(Kind::Rows).await;
    let client = world.client();
    let mut grant =
        client.acquire(Request::from([SLOT, TOKENS]).cost(TOKENS, 10)).await.unwrap().granted().unwrap();
    grant.settle(&TOKENS, 5).await.unwrap();
    grant.release().await.unwrap();
    let call = client.slot(TOKENS).cost(TOKENS, 10).run(async |slot| {
        slot.used(&TOKENS, 5)?;
        slot.reply(sluice_sdk::Reply::new(200, &[("a", "b")]), (TOKENS, 7)).await
    });
    call.await.unwrap();
    settle().await;
    assert_eq!(world.whole_level(TPM).await, "988");
    assert!(client.acquire(SLOT).await.unwrap().granted().is_some());
    assert!(client.acquire(&SLOT).await.unwrap().granted().is_some());
}
