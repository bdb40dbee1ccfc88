//! Streams and APIs through each adapter: what they used is settled to the token.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{ChatCompletionRequestUserMessageArgs, CreateChatCompletionRequestArgs};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use sluice_sdk::core::LimitType;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

use crate::world::{World, chat, reqwest_with};

const CAPACITY: i32 = 100_000;

async fn world() -> World {
    let world = World::new().await;
    world.bucket("acme#small#tpm", LimitType::Tokens, CAPACITY).await;
    world.slots("acme#concurrent", 3).await;
    world
}

async fn is_settled(world: &World) {
    let billed = i64::from(CAPACITY) - i64::try_from(world.vendor.books().billed).unwrap();
    world.until("the usage is settled", async |world| world.left("acme#small#tpm").await == billed).await;
}

async fn slot_is_back(world: &World) {
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
}

#[tokio::test]
async fn a_stream_of_async_openai_is_settled_to_the_token_and_a_dropped_one_gives_its_slot_back() {
    let world = world().await;
    let config = OpenAIConfig::new().with_api_base(format!("{}/v1", world.url)).with_api_key("none");
    let openai = async_openai::Client::with_config(config);
    let openai = openai.with_http_service(world.limiter().ask_usage().async_openai());
    let message = ChatCompletionRequestUserMessageArgs::default().content("Hello").build().unwrap();
    let request = || {
        let mut request = CreateChatCompletionRequestArgs::default();
        request
            .model("small")
            .max_completion_tokens(50_u32)
            .messages([message.clone().into()])
            .build()
            .unwrap()
    };
    let mut stream = openai.chat().create_stream(request()).await.unwrap();
    let mut text = String::new();
    while let Some(piece) = stream.next().await {
        text.extend(piece.unwrap().choices.first().and_then(|choice| choice.delta.content.clone()));
    }
    assert_eq!(text, "Good morning");
    is_settled(&world).await;

    world.vendor.books().breaks_off = true;
    let mut stream = openai.chat().create_stream(request()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    drop(stream);
    slot_is_back(&world).await;
}

#[tokio::test]
async fn async_openai_sends_through_the_http_client_that_it_is_given() {
    let world = world().await;
    let address: std::net::SocketAddr = world.url.strip_prefix("http://").unwrap().parse().unwrap();
    // No other HTTP client finds the vendor under this name.
    let http = reqwest::Client::builder().resolve("vendor.invalid", address).build().unwrap();
    let url = format!("http://vendor.invalid:{}/v1", address.port());
    let openai =
        async_openai::Client::with_config(OpenAIConfig::new().with_api_base(url).with_api_key("none"));
    let openai = openai.with_http_service(world.limiter().async_openai_over(http));
    let message = ChatCompletionRequestUserMessageArgs::default().content("Hello").build().unwrap();
    let mut request = CreateChatCompletionRequestArgs::default();
    let request =
        request.model("small").max_completion_tokens(50_u32).messages([message.into()]).build().unwrap();
    openai.chat().create(request).await.unwrap();
    is_settled(&world).await;
    slot_is_back(&world).await;
}

#[tokio::test]
async fn a_stream_through_tower_is_settled_to_the_token_and_a_dropped_one_gives_its_slot_back() {
    let world = world().await;
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
    let http =
        ServiceBuilder::new().layer(world.limiter().ask_usage()).service(http.build_http::<Full<Bytes>>());
    let open = async || {
        let request = Request::post(format!("{}/v1/chat/completions", world.url))
            .header("content-type", "application/json");
        http.clone().oneshot(request.body(Full::from(chat(true))).unwrap()).await.unwrap().into_body()
    };
    let text = open().await.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("morning"));
    is_settled(&world).await;

    world.vendor.books().breaks_off = true;
    let mut body = open().await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    drop(body);
    slot_is_back(&world).await;
}

#[tokio::test]
async fn responses_and_generate_content_are_settled_to_the_token() {
    let world = world().await;
    let http = reqwest_with(world.limiter());
    let responses = r#"{"model": "small", "max_output_tokens": 50, "input": "Good morning"}"#;
    let google = r#"{"contents": [{"parts": [{"text": "Good morning"}]}], "generationConfig": {"maxOutputTokens": 50}}"#;
    for (path, body) in [("/v1/responses", responses), ("/v1beta/models/small:generateContent", google)] {
        let reply = http.post(format!("{}{path}", world.url)).body(body).send().await.unwrap();
        assert!(reply.status().is_success(), "{path}");
        reply.bytes().await.unwrap();
        is_settled(&world).await;
    }
}

#[tokio::test]
async fn a_use_that_cannot_be_is_not_believed() {
    let world = world().await;
    let reply =
        r#"{"choices": [], "usage": {"prompt_tokens": 1000000000000, "completion_tokens": 1000000000000}}"#;
    world.vendor.books().next = Some((200, reply));
    let http = reqwest_with(world.limiter());
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap();
    reply.bytes().await.unwrap();
    slot_is_back(&world).await;
    let taken = i64::from(CAPACITY) - world.left("acme#small#tpm").await;
    assert!((50..100).contains(&taken), "what was reserved stays taken: {taken}");
}

fn request(url: &str) -> Request<Full<Bytes>> {
    let request =
        Request::post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
    request.body(Full::from(chat(false))).unwrap()
}

#[tokio::test]
async fn a_call_through_tower_that_cannot_be_sent_gives_everything_back() {
    let world = world().await;
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
    let http = ServiceBuilder::new().layer(world.limiter()).service(http.build_http::<Full<Bytes>>());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    http.oneshot(request(&format!("http://{nobody}"))).await.unwrap_err();
    let is_back = async |world: &World| {
        (world.left("acme#small#tpm").await, world.in_use("acme#concurrent").await)
            == (i64::from(CAPACITY), 0)
    };
    world.until("tokens and slot are back", is_back).await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_dropped_before_its_slot_is_given_back() {
    let world = world().await;
    let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
    let guard = Arc::new(parking_lot::Mutex::new(Some(dropped)));
    let vendor = service_fn(move |_: Request<Full<Bytes>>| {
        let guard = guard.lock().take();
        let pieces = futures_util::stream::unfold((0, guard), async |(n, guard)| match n {
            0 => Some((Ok(Frame::data(Bytes::from("{"))), (1, guard))),
            _ => Some((Err(io::Error::other("broken")), (2, guard))),
        });
        let body = StreamBody::new(pieces.boxed());
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let http = ServiceBuilder::new().layer(world.limiter()).service(vendor);
    let mut body = http.oneshot(request(&world.url)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap_err();
    let is_dropped = tokio::time::timeout(Duration::from_secs(1), is_dropped).await;
    is_dropped.expect("the connection is dropped while its reader keeps the body").unwrap_err();
    slot_is_back(&world).await;
    drop(body);
}
