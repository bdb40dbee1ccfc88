//! A program that calls a model of Amazon Bedrock, limited by Sluice.

use aws_sdk_bedrockruntime::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_bedrockruntime::types::{ContentBlock, ConversationRole, InferenceConfiguration, Message};
use aws_sdk_bedrockruntime::{Client, Config};

use crate::{BoxError, many};

/// Makes the calls.
///
/// # Errors
/// If the clients cannot be created.
pub async fn run(url: &str) -> Result<usize, BoxError> {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let http = sluice_http::Limiter::from_env().await?.vendor("acme").http_client(http);
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("none", "none", None, None, "none"))
        .endpoint_url(url)
        .http_client(http);
    let bedrock = Client::from_conf(config.build());
    let text = ContentBlock::Text("Hello".to_owned());
    let message = Message::builder().role(ConversationRole::User).content(text).build()?;
    let call = async || {
        let settings = InferenceConfiguration::builder().max_tokens(50).build();
        let request =
            bedrock.converse().model_id("small").messages(message.clone()).inference_config(settings);
        request.send().await?;
        Ok(())
    };
    Ok(many(call).await)
}
