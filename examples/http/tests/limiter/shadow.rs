//! In shadow mode, every call goes on, and no reply is the limiter's own.

use std::time::{Duration, Instant};

use sluice_http::{Limiter, REFUSED_BY};
use sluice_sdk::Mode;
use sluice_sdk::core::LimitType;
use sluice_testkit::Fault;

use crate::world::{World, chat, reqwest_with};

fn limiter(world: &World) -> Limiter {
    let sluice =
        world.sluice_with(|settings| settings.mode(Mode::Shadow).answer_within(Duration::from_secs(1)));
    Limiter::new(sluice).vendor("acme").patience(Duration::from_secs(10))
}

async fn call(http: &reqwest_middleware::ClientWithMiddleware, world: &World) -> (u16, bool) {
    let reply =
        http.post(format!("{}/v1/chat/completions", world.url)).body(chat(false)).send().await.unwrap();
    (reply.status().as_u16(), reply.headers().contains_key(REFUSED_BY))
}

#[tokio::test]
async fn every_call_passes_beyond_every_limit() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 2).await;
    world.bucket("acme#small#tpm", LimitType::Tokens, 100).await;
    world.slots("acme#concurrent", 1).await;
    let http = reqwest_with(limiter(&world));
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(call(&http, &world).await, (200, false));
    }
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "nobody waited for the patience: {:?}",
        began.elapsed()
    );
    assert_eq!(world.left("acme#rpm").await, 0, "what is there is taken");
    world.until("the slots are back", async |world| world.in_use("acme#concurrent").await == 0).await;
}

#[tokio::test]
async fn a_call_passes_while_the_table_does_not_answer() {
    for fault in [Fault::LoseRequest, Fault::Hang] {
        let world = World::new().await;
        world.bucket("acme#rpm", LimitType::Requests, 100).await;
        let (known, unknown) = (reqwest_with(limiter(&world)), reqwest_with(limiter(&world)));
        assert_eq!(call(&known, &world).await, (200, false));
        world.dynamo.faults().draw(move |_| Some(fault.clone()));
        for http in [&known, &unknown] {
            for _ in 0..3 {
                let began = Instant::now();
                assert_eq!(call(http, &world).await, (200, false));
                assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            }
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_named_and_missing_stops_no_call() {
    let world = World::new().await;
    let limiter = limiter(&world).buckets([sluice_sdk::Dimension::constant("acme#missing")]);
    let http = reqwest_with(limiter);
    for _ in 0..2 {
        assert_eq!(call(&http, &world).await, (200, false));
    }
}

/// The others count.
#[tokio::test]
async fn one_of_several_named_buckets_that_is_missing_stops_no_counting() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    let names = ["acme#missing", "acme#rpm"].map(sluice_sdk::Dimension::constant);
    let http = reqwest_with(limiter(&world).buckets(names));
    for _ in 0..3 {
        assert_eq!(call(&http, &world).await, (200, false));
    }
    assert_eq!(world.left("acme#rpm").await, 97);
}

#[tokio::test]
async fn a_call_inside_of_a_slot_that_the_program_holds_is_counted_once() {
    let world = World::new().await;
    world.slots("acme#concurrent", 3).await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    let sluice = world.sluice_with(|settings| settings.mode(Mode::Shadow));
    let http = reqwest_with(Limiter::new(sluice.clone()).vendor("acme"));
    let within = sluice.slot("acme#concurrent").run(async |_| {
        assert_eq!(call(&http, &world).await, (200, false));
        assert_eq!(world.in_use("acme#concurrent").await, 1);
        Ok::<_, sluice_sdk::LimitError>(())
    });
    within.await.unwrap();
}

#[tokio::test]
async fn a_refusal_of_the_vendor_reaches_the_client_at_once_and_the_fleet_soon() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 1).await;
    let http = reqwest_with(limiter(&world));
    assert_eq!(call(&http, &world).await, (200, false));
    // This call holds nothing, and is refused by the vendor itself.
    world.vendor.books().next =
        Some((429, r#"{"error": {"message": "Please try again in 7s.", "code": "rate_limit_exceeded"}}"#));
    assert_eq!(call(&http, &world).await, (429, false));
    let is_paused = async |world: &World| {
        world.blocked_until("acme#rpm").await.is_some_and(|until| until > world.dynamo.clock().now())
    };
    world.until("the fleet pauses", is_paused).await;
}
