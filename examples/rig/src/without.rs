//! A program that calls a vendor by rig, without a limiter.

use reqwest_middleware::ClientBuilder;
use rig_core::completion::CompletionRequest;
use rig_core::providers::openai::OpenAIConfig;
use rig_reqwest::ReqwestMiddlewareClient;

use crate::{BoxError, many};

/// Makes the calls.
pub(crate) async fn run(url: &str) -> Result<usize, BoxError> {
    let http = ClientBuilder::new(reqwest::Client::new());
    let http = ReqwestMiddlewareClient::from(http.build());
    let openai = OpenAIConfig::new("none").with_base_url(format!("{url}/v1")).connect(http);
    let model = openai.chat("small");
    let call = async || {
        model.call(CompletionRequest::new("Hello").max_tokens(50)).await?;
        Ok(())
    };
    Ok(many(call).await)
}
