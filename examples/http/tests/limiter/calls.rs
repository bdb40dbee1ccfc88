//! Calls that the vendor answers: what they used is settled, whatever becomes of their replies.

use futures_util::StreamExt as _;
use sluice_http::{Limiter, REFUSED_BY};
use sluice_sdk::core::LimitType;

use crate::world::{World, chat, reqwest_with};

const CAPACITY: i32 = 100_000;

async fn world() -> World {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, CAPACITY).await;
    world.slots("acme#concurrent", 3).await;
    world
}

fn billed(world: &World) -> i64 {
    i64::from(CAPACITY) - i64::try_from(world.vendor.books().billed).unwrap()
}

#[tokio::test]
async fn what_a_reply_says_that_it_used_is_settled_to_the_token() {
    let world = world().await;
    let http = reqwest_with(world.limiter().ask_usage());
    for stream in [false, true] {
        for _ in 0..3 {
            let reply = http
                .post(format!("{}/v1/chat/completions", world.url))
                .body(chat(stream))
                .send()
                .await
                .unwrap();
            assert!(reply.status().is_success());
            let text = reply.text().await.unwrap();
            assert!(text.contains("morning"), "the client reads all of it: {text}");
            assert_eq!(world.in_use("acme#concurrent").await, 0, "the slot is back when the body has ended");
        }
    }
    world
        .until("the usage is settled", async |world| world.left("acme#small#tpm").await == billed(world))
        .await;
    assert_eq!(world.left("acme#rpm").await, 94);
}

#[tokio::test]
async fn the_slot_is_held_as_long_as_the_body_is_read() {
    let world = world().await;
    let http = reqwest_with(world.limiter().ask_usage());
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(true)).send().await.unwrap();
    let mut pieces = reply.bytes_stream();
    pieces.next().await.unwrap().unwrap();
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    while pieces.next().await.is_some() {}
    assert_eq!(world.in_use("acme#concurrent").await, 0);
}

#[tokio::test]
async fn a_connection_that_is_dropped_in_the_middle_gives_back_its_slot_and_keeps_its_tokens() {
    let world = world().await;
    world.vendor.books().breaks_off = true;
    let http = reqwest_with(world.limiter().ask_usage());
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(true)).send().await.unwrap();
    let mut pieces = reply.bytes_stream();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
    world.until("the vendor saw the end", async |world| world.vendor.books().running == 0).await;
    // 12 bytes of prompt and a few of names, and the most output.
    let taken = i64::from(CAPACITY) - world.left("acme#small#tpm").await;
    assert!((51..80).contains(&taken), "the estimate of the input, and max_tokens: {taken}");
}

#[tokio::test]
async fn anthropics_tokens_are_settled_by_direction_and_known_input_even_if_the_stream_breaks_off() {
    let world = World::new().await;
    world.bucket("anthropic#itpm", LimitType::Tokens, CAPACITY).await;
    world.bucket("anthropic#otpm", LimitType::Tokens, CAPACITY).await;
    world.slots("anthropic#concurrent", 3).await;
    let http = reqwest_with(Limiter::new(world.sluice()).vendor("anthropic"));
    let url = format!("{}/v1/messages", world.url);
    for stream in [false, true] {
        http.post(&url).body(chat(stream)).send().await.unwrap().bytes().await.unwrap();
    }
    let left = async |world: &World| world.left("anthropic#itpm").await + world.left("anthropic#otpm").await;
    let due = |world: &World| billed(world) + i64::from(CAPACITY);
    world.until("both directions are settled", async |world| left(world).await == due(world)).await;

    world.vendor.books().breaks_off = true;
    let output_before = world.left("anthropic#otpm").await;
    let reply = http.post(&url).body(chat(true)).send().await.unwrap();
    let mut pieces = reply.bytes_stream();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    world.until("the slot is back", async |world| world.in_use("anthropic#concurrent").await == 0).await;
    assert_eq!(
        world.left("anthropic#otpm").await,
        output_before - 50,
        "the output is not known: all of it stays taken"
    );
}

#[tokio::test]
async fn a_call_that_cannot_be_sent_gives_everything_back() {
    let world = world().await;
    let http = reqwest_with(world.limiter());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sent = http.post(format!("http://{nobody}/v1/chat/completions")).body(chat(false)).send().await;
    assert!(sent.unwrap_err().is_connect(), "the client's own error");
    assert_eq!(world.in_use("acme#concurrent").await, 0);
    world
        .until("the tokens are back", async |world| world.left("acme#small#tpm").await == i64::from(CAPACITY))
        .await;
}

#[tokio::test]
async fn other_hosts_and_other_methods_pass() {
    let world = world().await;
    let http = reqwest_with(Limiter::new(world.sluice()));
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap();
    assert!(reply.status().is_success(), "127.0.0.1 is no vendor's");
    let http = reqwest_with(world.limiter());
    let reply = http.get(format!("{}/v1/chat/completions", world.url)).send().await.unwrap();
    assert_eq!(reply.status(), 405, "the vendor's own answer");
    assert_eq!(world.left("acme#rpm").await, 100);
}

#[tokio::test]
async fn a_vendor_without_buckets_is_not_limited_and_a_named_bucket_must_be_there() {
    let world = world().await;
    let call = async |limiter: Limiter| {
        let url = format!("{}/v1/chat/completions", world.url);
        reqwest_with(limiter).post(url).body(chat(false)).send().await
    };
    assert!(call(Limiter::new(world.sluice()).vendor("nobody")).await.unwrap().status().is_success());
    let missing = sluice_sdk::Dimension::new("acme#missing").unwrap();
    let error = call(world.limiter().buckets([missing])).await.unwrap_err();
    assert!(format!("{error:?}").contains("acme#missing"), "{error:?}");
    assert_eq!(world.vendor.books().answered, 1, "the second call was not made");
}

#[tokio::test]
async fn a_vendor_that_agrees_costs_no_request() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 10_000).await;
    let sluice = world.sluice_with(|settings| settings.prefetch(["acme#rpm"]));
    let http = reqwest_with(Limiter::new(sluice).vendor("acme"));
    let url = format!("{}/v1/chat/completions", world.url);
    let call = async || http.post(&url).body(chat(false)).send().await.unwrap().bytes().await.unwrap();
    for _ in 0..3 {
        call().await;
    }
    world.dynamo.meter().reset();
    call().await;
    assert_eq!(world.dynamo.meter().total().requests, 0);
}

#[tokio::test]
async fn beyond_the_patience_the_client_gets_a_reply_that_says_when_to_come_back() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 1).await;
    let http = reqwest_with(world.limiter());
    let call = async || {
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap()
    };
    assert!(call().await.status().is_success());
    let reply = call().await;
    assert_eq!(reply.status(), 429);
    assert_eq!(reply.headers()[REFUSED_BY], "acme#rpm");
    let seconds: u64 = reply.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds > 1, "{seconds}");
    let error: serde_json::Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert_eq!(world.vendor.books().answered, 1, "the call was not made");
}
