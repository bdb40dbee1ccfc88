//! The SDK of Amazon Bedrock over the limiter.

use std::time::Duration;

use aws_sdk_bedrockruntime::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_bedrockruntime::types::{ContentBlock, ConversationRole, InferenceConfiguration, Message};
use aws_sdk_bedrockruntime::{Client, Config};
use sluice_http::Limiter;
use sluice_sdk::core::LimitType;

use crate::world::World;

const CAPACITY: i32 = 100_000;

/// A client that fails if a request or a reply stalls for a second: the SDK's default is 5 s.
fn client(limiter: &Limiter, url: &str) -> Client {
    let stalls = StalledStreamProtectionConfig::enabled().grace_period(Duration::from_secs(1)).build();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("none", "none", None, None, "none"))
        .stalled_stream_protection(stalls)
        .retry_config(aws_sdk_bedrockruntime::config::retry::RetryConfig::disabled())
        .endpoint_url(url)
        .http_client(limiter.http_client(aws_smithy_http_client::Builder::new().build_http()));
    Client::from_conf(config.build())
}

fn hello() -> Message {
    let text = ContentBlock::Text("Hello".to_owned());
    Message::builder().role(ConversationRole::User).content(text).build().unwrap()
}

fn at_most_50() -> InferenceConfiguration {
    InferenceConfiguration::builder().max_tokens(50).build()
}

async fn world() -> World {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, CAPACITY).await;
    world.slots("acme#concurrent", 3).await;
    world
}

#[tokio::test]
async fn the_wait_for_a_start_is_no_stall_of_the_request() {
    let world = World::in_real_time().await;
    world.refilling("acme#rpm", LimitType::Requests, 1, Duration::from_secs(5)).await;
    let bedrock = client(&world.limiter().patience(Duration::from_secs(30)), &world.url);
    let call = async || bedrock.converse().model_id("small").messages(hello()).send().await;
    call().await.unwrap();
    let began = std::time::Instant::now();
    let waited = call().await;
    assert!(waited.is_ok(), "{waited:?}");
    assert!(began.elapsed() > Duration::from_secs(3), "it waited for longer than a request may stall");
    assert_eq!(world.vendor.books().refused, 0);
}

#[tokio::test]
async fn a_stream_is_settled_to_the_token_and_a_dropped_one_gives_its_slot_back() {
    let world = world().await;
    let bedrock = client(&world.limiter(), &world.url);
    let open = async || {
        let request =
            bedrock.converse_stream().model_id("small").messages(hello()).inference_config(at_most_50());
        request.send().await.unwrap().stream
    };
    let mut stream = open().await;
    let mut events = 0;
    while stream.recv().await.unwrap().is_some() {
        events += 1;
    }
    assert_eq!(events, 4, "the client reads all of it");
    let billed = i64::from(CAPACITY) - i64::try_from(world.vendor.books().billed).unwrap();
    world.until("the usage is settled", async |world| world.left("acme#small#tpm").await == billed).await;

    world.vendor.books().breaks_off = true;
    let mut stream = open().await;
    stream.recv().await.unwrap().unwrap();
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    drop(stream);
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
    let kept = billed - world.left("acme#small#tpm").await;
    assert!((51..80).contains(&kept), "the estimate of the input, and max_tokens: {kept}");
}

#[tokio::test]
async fn an_exception_inside_a_stream_is_a_refusal_of_which_the_fleet_hears() {
    for name in ["throttlingException", "serviceUnavailableException"] {
        let world = World::new().await;
        world.vendor.books().fails = Some(name);
        world.refilling("bedrock#rpm", LimitType::Requests, 100, Duration::from_secs(60)).await;
        let limiter = Limiter::new(world.sluice()).vendor("bedrock");
        let bedrock = client(&limiter, &world.url);
        let mut stream =
            bedrock.converse_stream().model_id("small").messages(hello()).send().await.unwrap().stream;
        let mut error = None;
        while error.is_none() {
            match stream.recv().await {
                Ok(event) => assert!(event.is_some(), "the stream ended without the exception"),
                Err(failed) => error = Some(failed),
            }
        }
        // The program drops what failed.
        drop(stream);
        let heard = async |world: &World| {
            let now = world.dynamo.clock().now();
            let pauses = world.blocked_until("bedrock#rpm").await.is_some_and(|until| until > now);
            pauses || world.left("bedrock#rpm").await < 99
        };
        world.until(name, heard).await;
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_sent_gives_everything_back() {
    let world = world().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bedrock = client(&world.limiter(), &format!("http://{nobody}"));
    let request = bedrock.converse().model_id("small").messages(hello()).inference_config(at_most_50());
    request.send().await.unwrap_err();
    let is_back = async |world: &World| {
        world.left("acme#small#tpm").await == i64::from(CAPACITY) && world.left("acme#rpm").await == 100
    };
    world.until("tokens and request are back", is_back).await;
    assert_eq!(world.in_use("acme#concurrent").await, 0);
}
