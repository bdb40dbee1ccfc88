//! A program that calls a vendor by a tower service, limited by Sluice.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::ServiceExt as _;

use crate::{BoxError, many};

const BODY: &str =
    r#"{"model": "small", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}"#;

/// Makes the calls.
///
/// # Errors
/// If the clients cannot be created.
#[rustfmt::skip] // The layer is one line.
pub async fn run(url: &str) -> Result<usize, BoxError> {
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let http = tower::ServiceBuilder::new().layer(sluice_http::Limiter::from_env().await?.vendor("acme")).service(http);
    let call = async || {
        let request =
            Request::post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
        let reply = http.clone().oneshot(request.body(Full::from(BODY))?).await?;
        let succeeded = reply.status().is_success();
        reply.into_body().collect().await?;
        if succeeded { Ok(()) } else { Err("refused".into()) }
    };
    Ok(many(call).await)
}
