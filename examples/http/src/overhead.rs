//! What the limiter adds to a call beyond its waiting: the same call to a vendor in this process, with and
//! without.
//!
//! `cargo run --release -p sluice-http-examples --bin overhead`

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluice_http::Limiter;
use sluice_http_examples::BoxError;
use sluice_sdk::Client;
use sluice_sdk::core::{Amount, Cost, Dimension, Limit, LimitType, Rate};
use sluice_testkit::EmbeddedDynamo;
use tower::{Service, ServiceBuilder, ServiceExt as _, service_fn};

const CALLS: usize = 20_000;
const BODY: &str =
    r#"{"model": "small", "max_tokens": 50, "messages": [{"role": "user", "content": "Good morning"}]}"#;
const REPLY: &str =
    r#"{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 12}}"#;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "its answer")]
async fn main() -> Result<(), BoxError> {
    let dynamo = EmbeddedDynamo::with_table("overhead").await?;
    let sluice = dynamo.client_with(Client::builder("overhead").prefetch(["acme#rpm"]));
    let capacity = Amount::from_tokens(1_000_000);
    let limit = Limit::rate(
        LimitType::Requests,
        capacity,
        Rate::per(capacity, Duration::from_secs(1)).ok_or("rate")?,
        Cost::ONE,
    )?;
    sluice.ops().apply_limit(&Dimension::new("acme#rpm")?, &limit).await?;
    let vendor = service_fn(async |_: Request<Full<Bytes>>| {
        let reply = Response::builder().header("content-type", "application/json");
        Ok::<_, Infallible>(reply.body(Full::from(REPLY)).unwrap_or_default())
    });
    let without = p50(vendor).await?;
    let limited = ServiceBuilder::new().layer(Limiter::new(sluice).vendor("acme")).service(vendor);
    let with = p50(limited).await?;
    let added = with.saturating_sub(without);
    println!("p50 of {CALLS} calls: {without:?} without, {with:?} with the limiter: it adds {added:?}");
    let requests = dynamo.meter().total().requests;
    println!("{requests} requests to DynamoDB for {} calls", CALLS + CALLS / 10);
    Ok(())
}

/// The median time of a call and its body.
async fn p50<S, B>(service: S) -> Result<Duration, BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body_util::BodyExt<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut took = Vec::with_capacity(CALLS);
    for call in 0..CALLS + CALLS / 10 {
        let request = Request::post("/v1/chat/completions").header("content-type", "application/json");
        let request = request.body(Full::from(BODY))?;
        let began = Instant::now();
        let reply = service.clone().oneshot(request).await.map_err(Into::into)?;
        reply.into_body().collect().await.map_err(Into::into)?;
        if call >= CALLS / 10 {
            took.push(began.elapsed());
        }
    }
    took.sort_unstable();
    Ok(took[took.len() / 2])
}
