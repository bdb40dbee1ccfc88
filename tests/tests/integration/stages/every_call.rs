//! The longest time of every public call, as `docs/semantics.md` states it, while requests hang at one stage.

use std::future::IntoFuture as _;
use std::num::NonZeroUsize;

use sluice_core::{Amount, OnLowerLimit};
use sluice_sdk::{Grant, Reply, Request, Ticket};

use super::gives_back::Held;
use super::*;

const TPM: &str = "openai#tpm";
const BOOKED: &str = "cohere#rpm";
const REMOVED: &str = "groq#rpm";
/// One slot each.
const FULL: &str = "rime#concurrent";
const HEALED: &str = "cartesia#concurrent";
/// Four attempts of a page, each five times as long, and the waits between them.
const PAGE: Duration = Duration::from_millis(4 * 5 * 250 + 175);

/// What the calls need that was made before DynamoDB hangs.
struct Before {
    client: Client,
    healing: Client,
    settled: Grant,
    observed: Grant,
    renewed: Grant,
    ticket: Ticket,
    held: Held,
    _full: Grant,
    _healed: Grant,
}

pub(super) async fn granted<'a>(client: &Client, request: impl Into<Request<'a>>) -> Grant {
    client.acquire(request).await.unwrap().granted().expect("granted")
}

impl Before {
    async fn new(network: &Network) -> Self {
        let (_, client) = network.clients().swap_remove(0);
        let healing = Client::builder(TABLE).endpoint_url(network.proxy.url()).attempt_timeout(ATTEMPT);
        let healing = healing.connect_with(&sdk_config());
        client.ops().apply_limit(&dimension(TPM), &requests(1_000_000, 60)).await.unwrap();
        client.ops().apply_limit(&dimension(BOOKED), &requests(10, 10)).await.unwrap();
        client.ops().apply_limit(&dimension(REMOVED), &requests(10, 10)).await.unwrap();
        for full in [FULL, HEALED] {
            let slot = Limit::concurrent(Amount::from_tokens(1), Cost::ONE).unwrap();
            client.ops().apply_limit(&dimension(full), &slot).await.unwrap();
        }
        let _ = granted(&client, Request::from(BOOKED).cost(BOOKED, 10)).await;
        let booked =
            client.acquire(Request::from(BOOKED).ticket_within(Duration::from_secs(20))).await.unwrap();
        let Outcome::RetryIn(booked) = booked else { panic!("nothing is left") };
        // The first start is a second away.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        Self {
            settled: granted(&client, Request::from(TPM).cost(TPM, 10)).await,
            observed: granted(&client, RATE).await,
            renewed: granted(&client, HELD).await,
            ticket: booked.ticket().expect("a ticket").clone(),
            held: Held::new(network, &client).await,
            _full: granted(&client, FULL).await,
            _healed: granted(&healing, HEALED).await,
            client,
            healing,
        }
    }
}

/// The calls that act on one bucket or read the table.
async fn single_calls(before: &mut Before) {
    let Before { client, healing, settled, observed, renewed, ticket, .. } = before;
    let left = [("x-ratelimit-remaining-requests", "3")];
    let wait = [("retry-after", "3")];
    let refusal = Reply { status: 429, headers: &wait, body: None };
    let (rate, slots) = (dimension(RATE), Limit::concurrent(Amount::from_tokens(9), Cost::ONE).unwrap());
    let settle = within(REQUEST * 2, "settle", settled.settle(TPM, 30));
    let observe = within(ATTEMPT + REQUEST, "observe", client.observe(RATE, &left, Some(observed)));
    let penalize = within(REQUEST, "penalize", client.penalize(RATE, 0.8));
    let cool_down = within(REQUEST, "cool_down", client.cool_down(RATE, Duration::from_secs(3)));
    let end = within(REQUEST, "end_cool_down", client.end_cool_down(RATE));
    let refill = within(REQUEST, "refill", client.refill(RATE, None));
    let refused = within(REQUEST, "on_rate_limited", client.on_rate_limited(RATE, refusal));
    let admit = within(ATTEMPT, "admit", client.admit(SLOTS, 1, None).into_future());
    let redeem = within(REQUEST, "redeem", client.redeem(ticket));
    let renew = within(REQUEST, "renew", renewed.renew());
    let (held, ops) = (dimension(HELD), client.ops());
    let apply = within(REQUEST, "apply_limit", ops.apply_limit(&held, &slots));
    let bucket = within(REQUEST, "bucket", ops.bucket(&rate));
    let survey = within(PAGE, "survey", ops.survey());
    let healed = within(REQUEST * 2 + Duration::from_secs(5), "finish_healing", async {
        // Refused from memory, as long as its own grant is young.
        let _ = healing.acquire(HEALED).await;
        healing.finish_healing().await;
    });
    let (settle, observe, penalize, ()) = tokio::join!(settle, observe, penalize, healed);
    assert!(settle.is_err() && observe.is_err() && penalize.is_err(), "{settle:?} {observe:?} {penalize:?}");
    let (cool_down, end, refill, refused) = tokio::join!(cool_down, end, refill, refused);
    assert!(cool_down.is_err() && refused.is_err(), "{cool_down:?} {refused:?}");
    assert!(end.is_err() && refill.is_err(), "{end:?} {refill:?}");
    let (admit, redeem, renew, apply) = tokio::join!(admit, redeem, renew, apply);
    assert!(
        admit.is_ok() && redeem.is_err() && renew.is_err() && apply.is_err(),
        "{admit:?} {renew:?} {apply:?}"
    );
    let (bucket, survey) = tokio::join!(bucket, survey);
    assert!(bucket.is_err() && survey.is_err(), "{bucket:?} {survey:?}");
}

