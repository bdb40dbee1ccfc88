//! Endpoints that are not there, do not answer, or do not want the caller: typed errors in bounded time.

use std::time::Duration;

use sluice_sdk::{AcquireError, Client, StoreError};
use sluice_testkit::{Fault, Operation};

use crate::world::{TABLE, World, sdk_config};

const RPM: &str = "openai#rpm";
/// One second for each of four attempts, and what lies between them.
const BOUND: Duration = Duration::from_secs(6);

async fn failure(client: &Client) -> StoreError {
    let answer = tokio::time::timeout(BOUND, client.acquire(RPM)).await.expect("bounded");
    match answer.expect_err("an error") {
        AcquireError::Store(error) => error,
        other => panic!("{other}"),
    }
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
    assert!(error.to_string().contains("nothing was applied"), "{error}");
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
    for fault in
        [Fault::Hang, Fault::LoseReply, Fault::service("InternalServerError", 500, serde_json::json!({"message": "x"}))]
    {
        world.dynamo.faults().always(Operation::UpdateItem, fault);
        let error = failure(&client).await;
        assert!(matches!(error, StoreError::Unavailable { maybe_applied: true, .. }), "{error}");
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
    world.dynamo.faults().always(Operation::GetItem, Fault::service("UnrecognizedClientException", 400, message));
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
