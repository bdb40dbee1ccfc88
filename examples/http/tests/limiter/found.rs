//! Which calls are limited, and by which buckets.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluice_http::Limiter;
use sluice_sdk::core::LimitType;
use sluice_sdk::vendors::Vendors;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

use crate::world::{World, chat, reqwest_with};

/// A limiter of calls to the host of a vendor that is also called `nearby`.
fn of_host(world: &World) -> Limiter {
    let vendors = || {
        Vendors::default().with("vendor = \"local\"\nalso = [\"nearby\"]\nhosts = [\"127.0.0.1\"]").unwrap()
    };
    Limiter::new(world.sluice_with(move |settings| settings.vendors(vendors())))
}

async fn post(limiter: &Limiter, request: Request<Full<Bytes>>) {
    let vendor = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("{}")))
    });
    ServiceBuilder::new().layer(limiter.clone()).service(vendor).oneshot(request).await.unwrap();
}

fn request(uri: &str, body: String) -> Request<Full<Bytes>> {
    Request::post(uri).header("content-type", "application/json").body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn buckets_with_another_name_of_the_vendor_are_found() {
    let world = World::new().await;
    world.bucket("nearby#rpm", LimitType::Requests, 100).await;
    world.bucket("nearby#small#rpm", LimitType::Requests, 100).await;
    let http = reqwest_with(of_host(&world));
    let url = format!("{}/v1/chat/completions", world.url);
    for _ in 0..2 {
        assert!(http.post(&url).body(chat(false)).send().await.unwrap().status().is_success());
    }
    assert_eq!((world.left("nearby#rpm").await, world.left("nearby#small#rpm").await), (98, 98));
}

/// The share pays, and no call asks for more than its line can hold: 40 of 400 tokens, beside 54 that are
/// asked for.
#[tokio::test]
async fn calls_are_paid_by_a_share() {
    let world = World::new().await;
    world.bucket_with_share("acme#rpm", LimitType::Requests, 100, ("search", "0.1")).await;
    world.bucket_with_share("acme#tpm", LimitType::Tokens, 400, ("search", "0.1")).await;
    let url = format!("{}/v1/chat/completions", world.url);
    for (limiter, left) in [(world.limiter().share("search"), (90, 9)), (world.limiter(), (89, 9))] {
        let reply = reqwest_with(limiter).post(&url).body(chat(false)).send().await.unwrap();
        assert!(reply.status().is_success());
        assert_eq!((world.line_left("acme#rpm", 0).await, world.line_left("acme#rpm", 1).await), left);
    }
    let error =
        reqwest_with(world.limiter().share("no good")).post(&url).body(chat(false)).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("malformed share"), "{error:?}");
}

#[tokio::test]
async fn an_address_without_a_host_is_known_by_the_header() {
    let world = World::new().await;
    world.bucket("local#rpm", LimitType::Requests, 100).await;
    let mut of_header = request("/v1/chat/completions", chat(false));
    post(&of_host(&world), of_header.clone()).await;
    assert_eq!(world.left("local#rpm").await, 100, "of no known host");
    of_header.headers_mut().insert("host", "127.0.0.1:8080".parse().unwrap());
    post(&of_host(&world), of_header).await;
    assert_eq!(world.left("local#rpm").await, 99);
}

#[tokio::test]
async fn a_model_is_found_behind_any_number_of_others() {
    let world = World::new().await;
    world.bucket("acme#small#rpm", LimitType::Requests, 100).await;
    let limiter = world.limiter();
    for n in 0..210 {
        let body = format!(r#"{{"model": "other-{n}x", "messages": []}}"#);
        post(&limiter, request("/v1/chat/completions", body)).await;
    }
    for _ in 0..2 {
        post(&limiter, request("/v1/chat/completions", chat(false))).await;
    }
    assert_eq!(world.left("acme#small#rpm").await, 98);
}

#[tokio::test]
async fn what_is_no_call_of_a_model_takes_nothing() {
    let world = World::new().await;
    world.bucket("acme#rpm", LimitType::Requests, 100).await;
    let paths = [
        "/v1/messages/count_tokens",
        "/v1beta/models/gemini-2.5-flash:countTokens",
        "/model/amazon.nova-lite-v1%3A0/count-tokens",
        "/v1/files",
        "/v1/batches",
        "/v1/messages/batches",
        "/v1/batches/batch_1/cancel",
        "/v1/uploads/upload_1/parts",
    ];
    for path in paths {
        post(&world.limiter(), request(path, chat(false))).await;
        assert_eq!(world.left("acme#rpm").await, 100, "{path}");
    }
    post(&world.limiter(), request("/v1/messages", chat(false))).await;
    assert_eq!(world.left("acme#rpm").await, 99);
}

#[tokio::test]
async fn a_call_inside_of_a_slot_of_the_same_bucket_passes() {
    let world = World::new().await;
    world.slots("acme#concurrent", 1).await;
    let sluice = world.sluice();
    let http =
        reqwest_with(Limiter::new(sluice.clone()).vendor("acme").patience(std::time::Duration::from_secs(1)));
    let url = format!("{}/v1/chat/completions", world.url);
    let call = async |_: sluice_sdk::Slot| {
        Ok::<_, Box<dyn std::error::Error>>(http.post(&url).body(chat(false)).send().await?.status())
    };
    let status = sluice.slot("acme#concurrent").run(call).await.unwrap();
    assert!(status.is_success(), "it would wait for itself");
}
