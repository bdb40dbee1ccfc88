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
struct GivenKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    /// Milliseconds since 1970.
    expires_ms: Option<f64>,
}

impl GivenKeys {
    const fn has_keys(&self) -> bool {
        !self.access_key_id.is_empty() && !self.secret_access_key.is_empty()
    }
}

impl From<GivenKeys> for AwsCredentials {
    fn from(given: GivenKeys) -> Self {
        let keys = Self::new(given.access_key_id, given.secret_access_key);
        let keys =
            given.session_token.into_iter().filter(|token| !token.is_empty()).fold(keys, Self::session_token);
        let since_1970 = given.expires_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok());
        let expires = since_1970.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        expires.into_iter().fold(keys, Self::expires)
    }
}

impl CredentialsQuestion {
    /// Answers with `accessKeyId`, `secretAccessKey`, `sessionToken` and `expiresMs`, of which the last two
    /// may be missing.
    pub fn answer(self, keys: Value) {
        let read = serde_json::from_value(keys).ok().filter(GivenKeys::has_keys).map(AwsCredentials::from);
        // An error of serde may quote a value, and the value may be a secret.
        self.tell(read.ok_or_else(|| {
            "the program's credentials need an access key ID and a secret access key, which are texts"
                .to_owned()
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    async fn answered(
        answer: impl Fn(CredentialsQuestion) + Send + Sync + 'static,
    ) -> Result<String, String> {
        AskedCredentials(answer).credentials().await.map(|keys| format!("{keys:?}"))
    }

    #[tokio::test]
    async fn keys_are_read_and_their_end() {
        for (expires_ms, end) in
            [(json!(1_000.5), "Some(SystemTime { tv_sec: 1, tv_nsec: 500000 })"), (json!(null), "None")]
        {
            let keys = json!({ "accessKeyId": "AKID", "secretAccessKey": "s", "sessionToken": "", "expiresMs": expires_ms });
            let told = answered(move |question| question.answer(keys.clone())).await.unwrap();
            assert!(told.contains(end), "{told}");
        }
    }

    #[tokio::test]
    async fn keys_that_are_missing_are_an_error_that_quotes_no_secret() {
        for keys in [
            json!({ "accessKeyId": "AKID", "secretAccessKey": 5_309 }),
            json!({ "accessKeyId": "AKID", "secretAccessKey": "" }),
            json!({ "accessKeyId": "AKID", "secretAccessKey": "hidden", "expiresMs": "hidden" }),
            Value::Null,
        ] {
            let why = answered(move |question| question.answer(keys.clone())).await.unwrap_err();
            assert!(
                why.contains("secret access key") && !why.contains("5309") && !why.contains("hidden"),
                "{why}"
            );
        }
    }

    #[tokio::test]
    async fn an_error_is_told_and_a_question_that_is_dropped_is_one() {
        assert_eq!(answered(|question| question.fail("no profile")).await.unwrap_err(), "no profile");
        assert!(answered(drop).await.unwrap_err().contains("ended its source"));
    }
}
