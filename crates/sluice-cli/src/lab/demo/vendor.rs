//! Three vendors: a local HTTP server that judges its callers by its own books, without any code of Sluice.
//!
//! They behave like the real ones: Anthropic's limits apply to a window, OpenAI's refill evenly, and
//! ElevenLabs counts calls at once. Each answers with the headers of the real vendor.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::post;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::limits::{ANTHROPIC, ELEVENLABS, OPENAI};
use crate::failure::Failure;

pub(crate) mod anthropic;
pub(crate) mod elevenlabs;
pub(crate) mod openai;
mod waits;

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

/// A call.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Call {
    /// The tokens that the vendor counts.
    pub(crate) tokens: u32,
    /// When the call might start, in microseconds of Unix time: for the summary, not for the vendor.
    pub(crate) start_at: u64,
}

/// An answer: status, headers, body.
type VendorReply = (StatusCode, HeaderMap, &'static str);

impl Vendors {
    /// Starts the vendors. What they change by themselves, they change at fixed times after `begin`.
    pub(crate) async fn start(begin: Instant, length: Duration) -> Result<Self, Failure> {
        let anthropic = Books::<anthropic::Books>::default();
        let openai = Arc::new(Mutex::new(openai::Books::new(openai::drop_at(begin, length))));
        let elevenlabs = Arc::new(Mutex::new(elevenlabs::Books::new(elevenlabs::busy_at(begin, length))));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let service = axum::Router::new()
            .route(ANTHROPIC.path, post(anthropic::answer).with_state(Arc::clone(&anthropic)))
            .route(OPENAI.path, post(openai::answer).with_state(Arc::clone(&openai)))
            .route(ELEVENLABS.path, post(elevenlabs::answer).with_state(Arc::clone(&elevenlabs)));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Ok(Self { anthropic, openai, elevenlabs, url })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
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

    pub(crate) fn taken(&self) -> [usize; 3] {
        [self.anthropic().taken(), self.openai().taken(), self.elevenlabs().taken()]
    }
}

/// A call under way. Ends with the answer, or when the connection of a caller breaks.
struct UnderWay<B, F: Fn(&mut B)>(Books<B>, F);

impl<B, F: Fn(&mut B)> Drop for UnderWay<B, F> {
    fn drop(&mut self) {
        (self.1)(&mut locked(&self.0));
    }
}

async fn takes(millis: (u64, u64)) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(millis.0..=millis.1))).await;
}

fn headers<const N: usize>(pairs: [(&'static str, String); N]) -> HeaderMap {
    let valid = pairs.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)));
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
