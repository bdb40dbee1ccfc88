//! Three vendors: a local HTTP server that judges its callers by its own books, without any code of Sluice.
//!
//! They behave like the real ones: Anthropic's limits apply to a window, OpenAI's refill evenly, and
//! ElevenLabs counts calls at once. Each answers with the headers of the real vendor. OpenAI and Anthropic also
//! take calls as their own packages send them (`sluice sandbox --vendors`).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::post;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::limits::{ANTHROPIC, ELEVENLABS, OPENAI};
use crate::failure::Failure;

pub(crate) mod answers;
pub(crate) mod anthropic;
pub(crate) mod elevenlabs;
mod official;
pub(crate) mod openai;
pub(crate) mod waits;

use answers::Answers;

/// The running vendors. Clones are the same vendors.
#[derive(Clone)]
pub(crate) struct Vendors {
    anthropic: Books<anthropic::Books>,
    openai: Books<openai::Books>,
    elevenlabs: Books<elevenlabs::Books>,
    url: String,
}

/// The state of one vendor.
type Books<B> = Arc<Mutex<B>>;

/// When two of the vendors take fewer calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes {
    /// OpenAI lowers its limit.
    pub(crate) drop_at: Instant,
    /// ElevenLabs is busy for a while.
    pub(crate) busy_at: Instant,
}

impl Changes {
    /// Within a run.
    pub(crate) fn within(begin: Instant, length: Duration) -> Self {
        Self { drop_at: begin + length * 2 / 5, busy_at: begin + length * 3 / 5 }
    }

    /// In a hundred years.
    pub(crate) fn never() -> Self {
        let never = Instant::now() + Duration::from_secs(100 * 365 * 86_400);
        Self { drop_at: never, busy_at: never }
    }
}

/// A call.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Call {
    /// The tokens that the vendor counts.
    pub(crate) tokens: u32,
    /// When the call might start, in microseconds of Unix time: for the summary, not for the vendor.
    pub(crate) start_at: u64,
    /// Which process calls: for the summary too.
    pub(crate) process: usize,
}

/// An answer: status, headers, body.
type VendorReply = (StatusCode, HeaderMap, &'static str);

impl Vendors {
    pub(crate) async fn start(changes: Changes) -> Result<Self, Failure> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let vendors = Self {
            anthropic: Books::default(),
            openai: Arc::new(Mutex::new(openai::Books::new(changes.drop_at))),
            elevenlabs: Arc::new(Mutex::new(elevenlabs::Books::new(changes.busy_at))),
            url: format!("http://{}", listener.local_addr()?),
        };
        let service = axum::Router::new()
            .route(ANTHROPIC.path, post(anthropic::answer).with_state(Arc::clone(&vendors.anthropic)))
            .route(OPENAI.path, post(openai::answer).with_state(Arc::clone(&vendors.openai)))
            .route(ELEVENLABS.path, post(elevenlabs::answer).with_state(Arc::clone(&vendors.elevenlabs)))
            .merge(official::routes(&vendors));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Ok(vendors)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The variables by which the packages of OpenAI and Anthropic find these vendors.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        [
            ("OPENAI_BASE_URL", format!("{}{}", self.url, official::OPENAI)),
            ("ANTHROPIC_BASE_URL", format!("{}{}", self.url, official::ANTHROPIC)),
        ]
    }

    pub(crate) fn anthropic(&self) -> MutexGuard<'_, anthropic::Books> {
        locked(&self.anthropic)
    }

    pub(crate) fn openai(&self) -> MutexGuard<'_, openai::Books> {
        locked(&self.openai)
    }

    pub(crate) fn elevenlabs(&self) -> MutexGuard<'_, elevenlabs::Books> {
        locked(&self.elevenlabs)
    }

    /// What each vendor answered, looked at by `look`.
    pub(crate) fn answers<T>(&self, look: impl Fn(&Answers) -> T) -> [T; 3] {
        [look(&self.anthropic().answers), look(&self.openai().answers), look(&self.elevenlabs().answers)]
    }

    pub(crate) fn taken(&self) -> [usize; 3] {
        [self.anthropic().taken(), self.openai().taken(), self.elevenlabs().taken()]
    }
}

/// A call under way. Ends with the answer, or when the connection of a caller breaks.
struct UnderWay<B>(Books<B>, fn(&mut B));

impl<B> Drop for UnderWay<B> {
    fn drop(&mut self) {
        (self.1)(&mut locked(&self.0));
    }
}

async fn takes(millis: (u64, u64)) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(millis.0..=millis.1))).await;
}

fn headers<const N: usize>(pairs: [(&'static str, String); N]) -> HeaderMap {
    let valid =
        pairs.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)));
    valid.map(|(name, value)| (HeaderName::from_static(name), value)).collect()
}

/// Adds `Retry-After` in whole seconds, rounded up, as these vendors do, and returns that wait.
fn retry_after(headers: &mut HeaderMap, wait: Duration) -> Duration {
    let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    headers.insert("retry-after", HeaderValue::from(secs));
    Duration::from_secs(secs)
}

fn unix_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

fn locked<B>(books: &Mutex<B>) -> MutexGuard<'_, B> {
    books.lock()
}
