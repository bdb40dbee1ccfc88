//! Grants that are waited for, their errors, and requests that are mistakes.

use std::error::Error;
use std::time::Duration;

use futures_util::{TryStreamExt as _, stream};
use sluice_sdk::{AcquireError, LimitError, Outcome, Request, RequestError, RetryReason, Ticket};
use sluice_testkit::Fault;
use tokio::time::{Instant, sleep};

use crate::kind::Kind;
use crate::world::{LEASE_TTL, World, settle, take};

const RPM: &str = "acme#rpm";
const TPM: &str = "acme#tpm";
const SLOTS: &str = "acme#concurrent";

type BoxError = Box<dyn Error + Send + Sync>;

/// The kind of error that a product has.
#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error("the vendor failed")]
    Vendor,
    #[error(transparent)]
    Limit(#[from] LimitError),
}

fn request_error(error: LimitError) -> RequestError {
    match error {
        LimitError::Acquire(AcquireError::Request(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A bucket of 1,000 tokens that hardly refills, a slot, and ten requests.
async fn world(kind: Kind) -> World {
    let world = World::new().await.with(kind);
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    world.rate(RPM, 10, 1_000_000_000).await;
    world.slots(SLOTS, 1).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_waited_for_in_the_order_of_asking_beside_slots() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let held = take(&client, SLOTS).await;
        let slot = {
            let slot = client.slot(SLOTS);
            tokio::spawn(slot.run(async |_| Ok::<_, LimitError>(sleep(Duration::from_secs(2)).await)))
        };
        settle().await;
        let began = Instant::now();
        let granted = tokio::spawn(client.slot(SLOTS).grant());
        settle().await;
        assert!(matches!(client.acquire(SLOTS).await.unwrap(), Outcome::RetryIn(_)), "it passes nobody");
        held.release().await.unwrap();
        let grant = granted.await.unwrap().unwrap();
        assert!(began.elapsed() >= Duration::from_secs(2), "behind the slot: {:?}", began.elapsed());
        slot.await.unwrap().unwrap();
        assert_eq!(world.free(SLOTS).await, "0");
        // The grant is its holder's, for longer than the timeout of a slot.
        sleep(Duration::from_secs(40)).await;
        assert_eq!(world.free(SLOTS).await, "0");
        grant.release().await.unwrap();
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("1", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_does_not_come_within_the_wait_is_a_refusal_and_leaves_nothing() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let _held = take(&world.client(), SLOTS).await;
        let began = Instant::now();
        let refused = client.slot([SLOTS, TPM]).cost(TPM, 100).max_wait(Duration::from_secs(3)).grant().await;
        let Err(LimitError::Refused(retry)) = refused else { panic!("{refused:?}") };
        assert_eq!((retry.reason(), began.elapsed().as_secs()), (RetryReason::NoFreeSlot, 3));
        assert!(retry.delay_seconds() > 0);
        settle().await;
        assert_eq!((world.whole_level(TPM).await.as_str(), world.leases().await), ("1000", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_grant_gives_back_its_slot_and_its_tokens() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        // Not full: a bucket takes back what it has room for.
        take(&client, Request::from(TPM).cost(TPM, 100)).await.release().await.unwrap();
        let grant = client.slot([SLOTS, TPM]).cost(TPM, 400).grant().await.unwrap();
        assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("500", "0"));
        grant.cancel().await;
        assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("900", "1"));
        assert_eq!(world.leases().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_its_grant_keeps_it_while_it_opens_and_settles() {
    for kind in [Kind::Rows, Kind::Inline] {
        let world = world(kind).await;
        let client = world.client();
        let opened = client.slot([SLOTS, TPM]).cost(TPM, 400).stream(async |_| {
            // The vendor takes longer to answer than a lease lasts.
            sleep(LEASE_TTL * 2).await;
            Ok::<_, AppError>(stream::iter([Ok::<_, std::io::Error>(None), Ok(Some(150))]))
        });
        let reply = opened.await.unwrap().used(TPM, |piece| *piece);
        assert_eq!(world.free(SLOTS).await, "0");
        assert_eq!(reply.try_collect::<Vec<_>>().await.unwrap(), [None, Some(150)]);
        assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("850", "1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_open_gives_everything_back() {
    let world = world(Kind::Rows).await;
    let open = async |_: &mut sluice_sdk::Grant| {
        Err::<stream::Empty<Result<(), std::io::Error>>, _>(AppError::Vendor)
    };
    let failed = world.client().slot([SLOTS, TPM]).cost(TPM, 400).stream(open).await;
    assert!(matches!(failed, Err(AppError::Vendor)));
    settle().await;
    assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("1000", "1"));
}

/// Each error of a slot passes `?` in a task, whatever the closure's own error is.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_slot_is_the_callers_own() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let _held = take(&world.client(), SLOTS).await;
    let spawned = tokio::spawn(async move {
        let now = || client.slot(SLOTS).max_wait(Duration::ZERO);
        let boxed: Result<(), BoxError> = now().run(async |_| Ok(())).await;
        let own: Result<(), AppError> = now().run(async |_| Ok(())).await;
        (boxed, own)
    });
    let (boxed, own) = spawned.await.unwrap();
    assert!(boxed.unwrap_err().downcast_ref::<LimitError>().is_some());
    assert!(matches!(own, Err(AppError::Limit(LimitError::Refused(_)))), "{own:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_says_what_stays_taken() {
    let world = world(Kind::Rows).await;
    let slot = world.client().slot([SLOTS, TPM]).cost(TPM, 400).timeout(Duration::from_secs(1));
    let error = slot.run(async |_| std::future::pending::<Result<(), LimitError>>().await).await.unwrap_err();
    assert!(
        matches!(error, LimitError::TimedOut(_)) && error.to_string().contains("keeps its tokens"),
        "{error}"
    );
    settle().await;
    assert_eq!((world.whole_level(TPM).await.as_str(), world.free(SLOTS).await.as_str()), ("600", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_cost_of_tokens_is_an_error_and_takes_nothing() {
    let world = world(Kind::Rows).await;
    let client = world.client_with(|settings| settings.prefetch([TPM]));
    for known in [false, true] {
        let slot = client.slot([RPM, TPM]).run(async |_| Ok::<_, LimitError>(())).await;
        assert!(matches!(request_error(slot.unwrap_err()), RequestError::NoCost(_)), "known: {known}");
        let acquired = client.acquire(TPM).await.unwrap_err();
        assert!(acquired.to_string().contains("acme#tpm counts tokens"), "{acquired}");
    }
    // Nor out of stock.
    for _ in 0..20 {
        let _ = client.acquire(Request::from(TPM).cost(TPM, 1)).await.unwrap().granted().unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert!(client.acquire(TPM).await.is_err());
    assert_eq!(world.level(RPM).await, "10");
}

#[tokio::test(start_paused = true)]
async fn the_last_cost_counts_and_a_dimension_is_named_once() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let grant = client.slot(TPM).cost(TPM, 10).cost(TPM, 20).grant().await.unwrap();
    assert_eq!(grant.cost(TPM).unwrap().to_string(), "20");
    let twice = client.slot([RPM, RPM]).grant().await.unwrap_err();
    assert!(matches!(request_error(twice), RequestError::Duplicate(_)));
}

#[tokio::test(start_paused = true)]
async fn observing_a_limit_that_is_not_held_is_an_error() {
    let world = world(Kind::Rows).await;
    let client = world.client();
    let headers = [("x-ratelimit-remaining-requests", "3")];
    let grant = take(&client, SLOTS).await;
    let not_held = client.observe(RPM, &headers, Some(&grant)).await.unwrap_err();
    assert!(matches!(not_held, AcquireError::Request(RequestError::NotHeld(_))), "{not_held}");
    assert!(client.observe(SLOTS, &headers, Some(&grant)).await.is_ok(), "it holds a slot");
    grant.release().await.unwrap();
    let in_slot = client.slot([SLOTS, RPM]).run(async |slot| {
        slot.observe(RPM, &headers).await?;
        slot.observe(SLOTS, &headers).await?;
        slot.observe(TPM, &headers).await
    });
    assert!(matches!(request_error(in_slot.await.unwrap_err()), RequestError::NotHeld(name) if name == TPM));
}

/// A grant that DynamoDB did not give holds no limit: there is nothing to compare, and nothing wrong.
#[tokio::test(start_paused = true)]
async fn a_grant_of_an_outage_observes_nothing() {
    let world = world(Kind::Rows).await;
    let client = world.client_with(|settings| settings.on_unavailable(sluice_sdk::OnUnavailable::Allow));
    let _ = take(&client, RPM).await;
    world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
    let grant = take(&client, RPM).await;
    world.dynamo.faults().clear();
    let left = [("ratelimit-policy", "\"slow\";q=10;w=1000000000"), ("ratelimit", "\"slow\";r=3")];
    let observed = client.observe(RPM, &left, Some(&grant)).await.unwrap();
    assert_eq!(observed.level, sluice_sdk::reactions::ObservedLevel::NoGrant);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_travels_in_any_format_and_a_wait_becomes_a_delay() {
    let world = World::with_rate(RPM, 2, 20).await;
    let client = world.client();
    let _ = (take(&client, RPM).await, take(&client, RPM).await);
    let refused = client.acquire(Request::from(RPM).ticket_within(Duration::from_secs(60))).await.unwrap();
    let Outcome::RetryIn(retry) = refused else { panic!("{refused:?}") };
    assert_eq!(retry.delay_seconds(), 11);
    let ticket = retry.ticket().unwrap();
    assert_eq!(ticket.start_at() - client.now(), Duration::from_secs(10));
    let text = serde_json::to_string(ticket).unwrap();
    assert_eq!(&serde_json::from_str::<Ticket>(&text).unwrap(), ticket);
    assert!(
        serde_json::from_str::<Ticket>("\"no ticket\"").unwrap_err().to_string().contains("malformed ticket")
    );
}
