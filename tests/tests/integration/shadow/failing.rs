//! What fails in the limiter fails no call of a shadow client.

use std::time::Duration;

use sluice_sdk::admission::Admission;
use sluice_sdk::{Basis, Client, LimitError, Redeemed, Reply, Request};
use sluice_testkit::{Fault, Operation};
use tokio::time::Instant;

use super::{RPM, SLOTS, shadow};
use crate::kind::Kind;
use crate::metrics::{Listening, counted};
use crate::world::{World, take};

const TPM: &str = "openai#tpm";

/// Everything that a product calls around one call of its vendor. Nothing of it fails.
async fn all_that_a_product_calls(client: &Client) {
    let headers = [("x-ratelimit-remaining-tokens", "3")];
    let mut grant = take(client, Request::from([RPM, TPM, SLOTS]).cost(TPM, 10)).await;
    client.observe(TPM, &headers, Some(&grant)).await.unwrap();
    grant.settle(TPM, 7).await.unwrap();
    grant.reply(Reply::new(200, &headers), (TPM, 6)).await.unwrap();
    grant.renew().await.unwrap();
    grant.release().await.unwrap();
    take(client, RPM).await.failed().await.unwrap();
    let slot = client.slot([SLOTS, TPM]).cost(TPM, 10).max_wait(Duration::from_secs(30));
    let call = slot.run(async |slot| {
        slot.used(TPM, 7)?;
        slot.observe(TPM, &headers).await?;
        slot.reply(Reply::new(429, &headers), (TPM, 3)).await?;
        Ok::<_, LimitError>(())
    });
    call.await.unwrap();
    client.slot(RPM).grant().await.unwrap().release().await.unwrap();
    client.on_rate_limited(RPM, Reply::new(429, &headers)).await.unwrap();
    assert!(matches!(client.admit(SLOTS, 1, Some(Duration::ZERO)).await.unwrap(), Admission::Admitted(_)));
}

#[tokio::test(start_paused = true)]
async fn an_outage_changes_nothing_for_the_product() {
    for (fault, kind) in
        [(Fault::Hang, Kind::Rows), (Fault::LoseRequest, Kind::Rows), (Fault::throttled(), Kind::Inline)]
    {
        let listening = Listening::begin();
        let world = World::embedded().await.with(kind);
        world.rate(RPM, 100, 60).await;
        world.tokens(TPM, 1_000, 60).await;
        world.slots(SLOTS, 2).await;
        let (known, unknown) = (shadow(&world), shadow(&world));
        all_that_a_product_calls(&known).await;
        let held = take(&known, [RPM, SLOTS]).await;
        world.dynamo.faults().draw(move |_| Some(fault.clone()));
        for client in [&known, &unknown] {
            let began = Instant::now();
            assert_eq!(take(client, RPM).await.basis(), Basis::Shadow);
            assert!(began.elapsed() <= client.longest_acquire(), "{:?}", began.elapsed());
            all_that_a_product_calls(client).await;
        }
        held.release().await.unwrap();
        let recorded = listening.recorded();
        let errors = |reason| counted(&recorded, "sluice.shadow.errors", &[("reason", reason)]);
        assert!(errors("unavailable") > 0 || kind == Kind::Inline, "throttling is no outage");
    }
}

/// A call with less time than the table needs to answer is made within that time.
#[tokio::test(start_paused = true)]
async fn a_short_time_for_waiting_and_running_together_is_left_to_the_call() {
    let world = World::with_rate(RPM, 100, 60).await;
    let client = shadow(&world);
    let _known = take(&client, RPM).await;
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    for millis in [10, 100, 1_000] {
        let slot = client.slot(RPM).timeout(Duration::from_millis(millis));
        let began = Instant::now();
        let left = slot.run(async |slot| Ok::<_, LimitError>(slot.remaining().unwrap())).await.unwrap();
        assert!(
            left >= Duration::from_millis(millis) / 3,
            "{left:?} of {millis} ms after {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_denied_changes_nothing_for_the_product() {
    let listening = Listening::begin();
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    world.tokens(TPM, 1_000, 60).await;
    world.slots(SLOTS, 2).await;
    let denied = Fault::service("AccessDeniedException", 400, serde_json::json!({"message": "no right"}));
    for operation in [Operation::UpdateItem, Operation::TransactWriteItems] {
        world.dynamo.faults().always(operation, denied.clone());
    }
    all_that_a_product_calls(&shadow(&world)).await;
    assert!(counted(&listening.recorded(), "sluice.shadow.errors", &[("reason", "store")]) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_be_granted_goes_on_and_is_counted() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 10, 60).await;
    world.tokens(TPM, 1_000, 60).await;
    let client = shadow(&world);
    let requests = [
        (Request::from("openai#missing"), "unknown_dimension"),
        (Request::from(RPM).cost(RPM, 11), "never_satisfiable"),
        (Request::from(TPM), "request"),
        (Request::from(RPM).cost(RPM, f64::NAN), "request"),
        (Request::from("a name # that is none"), "request"),
    ];
    for (request, reason) in requests {
        listening.recorded();
        let mut grant = take(&client, request.clone()).await;
        assert_eq!(grant.basis(), Basis::Shadow, "{reason}");
        grant.settle(TPM, 5).await.unwrap();
        grant.release().await.unwrap();
        client.slot(request).run(async |_| Ok::<_, LimitError>(())).await.unwrap();
        assert_eq!(
            counted(&listening.recorded(), "sluice.shadow.errors", &[("reason", reason)]),
            2,
            "{reason}"
        );
    }
    // What there is of the others is taken.
    let grant = take(&client, ["openai#missing", RPM]).await;
    assert_eq!(grant.dimensions().map(|dimension| dimension.as_str()).collect::<Vec<_>>(), [RPM]);
    assert!(client.admit("openai#missing", 1, None).await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_cannot_be_read_is_acquired_anew() {
    let world = World::with_rate(RPM, 2, 60).await;
    let _all = take(&world.client(), Request::from(RPM).cost(RPM, 2)).await;
    let booked =
        world.client().acquire(Request::from(RPM).ticket_within(Duration::from_secs(90))).await.unwrap();
    let sluice_sdk::Outcome::RetryIn(retry) = booked else { panic!("granted") };
    let ticket = retry.ticket().unwrap();
    world.pass(retry.wait());
    let client = shadow(&world);
    let _ = take(&client, RPM).await;
    world.dynamo.faults().always(Operation::GetItem, Fault::LoseRequest);
    world.dynamo.faults().always(Operation::UpdateItem, Fault::LoseRequest);
    assert!(matches!(client.redeem(ticket).await.unwrap(), Redeemed::Lapsed));
    let carried = take(&client, Request::from(RPM).with_ticket(Some(ticket.clone()))).await;
    assert_eq!(carried.basis(), Basis::Shadow);
}
