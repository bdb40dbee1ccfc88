//! A call in steps, as an HTTP client that is not written in Rust makes it.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use sluice_http::{Limiter, REFUSED_BY, Started, StartedCall};
use sluice_sdk::core::LimitType;

use crate::world::{World, chat};

const CAPACITY: i64 = 1_000;

/// Buckets that are not full, so that they take everything back.
async fn world() -> World {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    world.bucket("acme#tpm", LimitType::Tokens, 2_000).await;
    world.slots("acme#concurrent", 1).await;
    let used =
        world.sluice().acquire(sluice_sdk::Request::from("acme#tpm").cost("acme#tpm", 1_000)).await.unwrap();
    used.granted().unwrap().release().await.unwrap();
    world
}

async fn start(limiter: &Limiter, method: Method) -> Started {
    let uri: Uri = "http://localhost/v1/chat/completions".parse().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    limiter.start(&method, &uri, &headers, Some(chat(true).as_bytes())).await.unwrap()
}

async fn granted(limiter: &Limiter) -> StartedCall {
    let Started::Granted(call) = start(limiter, Method::POST).await else { panic!("it may be made") };
    *call
}

async fn tokens_taken(world: &World) -> i64 {
    CAPACITY - world.left("acme#tpm").await
}

#[tokio::test]
async fn a_reply_is_settled_at_its_end_and_its_slot_is_back() {
    let world = world().await;
    let limiter = world.limiter().ask_usage();
    assert!(matches!(start(&limiter, Method::GET).await, Started::Free));
    let call = granted(&limiter).await;
    assert!(call.other_body().is_some_and(|body| body.windows(13).any(|part| part == b"include_usage")));
    assert!((51..80).contains(&tokens_taken(&world).await));
    let mut reply = call.answered(Response::new(()));
    reply.feed(b"data: {\"choices\": [{\"finish_reason\": \"stop\"}]}\n\ndata: {\"choices\": [], \"usage\": {\"prompt");
    reply.feed(b"_tokens\": 3, \"completion_tokens\": 4}}\n\ndata: [DONE]\n\n");
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    reply.end().await;
    assert_eq!((world.in_use("acme#concurrent").await, tokens_taken(&world).await), (0, 7));
}

#[tokio::test]
async fn what_is_dropped_gives_its_slot_back_and_keeps_its_tokens() {
    let world = world().await;
    let limiter = world.limiter();
    drop(granted(&limiter).await);
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
    let taken = tokens_taken(&world).await;
    drop(granted(&limiter).await.answered(Response::new(())));
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
    assert_eq!(tokens_taken(&world).await, 2 * taken);
}

#[tokio::test]
async fn a_call_that_was_not_sent_gives_its_tokens_back_and_one_that_was_keeps_them() {
    let world = world().await;
    let limiter = world.limiter();
    granted(&limiter).await.unanswered(false).await;
    assert_eq!((world.in_use("acme#concurrent").await, tokens_taken(&world).await), (0, 0));
    granted(&limiter).await.unanswered(true).await;
    assert!(tokens_taken(&world).await > 50);
}

#[tokio::test]
async fn a_refusal_reaches_the_fleet_and_beyond_the_patience_there_is_a_reply() {
    let world = world().await;
    let limiter = world.limiter();
    let mut refused = Response::new(b"{}".to_vec());
    *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    refused.headers_mut().insert("retry-after", HeaderValue::from_static("3"));
    granted(&limiter).await.failed(refused).await;
    assert!(world.blocked_until("acme#rpm").await.is_some());
    let Started::Refused(reply) = start(&limiter, Method::POST).await else { panic!("it cools down") };
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.headers()[REFUSED_BY], "acme#rpm");
}
