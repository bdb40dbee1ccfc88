//! A program that calls a vendor by async-openai, limited by Sluice.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{ChatCompletionRequestUserMessageArgs, CreateChatCompletionRequestArgs};

use crate::{BoxError, many};

/// Makes the calls.
///
/// # Errors
/// If the clients cannot be created.
pub async fn run(url: &str) -> Result<usize, BoxError> {
    let config = OpenAIConfig::new().with_api_base(format!("{url}/v1")).with_api_key("none");
    let openai = Client::with_config(config);
    let openai =
        openai.with_http_service(sluice_http::Limiter::from_env().await?.vendor("acme").async_openai());
    let message = ChatCompletionRequestUserMessageArgs::default().content("Hello").build()?;
    let request = CreateChatCompletionRequestArgs::default()
        .model("small")
        .max_completion_tokens(50_u32)
        .messages([message.into()])
        .build()?;
    let call = async || {
        openai.chat().create(request.clone()).await?;
        Ok(())
    };
    Ok(many(call).await)
}
