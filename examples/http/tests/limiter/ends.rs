//! How calls end, and what they keep: errors in the middle, gateways that give up, connections that never
//! end.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use sluice_http::Limiter;
use sluice_sdk::OnUnavailable;
use sluice_sdk::core::LimitType;
use sluice_testkit::Fault;

use crate::world::{World, chat, reqwest_with};

const CAPACITY: i64 = 10_000;

async fn world() -> World {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, 10_000).await;
    world.slots("acme#concurrent", 1).await;
    world
}

async fn call(
    world: &World,
    limiter: Limiter,
    stream: bool,
) -> reqwest_middleware::Result<reqwest::Response> {
    reqwest_with(limiter).post(format!("{}/v1/chat/completions", world.url)).body(chat(stream)).send().await
}

async fn taken(world: &World) -> i64 {
    CAPACITY - world.left("acme#small#tpm").await
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_keeps_the_tokens_and_one_at_its_beginning_returns_them() {
    const ERROR: &str = "event: e\ndata: {\"error\": {\"message\": \"over capacity\", \"code\": \"rate_limit_exceeded\"}}\n\n";
    let begun =
        format!("event: e\ndata: {{\"choices\": [{{\"delta\": {{\"content\": \"Good\"}}}}]}}\n\n{ERROR}")
            .leak();
    for (body, keeps) in [(&*begun, true), (ERROR, false)] {
        let world = world().await;
        world.vendor.books().next = Some((200, body));
        let reply = call(&world, world.limiter(), true).await.unwrap();
        assert_eq!(reply.text().await.unwrap(), *body);
        world.until("the call has ended", async |world| world.in_use("acme#concurrent").await == 0).await;
        let is_so = async |world: &World| (50..100).contains(&taken(world).await) == keeps;
        world.until("the tokens are kept, or back", is_so).await;
    }
}

#[tokio::test]
async fn a_gateway_that_gives_up_keeps_the_tokens_and_any_other_failure_returns_them() {
    for (status, keeps) in [(504, true), (502, true), (500, false)] {
        let world = world().await;
        world.vendor.books().next = Some((status, "{}"));
        assert_eq!(call(&world, world.limiter(), false).await.unwrap().status(), status);
        assert_eq!((50..100).contains(&taken(&world).await), keeps, "{status}");
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_sent_gives_its_request_back_too() {
    let world = world().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // A level below the capacity shows what comes back.
    call(&world, world.limiter(), false).await.unwrap().bytes().await.unwrap();
    let sent = reqwest_with(world.limiter()).post(format!("http://{nobody}/v1/chat/completions"));
    sent.body(chat(false)).send().await.unwrap_err();
    assert_eq!(world.left("acme#rpm").await, 99);
}

#[tokio::test]
async fn a_call_larger_than_a_lowered_limit_is_made_and_takes_all_of_it() {
    let world = world().await;
    let limiter = world.limiter();
    call(&world, limiter.clone(), false).await.unwrap().bytes().await.unwrap();
    world.bucket("acme#small#tpm", LimitType::Tokens, 20).await;
    let reply = call(&world, limiter, false).await.unwrap();
    assert!(reply.status().is_success(), "{}", reply.status());
}

#[tokio::test]
async fn a_vendor_that_counts_on_arrival_is_charged_what_the_bucket_was_too_small_to_give() {
    for stream in [false, true] {
        let world = World::new().await;
        world.bucket("openai#tpm", LimitType::Tokens, 30).await;
        let limiter = Limiter::new(world.sluice()).vendor("openai").ask_usage();
        let reply = call(&world, limiter, stream).await.unwrap();
        let mut pieces = reply.bytes_stream();
        pieces.next().await.unwrap().unwrap();
        drop(pieces);
        // max_tokens is 50.
        world.until("it is charged", async |world| world.left("openai#tpm").await == 30 - 50).await;
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_holds_its_slot_for_the_longest_call() {
    let world = world().await;
    world.vendor.books().breaks_off = true;
    let limiter = world.limiter().longest_call(Duration::from_millis(300));
    let _reply = call(&world, limiter, true).await.unwrap();
    assert_eq!(world.in_use("acme#concurrent").await, 1);
    world.until("the slot is back", async |world| world.in_use("acme#concurrent").await == 0).await;
    assert!((50..100).contains(&taken(&world).await), "its tokens stay taken");
}

#[tokio::test]
async fn while_the_table_is_out_a_model_that_was_never_seen_is_called_if_calls_go_on_then() {
    let quick = Duration::from_millis(100);
    for (policy, goes_on) in [(OnUnavailable::Allow, true), (OnUnavailable::Error, false)] {
        let world = world().await;
        let sluice = world.sluice_with(|settings| {
            settings.attempt_timeout(quick).answer_within(quick).on_unavailable(policy)
        });
        world.dynamo.faults().draw(|_| Some(Fault::LoseRequest));
        let began = Instant::now();
        let limiter = Limiter::new(sluice).vendor("acme").patience(Duration::from_secs(1));
        assert_eq!(call(&world, limiter, false).await.is_ok(), goes_on);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_table_that_hangs_costs_a_call_no_more_than_its_patience() {
    let world = world().await;
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    let began = Instant::now();
    let limiter = world.limiter();
    let reply = call(&world, limiter, false).await.unwrap();
    assert_eq!(reply.status(), 429, "the limiter's own: no bucket was found in time");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(world.vendor.books().answered, 0);
}

#[tokio::test]
async fn a_patience_without_an_end_is_no_error() {
    let world = world().await;
    assert!(
        call(&world, world.limiter().patience(Duration::MAX), false).await.unwrap().status().is_success()
    );
}
