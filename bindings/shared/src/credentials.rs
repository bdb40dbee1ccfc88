//! Credentials that the program has in its own language.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;
use sluice_sdk::credentials::{AwsCredentials, CredentialsSource};
use tokio::sync::oneshot;

/// Asks the program for credentials.
pub struct AskedCredentials<A>(pub A);

/// A question for credentials. Dropped, it answers that there are none.
#[derive(Debug)]
pub struct CredentialsQuestion(oneshot::Sender<Result<AwsCredentials, String>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    /// Milliseconds since 1970.
    expires_ms: Option<f64>,
}

impl From<Told> for AwsCredentials {
    fn from(told: Told) -> Self {
        let keys = Self::new(told.access_key_id, told.secret_access_key);
        let keys = told.session_token.into_iter().filter(|token| !token.is_empty()).fold(keys, Self::session_token);
        let since_1970 = told.expires_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok());
        let expires = since_1970.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        expires.into_iter().fold(keys, Self::expires)
    }
}

impl CredentialsQuestion {
    /// Answers with `accessKeyId`, `secretAccessKey`, `sessionToken` and `expiresMs`, of which the last two may be missing.
    pub fn answer(self, keys: Value) {
        let read = serde_json::from_value::<Told>(keys).map(AwsCredentials::from);
        // The text of serde names no value: it may be a secret.
        self.tell(read.map_err(|_| {
            "the program's credentials need accessKeyId and secretAccessKey, texts that are not empty".to_owned()
        }));
    }

    /// Answers that there are none, and why.
    pub fn fail(self, why: impl Into<String>) {
        self.tell(Err(why.into()));
    }

    fn tell(self, answer: Result<AwsCredentials, String>) {
        // The request may have given up.
        let _ = self.0.send(answer);
    }
}

impl<A: Fn(CredentialsQuestion) + Send + Sync + 'static> CredentialsSource for AskedCredentials<A> {
    async fn credentials(&self) -> Result<AwsCredentials, String> {
        let (sender, receiver) = oneshot::channel();
        (self.0)(CredentialsQuestion(sender));
        receiver.await.unwrap_or_else(|_| Err("the program has ended its source of credentials".to_owned()))
    }
}
