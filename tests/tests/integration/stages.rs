//! A request that hangs or breaks at any stage ends within the documented time, and the next caller is
//! served.
//!
//! Over real sockets, in real time: attempts are shortened to a quarter of a second.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::StalledStreamProtectionConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use sluice_core::{Amount, Cost, Limit};
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, ClientBuilder, Outcome, StoreError};
use sluice_testkit::{EmbeddedDynamo, Server};

use crate::world::{TABLE, dimension, requests, sdk_config};

mod every_call;
mod gives_back;
mod proxy;

use proxy::{Proxy, Stage};

const ATTEMPT: Duration = Duration::from_millis(250);
/// Four attempts, and up to 175 ms of waits between them.
const REQUEST: Duration = Duration::from_millis(4 * 250 + 175);
const SLOT_TIMEOUT: Duration = Duration::from_millis(500);
const BUDGET: Duration = Duration::from_millis(500);
/// What a busy machine may take on top. Less than the attempts of a request without the waits of two, so that
/// a call of two requests which makes a third is seen, however short its waits are.
const SLACK: Duration = Duration::from_millis(600);

const RATE: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";
const HELD: &str = "deepgram#concurrent";

/// An engine behind a proxy.
struct Network {
    proxy: Arc<Proxy>,
    _server: Server,
    _dynamo: EmbeddedDynamo,
}

impl Network {
    async fn new() -> Self {
        let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
        let client = dynamo.client(TABLE);
        client.ops().apply_limit(&dimension(RATE), &requests(1_000, 60)).await.unwrap();
        let slots = Limit::concurrent(Amount::from_tokens(100), Cost::ONE).unwrap();
        client.ops().apply_limit(&dimension(SLOTS), &slots).await.unwrap();
        client.ops().apply_limit(&dimension(HELD), &slots).await.unwrap();
        let server = dynamo.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let proxy = Proxy::before(server.address()).await;
        Self { proxy, _server: server, _dynamo: dynamo }
    }

    /// The ways in which products configure the connection.
    fn clients(&self) -> Vec<(&'static str, Client)> {
        let settings = || -> ClientBuilder {
            Client::builder(TABLE).endpoint_url(self.proxy.url()).attempt_timeout(ATTEMPT).self_heal(false)
        };
        let unprotected = sdk_config()
            .into_builder()
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(TimeoutConfig::disabled());
        let unprotected = unprotected.build();
        let own = aws_sdk_dynamodb::config::Builder::from(&unprotected).endpoint_url(self.proxy.url());
        vec![
            ("the SDK's defaults", settings().connect_with(&sdk_config())),
            ("no stalled-stream protection", settings().connect_with(&unprotected)),
            (
                "the product's own client",
                settings().dynamodb(aws_sdk_dynamodb::Client::from_conf(own.build())),
            ),
        ]
    }
}

/// Runs `call`, which must end by itself within `bound`.
async fn within<T>(bound: Duration, what: &str, call: impl Future<Output = T>) -> T {
    match tokio::time::timeout(bound + SLACK, call).await {
        Ok(done) => done,
        Err(_) => panic!("{what} outlasts its {bound:?}"),
    }
}

fn options(budget: Duration) -> SweepOptions {
    let mut options = SweepOptions::default();
    options.budget = Some(budget);
    options
}

async fn hangs_at(stage: Stage) {
    let network = Network::new().await;
    let clients = network.clients();
    let mut held = Vec::new();
    for (_, client) in &clients {
        held.push(client.acquire(HELD).await.unwrap().granted().unwrap());
        let _ = client.acquire(RATE).await.unwrap().granted().unwrap();
        let _ = client.acquire(SLOTS).await.unwrap().granted().unwrap();
    }
    network.proxy.set(stage).await;
    let calls = clients.into_iter().zip(held).map(|((name, client), held)| async move {
        let acquire = within(REQUEST, "acquire", client.acquire(RATE));
        let slot = client.slot(SLOTS).timeout(SLOT_TIMEOUT);
        let slot = within(
            SLOT_TIMEOUT + Duration::from_millis(250),
            "slot",
            slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(())),
        );
        let release = within(REQUEST, "release", held.release());
        let ops = client.ops();
        let sweep = within(BUDGET + Duration::from_millis(500), "sweep", ops.sweep(options(BUDGET)));
        let (acquired, slot, released, swept) = tokio::join!(acquire, slot, release, sweep);
        let error = acquired.expect_err("nobody answers");
        assert!(
            matches!(error, sluice_sdk::AcquireError::Store(StoreError::Unavailable { .. })),
            "{name}: {error}"
        );
        assert!(
            slot.is_err() && released.is_err() && swept.is_err(),
            "{name}: {slot:?} {released:?} {swept:?}"
        );
        client
    });
    let clients = futures_util::future::join_all(calls).await;
    network.proxy.set(Stage::Passes).await;
    for client in clients {
        let served = within(REQUEST, "the next caller", client.acquire(RATE)).await;
        assert!(matches!(served, Ok(Outcome::Granted(_))), "{served:?}");
        let slot = client.slot(SLOTS).timeout(Duration::from_secs(5));
        within(
            Duration::from_secs(5),
            "the next slot",
            slot.run(async |_| Ok::<_, sluice_sdk::LimitError>(())),
        )
        .await
        .unwrap();
        let held = client.acquire(HELD).await.unwrap().granted().unwrap();
        within(REQUEST, "the next release", held.release()).await.unwrap();
        client.ops().sweep(options(Duration::from_secs(5))).await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_is_given_up_in_time() {
    hangs_at(Stage::NoConnection).await;
}

#[tokio::test]
async fn a_head_that_never_comes_is_given_up_in_time() {
    hangs_at(Stage::NoHead).await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up_in_time() {
    hangs_at(Stage::NoBody).await;
}

/// Each byte comes before any timeout between two of them.
#[tokio::test]
async fn a_body_that_trickles_is_given_up_in_time() {
    hangs_at(Stage::Trickle(ATTEMPT.mul_f64(0.3))).await;
}

#[tokio::test]
async fn garbage_instead_of_http_is_given_up_in_time() {
    hangs_at(Stage::Garbage).await;
}

#[tokio::test]
async fn a_truncated_body_is_given_up_in_time() {
    hangs_at(Stage::Truncated).await;
}

#[tokio::test]
async fn a_reply_that_is_no_json_is_given_up_in_time() {
    hangs_at(Stage::Html).await;
}

#[tokio::test]
async fn an_error_says_at_which_stage_it_hangs_and_what_to_check() {
    let network = Network::new().await;
    let (_, client) = network.clients().swap_remove(0);
    let _ = client.acquire(RATE).await.unwrap();
    let cases = [
        (Stage::NoHead, vec!["no answer within 0.25 s", "SLUICE_ATTEMPT_TIMEOUT"]),
        (Stage::NoBody, vec!["HTTP status ", "not complete within 0.25 s"]),
        (Stage::Garbage, vec!["does not speak HTTP", "SLUICE_ENDPOINT_URL"]),
        (Stage::Truncated, vec!["HTTP status ", "broke off"]),
        (Stage::Html, vec!["HTTP status 200", "the reply is not DynamoDB's", "SLUICE_ENDPOINT_URL"]),
    ];
    for (stage, says) in cases {
        network.proxy.set(stage).await;
        let error = client.acquire(RATE).await.expect_err("nobody answers").to_string();
        assert!(says.iter().all(|part| error.contains(part)), "{stage:?} says: {error}");
        assert!(error.contains("may have been applied"), "{stage:?} says: {error}");
    }
}
