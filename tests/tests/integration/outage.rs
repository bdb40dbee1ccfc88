//! Endpoints that are not there, do not answer, or do not want the caller: typed errors in bounded time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    ConfigBag, ResolveCachedIdentity, RuntimeComponents, StalledStreamProtectionConfig,
};
use aws_smithy_runtime_api::client::identity::{
    IdentityFuture, ResolveIdentity as _, SharedIdentityResolver,
};
use sluice_sdk::{AcquireError, Client, StoreError};
use sluice_testkit::{Fault, Operation};

use crate::world::{TABLE, World, sdk_config};

mod charge;
mod hold;
mod leases_after;
mod minute;
mod own_slots;
mod slots;

const RPM: &str = "openai#rpm";
/// One second for each of four attempts and what lies between them, or the time of credentials.
const BOUND: Duration = Duration::from_secs(6);

async fn failure(client: &Client) -> StoreError {
    let answer = tokio::time::timeout(BOUND, client.acquire(RPM)).await.expect("bounded");
    match answer.expect_err("an error") {
        AcquireError::Store(error) => error,
        other => panic!("{other}"),
    }
}

/// Reads are answered: a probe ends the outage.
async fn comes_back() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Asked over a real socket, with the connections and timeouts of production.
async fn over_socket(endpoint: String) -> StoreError {
    let settings = Client::builder(TABLE).endpoint_url(endpoint);
    failure(&settings.connect_with(&sdk_config())).await
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = over_socket(format!("http://{address}")).await;
    let StoreError::Unavailable { maybe_applied, .. } = error else { panic!("{error}") };
    assert!(!maybe_applied);
    let error = error.to_string();
    assert!(
        error.contains(&format!("no connection to http://{address}: ")) && !error.contains("may have been"),
        "{error}"
    );
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            kept.push(socket);
        }
    });
    let error = over_socket(format!("http://{address}")).await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    silent.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_may_have_been_applied_and_says_so() {
    let world = World::with_rate(RPM, 10, 60).await;
    let client = world.client();
    crate::world::take(&client, RPM).await.release().await.unwrap();
    for fault in [
        Fault::Hang,
        Fault::LoseReply,
        Fault::service("InternalServerError", 500, serde_json::json!({"message": "x"})),
    ] {
        world.dynamo.faults().always(Operation::UpdateItem, fault);
        let error = failure(&client).await;
        assert!(matches!(error, StoreError::Unavailable { maybe_applied: true, .. }), "{error}");
        comes_back().await;
    }
}

/// The head of the reply is there, and says nothing of what became of the write.
#[tokio::test(start_paused = true)]
async fn a_write_whose_replys_body_is_not_complete_may_have_been_applied_and_says_so() {
    let world = World::with_rate(RPM, 10, 60).await;
    let client = world.client();
    crate::world::take(&client, RPM).await.release().await.unwrap();
    for fault in [Fault::StallBody, Fault::CutBody, Fault::Trickle(Duration::from_millis(300))] {
        world.dynamo.faults().always(Operation::UpdateItem, fault);
        let error = failure(&client).await;
        assert!(matches!(error, StoreError::Unavailable { maybe_applied: true, .. }), "{error}");
        comes_back().await;
    }
    world.dynamo.faults().always(Operation::UpdateItem, Fault::Trickle(Duration::from_micros(1)));
    let _ = client.acquire(RPM).await.expect("a body that is slow and complete is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_server_error_that_passes_is_waited_out() {
    let world = World::with_rate(RPM, 10, 60).await;
    for fault in [
        Fault::LoseRequest,
        Fault::service("InternalServerError", 500, serde_json::json!({"message": "x"})),
        Fault::throttled(),
    ] {
        world.dynamo.faults().next(Operation::UpdateItem, fault);
    }
    let _ = crate::world::take(&world.client(), RPM).await;
}

#[tokio::test(start_paused = true)]
async fn a_role_without_rights_and_credentials_that_are_not_taken_are_told_apart() {
    let world = World::with_rate(RPM, 10, 60).await;
    let message = serde_json::json!({"message": "User is not authorized to perform: dynamodb:GetItem"});
    world.dynamo.faults().always(Operation::GetItem, Fault::service("AccessDeniedException", 400, message));
    let error = failure(&world.client()).await;
    assert!(matches!(error, StoreError::AccessDenied { operation: "GetItem", .. }), "{error}");
    let message = serde_json::json!({"message": "The security token included in the request is invalid."});
    world
        .dynamo
        .faults()
        .always(Operation::GetItem, Fault::service("UnrecognizedClientException", 400, message));
    let error = failure(&world.client()).await;
    assert!(
        matches!(error, StoreError::Credentials { .. }) && error.to_string().contains("AWS_ACCESS_KEY_ID"),
        "{error}"
    );
}

#[tokio::test]
async fn no_credentials_are_told_as_such() {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
    let config = aws_config::SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    let settings = Client::builder(TABLE).endpoint_url("http://127.0.0.1:9");
    let error = failure(&settings.connect_with(&config)).await;
    assert!(matches!(error, StoreError::Credentials { .. }), "{error}");
}

/// Credentials that take their time at the first request, as from a metadata service, and then are known.
#[derive(Debug)]
struct SlowCredentials {
    takes: Duration,
    are_known: AtomicBool,
}

impl ResolveCachedIdentity for SlowCredentials {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        IdentityFuture::new(async move {
            if !self.are_known.load(Ordering::Relaxed) {
                tokio::time::sleep(self.takes).await;
                self.are_known.store(true, Ordering::Relaxed);
            }
            resolver.resolve_identity(components, config).await
        })
    }
}

