//! Credentials that a program has: a session of boto3, a provider of another AWS SDK.

use std::fmt::{Debug, Formatter, Result as Written};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

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

    /// When they end. The source is asked again ten seconds before; without an end, every five minutes.
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
    /// The credentials of now, or why there are none. A request waits five seconds for them. A source that
    /// needs longer is asked once a minute at most, and the next requests use its answer.
    fn credentials(&self) -> impl Future<Output = Result<AwsCredentials, String>> + Send;
}

/// How long credentials without an end are used. A session of boto3 renews them at least ten minutes before
/// they end, and does not say when that is.
const WITHOUT_END: Duration = Duration::from_secs(5 * 60);

/// How long a source may take. After that it is asked anew, even if it has not answered.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

type Answer = Result<AwsCredentials, String>;

/// The source, and the question that it has not answered yet. A request waits for credentials for a few
/// seconds; the question outlives it, so that a slower source is not asked by each request anew.
struct Source<S> {
    source: Arc<S>,
    under_way: Mutex<Option<Question>>,
}

struct Question {
    asked: Instant,
    answer: JoinHandle<Answer>,
}

pub(crate) fn provider(source: impl CredentialsSource) -> impl ProvideCredentials {
    Source { source: Arc::new(source), under_way: Mutex::new(None) }
}

impl<S: CredentialsSource> Source<S> {
    async fn ask(&self) -> Answer {
        let mut under_way = self.under_way.lock().await;
        under_way.take_if(|question| question.asked.elapsed() > LONGEST_ANSWER);
        let question = under_way.get_or_insert_with(|| {
            let source = Arc::clone(&self.source);
            Question {
                asked: Instant::now(),
                answer: tokio::spawn(async move { source.credentials().await }),
            }
        });
        let answer = (&mut question.answer).await;
        *under_way = None;
        answer.unwrap_or_else(|stopped| Err(format!("the source of the credentials stopped: {stopped}")))
    }
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
                self.ask().await.map_err(CredentialsError::provider_error)?;
            let expires = expires.unwrap_or_else(|| SystemTime::now() + WITHOUT_END);
            Ok(Credentials::new(access_key_id, secret_access_key, session_token, Some(expires), "sluice"))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::{sleep, timeout};

    use super::*;

    /// Answers after a time, and counts the questions. The counter is shared.
    struct Slow(Duration, Arc<AtomicU32>);

    impl CredentialsSource for Slow {
        async fn credentials(&self) -> Answer {
            let number = self.1.fetch_add(1, Ordering::Relaxed);
            sleep(self.0).await;
            Ok(AwsCredentials::new(format!("AKID{number}"), "secret"))
        }
    }

    fn source(answers_after: Duration) -> (impl ProvideCredentials, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        (provider(Slow(answers_after, Arc::clone(&asked))), asked)
    }

    const REQUEST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gave_up_leaves_its_question_to_the_next() {
        let (slow, asked) = source(REQUEST * 3 / 2);
        assert!(timeout(REQUEST, slow.provide_credentials()).await.is_err());
        let credentials = timeout(REQUEST, slow.provide_credentials()).await.unwrap().unwrap();
        assert_eq!((credentials.access_key_id(), asked.load(Ordering::Relaxed)), ("AKID0", 1));
        assert!(
            timeout(REQUEST, slow.provide_credentials()).await.is_err(),
            "the next question is a new one"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_long_ago_is_not_used() {
        let (slow, _) = source(REQUEST * 3 / 2);
        assert!(timeout(REQUEST, slow.provide_credentials()).await.is_err());
        sleep(LONGEST_ANSWER).await;
        assert_eq!(slow.provide_credentials().await.unwrap().access_key_id(), "AKID1");
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_without_an_end_are_asked_for_again() {
        let (source, _) = source(Duration::ZERO);
        let expires = source.provide_credentials().await.unwrap().expiry().unwrap();
        assert!(expires <= SystemTime::now() + WITHOUT_END);
    }
}
