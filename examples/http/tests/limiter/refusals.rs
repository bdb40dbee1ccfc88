//! Calls that the vendor refuses: the fleet learns of it before the client does.

use sluice_http::Limiter;
use sluice_sdk::core::LimitType;

use crate::world::{World, chat, reqwest_with};

const BUSY: &str = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;

#[tokio::test]
async fn a_refusal_is_known_to_the_fleet_before_the_client_reads_it() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    world.slots("acme#concurrent", 3).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, 10_000).await;
    let body = r#"{"error": {"message": "Rate limit reached. Please try again in 7s.", "code": "rate_limit_exceeded"}}"#;
    world.vendor.books().next = Some((429, body));
    let http = reqwest_with(world.limiter());
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap();
    assert_eq!(reply.status(), 429);
    let now = world.dynamo.clock().now();
    let until = world.blocked_until("acme#rpm").await.expect("a cool-down");
    let wait = until.since(now).as_secs_f64();
    assert!((5.0..=7.0).contains(&wait), "the wait that only the body names: {wait}");
    assert_eq!(world.in_use("acme#concurrent").await, 0);
    assert_eq!(reply.text().await.unwrap(), body, "the client reads all of it");
}

#[tokio::test]
async fn an_error_inside_a_reply_that_began_with_200_is_a_refusal_too() {
    let world = World::new().await;
    world.bucket("anthropic#rpm", LimitType::Requests, 100).await;
    let http = reqwest_with(Limiter::new(world.sluice()).vendor("anthropic"));
    for body in [format!("event: error\ndata: {BUSY}\n\n").leak(), BUSY] {
        world.sluice().end_cool_down("anthropic#rpm").await.unwrap();
        world.vendor.books().next = Some((200, body));
        let reply = http.post(format!("{}/v1/messages", world.url)).body(chat(true)).send().await.unwrap();
        assert_eq!(reply.text().await.unwrap(), *body, "the client reads all of it");
        let is_paused = async |world: &World| {
            let until = world.blocked_until("anthropic#rpm").await;
            until.is_some_and(|until| until > world.dynamo.clock().now())
        };
        world.until("the fleet pauses", is_paused).await;
    }
}

#[tokio::test]
async fn one_hostile_reply_costs_the_fleet_at_most_the_cap_and_one_command_undoes_it() {
    use std::time::Duration;
    let hostile = [
        (429, r#"{"error": {"message": "Please retry after 86400 seconds.", "code": "429"}}"#),
        (429, r#"{"error": {"message": "Quota exceeded", "code": "insufficient_quota"}}"#),
        (503, r#"{"error": {"message": "Please try again in 31 days", "status": "UNAVAILABLE"}}"#),
        (529, BUSY),
        (429, "not JSON at all"),
    ];
    for (status, body) in hostile {
        let world = World::new().await;
        world.bucket("acme#rpm", LimitType::Requests, 100).await;
        world.vendor.books().next = Some((status, body));
        let sluice = world.sluice();
        let http = reqwest_with(Limiter::new(sluice.clone()).vendor("acme"));
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap();
        let now = world.dynamo.clock().now();
        let blocked = world.blocked_until("acme#rpm").await.map_or(Duration::ZERO, |until| until.since(now));
        assert!(blocked <= Duration::from_secs(15 * 60), "{status} {body}: {blocked:?}");
        sluice.end_cool_down("acme#rpm").await.unwrap();
        sluice.refill("acme#rpm", None).await.unwrap();
        assert_eq!(world.blocked_until("acme#rpm").await.filter(|until| *until > now), None, "{body}");
        assert_eq!(world.left("acme#rpm").await, 100, "{body}");
    }
}
