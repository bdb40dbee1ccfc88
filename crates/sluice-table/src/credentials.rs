//! Credentials that a program has: a session of boto3, a provider of another AWS SDK.

use std::fmt::{Debug, Formatter, Result as Written};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials};

/// Credentials of AWS.
#[derive(Clone)]
#[non_exhaustive]
pub struct AwsCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expires: Option<SystemTime>,
}

impl AwsCredentials {
    /// A pair of keys.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
        Self { access_key_id, secret_access_key, session_token: None, expires: None }
    }

    /// The token that temporary credentials have.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// When they end. The source is asked again shortly before; without an end, every five minutes.
    #[must_use]
    pub const fn expires(mut self, at: SystemTime) -> Self {
        self.expires = Some(at);
        self
    }
}

impl Debug for AwsCredentials {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Written {
        formatter.debug_struct("AwsCredentials").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Where a program's own credentials come from. It is asked at the first request, and again before they end.
pub trait CredentialsSource: Send + Sync + 'static {
    /// The credentials of now, or why there are none.
    fn credentials(&self) -> impl Future<Output = Result<AwsCredentials, String>> + Send;
}

/// How long credentials without an end are used. A session of boto3 renews them at least ten minutes before they end, and does
/// not say when that is.
const WITHOUT_END: Duration = Duration::from_secs(5 * 60);

struct Source<S>(Arc<S>);

pub(crate) fn provider(source: impl CredentialsSource) -> impl ProvideCredentials {
    Source(Arc::new(source))
}

impl<S> Debug for Source<S> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Written {
        formatter.write_str("the program's credentials")
    }
}

impl<S: CredentialsSource> ProvideCredentials for Source<S> {
    fn provide_credentials<'a>(&'a self) -> provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        provider::future::ProvideCredentials::new(async {
            let AwsCredentials { access_key_id, secret_access_key, session_token, expires } =
                self.0.credentials().await.map_err(CredentialsError::provider_error)?;
            let expires = expires.unwrap_or_else(|| SystemTime::now() + WITHOUT_END);
            Ok(Credentials::new(access_key_id, secret_access_key, session_token, Some(expires), "sluice"))
        })
    }
}