/// The calls that change a bucket's row, or read the table, as `sluice` and the reconciler make them.
async fn table_calls(client: &Client) {
    let ops = client.ops();
    let (rate, removed, two) = (dimension(RATE), dimension(REMOVED), NonZeroUsize::new(2).unwrap());
    let adopt = OnLowerLimit::Adopt { at_least: Amount::from_tokens(1) };
    let adopt = within(REQUEST, "on_lower_limit", ops.on_lower_limit(&rate, adopt));
    let remove = within(REQUEST, "remove_bucket", ops.remove_bucket(&removed));
    let warm_up = within(REQUEST, "warm_up", ops.warm_up());
    let buckets = within(PAGE, "buckets", ops.buckets());
    let leases = within(PAGE, "leases", ops.leases());
    let survey = within(PAGE, "survey_within", ops.survey_within(two));
    let sweep = within(PAGE, "sweep without a budget", ops.sweep(SweepOptions::default()));
    let (adopt, remove, warm_up) = tokio::join!(adopt, remove, warm_up);
    assert!(adopt.is_err() && remove.is_err() && warm_up.is_err(), "{adopt:?} {remove:?} {warm_up:?}");
    let (buckets, leases, survey, sweep) = tokio::join!(buckets, leases, survey, sweep);
    assert!(buckets.is_err() && leases.is_err(), "{buckets:?} {leases:?}");
    assert!(survey.is_err() && sweep.is_err(), "{survey:?} {sweep:?}");
}

/// Callers who do not wait, in lanes with company: behind one who waits, and among more than a write takes.
async fn acquires(client: &Client) {
    let waiting = client.slot(FULL).timeout(Duration::from_secs(60));
    let waiting = tokio::spawn(waiting.run(async |_| Ok::<_, sluice_sdk::LimitError>(())));
    tokio::time::sleep(ATTEMPT).await;
    for _ in 0..5 {
        let acquired = within(REQUEST * 2, "acquire behind one who waits", client.acquire(FULL)).await;
        assert!(acquired.map_or(true, |outcome| outcome.granted().is_none()));
    }
    waiting.abort();
    let acquires = (0..5_000).map(|_| within(REQUEST * 2, "acquire in a long line", client.acquire(TPM)));
    let acquired = futures_util::future::join_all(acquires).await;
    assert!(acquired.iter().all(Result::is_err));
}

async fn every_call_hangs_at(stage: Stage) {
    let network = Network::new().await;
    let mut before = Before::new(&network).await;
    network.proxy.set(stage).await;
    single_calls(&mut before).await;
    let Before { client, held, .. } = before;
    tokio::join!(table_calls(&client), held.give_back());
    acquires(&client).await;
}

/// Most of its time is waited: two stages at once.
#[tokio::test]
async fn every_call_ends_in_its_time_while_no_connection_is_accepted_or_no_reply_begins() {
    tokio::join!(every_call_hangs_at(Stage::NoConnection), every_call_hangs_at(Stage::NoHead));
}

#[tokio::test]
async fn every_call_ends_in_its_time_while_no_body_comes_or_bodies_trickle() {
    let trickles = Stage::Trickle(ATTEMPT.mul_f64(0.3));
    tokio::join!(every_call_hangs_at(Stage::NoBody), every_call_hangs_at(trickles));
}