fn with_credentials_after(world: &World, takes: Duration) -> Client {
    let credentials = SlowCredentials { takes, are_known: AtomicBool::new(false) };
    let config = world.dynamo.dynamodb().config().to_builder().identity_cache(credentials).build();
    let settings = Client::builder(TABLE).clock(world.dynamo.clock().off_by(0));
    settings.dynamodb(aws_sdk_dynamodb::Client::from_conf(config))
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_credentials_are_fetched_is_no_part_of_an_attempt() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 60).await;
    let client = with_credentials_after(&world, Duration::from_secs(4));
    crate::world::take(&client, RPM).await.release().await.unwrap();
    assert!(client.acquire(RPM).await.is_ok(), "DynamoDB is not out");
    world.dynamo.faults().next(Operation::UpdateItem, Fault::Delay(Duration::from_millis(1_500)));
    let began = tokio::time::Instant::now();
    crate::world::take(&client, RPM).await.release().await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(1_300), "an attempt has a second all the same");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_never_come_are_given_up_after_five_seconds_and_told_as_such() {
    let world = World::with_rate(RPM, 10, 60).await;
    let client = with_credentials_after(&world, Duration::from_secs(3_600));
    let began = tokio::time::Instant::now();
    let error = failure(&client).await;
    assert!(matches!(error, StoreError::Credentials { .. }), "{error}");
    assert!(error.to_string().contains("within 5 s"), "{error}");
    assert!((5_000..5_100).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

/// However long the client of a product would have waited.
#[tokio::test(start_paused = true)]
async fn a_client_without_timeouts_is_bounded_all_the_same() {
    let world = World::embedded().await;
    world.rate(RPM, 10, 60).await;
    let config = world.dynamo.dynamodb().config().to_builder().timeout_config(TimeoutConfig::disabled());
    let config = config.stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    let settings = Client::builder(TABLE).clock(world.dynamo.clock().off_by(0));
    let client = settings.dynamodb(aws_sdk_dynamodb::Client::from_conf(config.build()));
    crate::world::take(&client, RPM).await.release().await.unwrap();
    for fault in [Fault::Hang, Fault::StallBody, Fault::Trickle(Duration::from_millis(300))] {
        world.dynamo.faults().always(Operation::UpdateItem, fault);
        let began = tokio::time::Instant::now();
        let error = failure(&client).await;
        assert!(matches!(error, StoreError::Unavailable { maybe_applied: true, .. }), "{error}");
        assert!(began.elapsed() <= client.longest_acquire(), "{:?}", began.elapsed());
        comes_back().await;
    }
    world.dynamo.faults().clear();
    let _ = crate::world::take(&client, RPM).await;
}
