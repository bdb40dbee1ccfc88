//! Clients of DynamoDB, from the credentials of the environment or from a configuration that the program has.

use aws_config::{BehaviorVersion, ConfigLoader, Region};
use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::config::Builder;

use crate::credentials::{CredentialsSource, provider};
use crate::http::http_client;
use crate::settings::Settings;
use crate::store::Store;

pub use aws_config::SdkConfig;

/// The AWS configuration of the environment for a Region, at `endpoint` if given. Makes no request.
pub async fn environment(region: String, endpoint: Option<&str>) -> SdkConfig {
    loader(region, endpoint).load().await
}

fn loader(region: String, endpoint: Option<&str>) -> ConfigLoader {
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(region))
        .http_client(http_client());
    endpoint.into_iter().fold(loader, ConfigLoader::endpoint_url)
}

/// A client with this configuration. `endpoint`, if given, replaces the configured endpoint.
#[must_use]
pub fn client_of(shared: &SdkConfig, endpoint: Option<&str>) -> Dynamo {
    let config = Builder::from(shared);
    let config = match endpoint {
        Some(url) => config.endpoint_url(url),
        None => config,
    };
    Dynamo::from_conf(config.build())
}

impl Settings {
    /// Connects with the AWS credentials of the environment. Makes no request.
    pub async fn connect(self) -> Store {
        let shared = environment(self.region.clone(), self.endpoint_url.as_deref()).await;
        self.connect_with(&shared)
    }

    /// Connects with credentials that the program has. The rest is that of the environment. Makes no request.
    pub async fn connect_with_credentials(self, source: impl CredentialsSource) -> Store {
        let loader =
            loader(self.region.clone(), self.endpoint_url.as_deref()).credentials_provider(provider(source));
        self.connect_with(&loader.load().await)
    }

    /// Connects with an AWS configuration that the program already has.
    #[must_use]
    pub fn connect_with(self, shared: &SdkConfig) -> Store {
        let dynamo = client_of(shared, self.endpoint_url.as_deref());
        Store::new(&dynamo, self)
    }
}
