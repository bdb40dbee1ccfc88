//! What the examples have in common: vendors with limits of their own, a table with buckets for them, and a
//! queue.

#[cfg(doctest)]
mod guides;
pub mod queue;
pub mod voices;

use std::error::Error;
use std::time::Duration;

use futures_util::{Stream, stream};
use sluice_sdk::Client;
use sluice_sdk::core::{Amount, Cost, DeclaredShare, Dimension, Limit, LimitType, Rate, ShareName, Split};
use sluice_testkit::EmbeddedDynamo;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A vendor with a limit of requests and one of tokens: a line each, as in Sluice. It counts from its first
/// moment on, so that calls which a busy machine delays are not held against their caller. Now and then it
/// also refuses a call for no reason, as vendors do.
#[derive(Debug)]
pub struct Vendor {
    since: Instant,
    window: Duration,
    /// Requests and tokens in each window, and at once.
    limits: [u32; 2],
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Requests and tokens of the calls that were answered.
    answered: [u64; 2],
    calls: u64,
    refused: Refused,
}

/// How many calls a vendor has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Because they were above a limit: none, if the limiter is right.
    pub above: u64,
    /// For no reason.
    pub by_chance: u64,
}

/// One of so many calls is refused for no reason.
const EACH: u64 = 800;

/// A call that failed for a reason that has nothing to do with limits.
#[derive(Debug, thiserror::Error)]
#[error("the vendor answered with status {0}")]
pub struct VendorError(pub u16);

/// A piece of a streamed answer.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The text of this piece.
    pub text: String,
    /// What the whole call used; the last piece says it.
    pub used: Option<u64>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// What the call used.
    pub used: u64,
}

impl Vendor {
    /// A vendor that allows so many requests and tokens in each window. Create it before the buckets: its
    /// count begins now.
    #[must_use]
    pub fn new(window: Duration, requests: u32, tokens: u32) -> Self {
        Self { since: Instant::now(), window, limits: [requests, tokens], counted: Mutex::default() }
    }

    /// Answers a prompt.
    ///
    /// # Errors
    /// [`VendorError`] for an empty prompt.
    pub async fn ask(&self, prompt: &str) -> Result<http::Response<Answer>, VendorError> {
        let (status, answer) = self.count(prompt).await?;
        sleep(Duration::from_millis(20)).await;
        Ok(reply(status, answer))
    }

    /// Answers a prompt piece by piece.
    ///
    /// # Errors
    /// [`VendorError`] for an empty prompt.
    pub async fn chat(
        &self,
        prompt: &str,
    ) -> Result<http::Response<impl Stream<Item = Result<Piece, VendorError>> + Send + 'static>, VendorError>
    {
        let (status, answer) = self.count(prompt).await?;
        let words: Vec<String> = answer.text.split_inclusive(' ').map(String::from).collect();
        let last = words.len().saturating_sub(1);
        let pieces = words
            .into_iter()
            .enumerate()
            .map(move |(at, text)| Piece { text, used: (at == last).then_some(answer.used) });
        Ok(reply(status, Box::pin(stream::iter(pieces.map(Ok)))))
    }

    /// How many calls the vendor has refused.
    pub async fn refused(&self) -> Refused {
        self.counted.lock().await.refused
    }

    async fn count(&self, prompt: &str) -> Result<(u16, Answer), VendorError> {
        if prompt.is_empty() {
            return Err(VendorError(400));
        }
        let used = 10 + prompt.len() as u64;
        let mut counted = self.counted.lock().await;
        counted.calls += 1;
        let since_a_window = (self.window + self.since.elapsed()).as_nanos();
        let with_this = [counted.answered[0] + 1, counted.answered[1] + used];
        let is_above = with_this.iter().zip(self.limits).any(|(&all, limit)| {
            u128::from(all) * self.window.as_nanos() > u128::from(limit) * since_a_window
        });
        if is_above || counted.calls.is_multiple_of(EACH) {
            let refused = &mut counted.refused;
            *(if is_above { &mut refused.above } else { &mut refused.by_chance }) += 1;
            return Ok((429, Answer { text: String::new(), used: 0 }));
        }
        counted.answered = with_this;
        Ok((200, Answer { text: format!("an answer to {prompt}"), used }))
    }
}

fn reply<T>(status: u16, body: T) -> http::Response<T> {
    let mut reply = http::Response::new(body);
    *reply.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    if status == 429 {
        reply.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    reply
}

/// An empty table of the name `sluice` in this process. A product has one in AWS, and creates its client with
/// `Client::from_env().await?`.
///
/// # Errors
/// If the embedded table cannot be created.
pub async fn table() -> Result<EmbeddedDynamo, BoxError> {
    Ok(EmbeddedDynamo::with_table("sluice").await?)
}

/// A client of a table with one bucket for requests and one for tokens: so many in each window, all of them
/// at once too.
///
/// # Errors
/// If the embedded table or a bucket cannot be created.
pub async fn sluice(
    window: Duration,
    rpm: (Dimension, i32),
    tpm: (Dimension, i32),
) -> Result<Client, BoxError> {
    sluice_with_shares(window, rpm, tpm, &[]).await
}

/// The same with shares of both buckets: name, part, and whether it is in the background.
///
/// # Errors
/// If the embedded table or a bucket cannot be created, or the parts are more than the whole.
pub async fn sluice_with_shares(
    window: Duration,
    rpm: (Dimension, i32),
    tpm: (Dimension, i32),
    shares: &[(&str, &str, bool)],
) -> Result<Client, BoxError> {
    let client = table().await?.client("sluice");
    let declared = |&(name, part, background): &(&str, &str, bool)| -> Result<_, BoxError> {
        Ok(DeclaredShare { name: ShareName::new(name)?, part: part.parse()?, floor: None, background })
    };
    let shares = shares.iter().map(declared).collect::<Result<Vec<_>, _>>()?;
    for (limit_type, (dimension, tokens)) in [(LimitType::Requests, rpm), (LimitType::Tokens, tpm)] {
        let capacity = Amount::from_tokens(tokens);
        let rate = Rate::per(capacity, window).ok_or("no rate")?;
        let limit = Limit::rate(limit_type, capacity, rate, Cost::ONE)?;
        client.ops().apply_split(&dimension, &Split::new(limit, &shares)?).await?;
    }
    Ok(client)
}
