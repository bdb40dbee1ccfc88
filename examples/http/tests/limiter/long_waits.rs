//! Waits that are longer than the SDK of AWS lets a request stand still.

use std::time::{Duration, Instant};

use aws_sdk_bedrockruntime::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_bedrockruntime::types::{ContentBlock, ConversationRole, Message};
use aws_sdk_bedrockruntime::{Client, Config};
use sluice_http::Limiter;
use sluice_sdk::core::LimitType;

use crate::world::World;

/// The SDK takes a body that nobody reads for 6 s as a connection that is stalled.
#[tokio::test]
async fn a_call_of_bedrock_waits_for_its_start_beyond_the_time_after_which_its_sdk_gives_up() {
    let world = World::in_real_time().await;
    world.refilling("acme#rpm", LimitType::Requests, 1, Duration::from_secs(8)).await;
    let limiter = Limiter::new(world.sluice()).vendor("acme").patience(Duration::from_secs(20));
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("none", "none", None, None, "test"))
        .endpoint_url(&world.url)
        .http_client(limiter.http_client(aws_smithy_http_client::Builder::new().build_http()))
        .build();
    let bedrock = Client::from_conf(config);
    let began = Instant::now();
    for _ in 0..2 {
        let hello = Message::builder()
            .role(ConversationRole::User)
            .content(ContentBlock::Text("Hello".to_owned()))
            .build()
            .unwrap();
        bedrock.converse().model_id("small").messages(hello).send().await.unwrap();
    }
    assert!(began.elapsed() > Duration::from_secs(7), "it waited: {:?}", began.elapsed());
    assert_eq!(world.vendor.books().answered, 2);
}
