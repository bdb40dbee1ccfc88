//! A program that calls a vendor by reqwest, without a limiter.

use reqwest_middleware::ClientBuilder;

use crate::{BoxError, many};

const BODY: &str =
    r#"{"model": "small", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}"#;

/// Makes the calls.
///
/// # Errors
/// If the clients cannot be created.
pub async fn run(url: &str) -> Result<usize, BoxError> {
    let http = ClientBuilder::new(reqwest::Client::new());
    let http = http.build();
    let call = async || {
        let request = http.post(format!("{url}/v1/chat/completions")).body(BODY);
        request.send().await?.error_for_status()?.bytes().await?;
        Ok(())
    };
    Ok(many(call).await)
}
