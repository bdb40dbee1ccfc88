//! The vendor: a local HTTP server that judges its callers by logs of its own, without a line of Sluice.
//!
//! It takes a number of calls and of tokens in any window of time, ending at any moment, and a number of calls at once; what
//! passes a limit is answered 429, with the headers that vendors send.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::post;
use serde::{Deserialize, Serialize};

use super::limits::{AT_ONCE, CALL_MILLIS, REQUESTS_PER_WINDOW, TOKENS_PER_WINDOW, WINDOW_SECS};
use crate::failure::Failure;

/// A running vendor. Clones are one vendor.
#[derive(Clone)]
pub(crate) struct Vendor {
    books: Arc<Mutex<Books>>,
    url: String,
}

/// Everything that the vendor knows.
#[derive(Debug, Default)]
struct Books {
    /// Calls that were taken, oldest first.
    taken: VecDeque<Taken>,
    under_way: u32,
    peak: u32,
    /// Most calls in any window.
    busiest: usize,
    refused: u64,
    calls: u64,
    /// When each call that was taken arrived, in microseconds of Unix time; for the summary.
    arrivals: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Instant,
    tokens: u32,
}

/// A call.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Call {
    pub(crate) tokens: u32,
}

/// Why a call is refused.
#[derive(Clone, Copy)]
enum Over {
    Requests,
    Tokens,
    Concurrency,
}

const WINDOW: Duration = Duration::from_secs(WINDOW_SECS as u64);

impl Books {
    fn judge(&mut self, call: &Call, now: Instant) -> Result<(), Over> {
        self.calls += 1;
        while self.taken.front().is_some_and(|oldest| now.duration_since(oldest.at) >= WINDOW) {
            self.taken.pop_front();
        }
        let tokens: u32 = self.taken.iter().map(|taken| taken.tokens).sum();
        let over = if self.taken.len() >= REQUESTS_PER_WINDOW as usize {
            Some(Over::Requests)
        } else if tokens + call.tokens > TOKENS_PER_WINDOW {
            Some(Over::Tokens)
        } else if self.under_way >= AT_ONCE {
            Some(Over::Concurrency)
        } else {
            None
        };
        if let Some(over) = over {
            self.refused += 1;
            return Err(over);
        }
        self.taken.push_back(Taken { at: now, tokens: call.tokens });
        self.busiest = self.busiest.max(self.taken.len());
        self.under_way += 1;
        self.peak = self.peak.max(self.under_way);
        self.arrivals.push(unix_micros());
        Ok(())
    }

    fn headers(&self, now: Instant) -> HeaderMap {
        let left = (REQUESTS_PER_WINDOW as usize).saturating_sub(self.taken.len());
        let oldest =
            self.taken.front().map_or(Duration::ZERO, |taken| WINDOW.saturating_sub(now.duration_since(taken.at)));
        let pairs = [
            ("x-ratelimit-limit-requests", REQUESTS_PER_WINDOW.to_string()),
            ("x-ratelimit-remaining-requests", left.to_string()),
            ("x-ratelimit-reset-requests", format!("{}ms", oldest.as_millis())),
            ("current-concurrent-requests", self.under_way.to_string()),
            ("maximum-concurrent-requests", AT_ONCE.to_string()),
        ];
        let headers = pairs.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)));
        headers.map(|(name, value)| (HeaderName::from_static(name), value)).collect()
    }
}

/// A call under way. Ends with the answer, or with the connection of a caller that is gone.
struct UnderWay(Arc<Mutex<Books>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.0).under_way -= 1;
    }
}

async fn answer(
    State(books): State<Arc<Mutex<Books>>>,
    Json(call): Json<Call>,
) -> (StatusCode, HeaderMap, &'static str) {
    let now = Instant::now();
    let judged = locked(&books).judge(&call, now);
    if let Err(over) = judged {
        let mut headers = locked(&books).headers(now);
        headers.insert("retry-after", HeaderValue::from_static("1"));
        let message = match over {
            Over::Requests => "too many requests in the window",
            Over::Tokens => "too many tokens in the window",
            Over::Concurrency => "too many concurrent requests",
        };
        return (StatusCode::TOO_MANY_REQUESTS, headers, message);
    }
    let _under_way = UnderWay(Arc::clone(&books));
    tokio::time::sleep(Duration::from_millis(fastrand::u64(CALL_MILLIS.0..=CALL_MILLIS.1))).await;
    let headers = locked(&books).headers(Instant::now());
    (StatusCode::OK, headers, "done")
}

impl Vendor {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let books = Arc::<Mutex<Books>>::default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}/v1/call", listener.local_addr()?);
        let service = axum::Router::new().route("/v1/call", post(answer)).with_state(Arc::clone(&books));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Ok(Self { books, url })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Calls that arrived, taken or not.
    pub(crate) fn calls(&self) -> u64 {
        locked(&self.books).calls
    }

    /// Calls answered 429.
    pub(crate) fn refused(&self) -> u64 {
        locked(&self.books).refused
    }

    /// Calls under way, now and at most.
    pub(crate) fn concurrency(&self) -> (u32, u32) {
        let books = locked(&self.books);
        (books.under_way, books.peak)
    }

    /// Most calls in any window.
    pub(crate) fn busiest_window(&self) -> usize {
        locked(&self.books).busiest
    }

    /// Calls taken so far.
    pub(crate) fn taken(&self) -> usize {
        locked(&self.books).arrivals.len()
    }

    /// When the first call arrived, in microseconds of Unix time.
    pub(crate) fn first_call(&self) -> Option<u64> {
        locked(&self.books).arrivals.first().copied()
    }

    /// Calls taken in each part of `length` after `start` (microseconds of Unix time).
    pub(crate) fn taken_over_time(&self, start: u64, length: Duration, parts: usize) -> Vec<usize> {
        let mut counts = vec![0; parts];
        let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX).max(1);
        for arrival in &locked(&self.books).arrivals {
            let Some(after) = arrival.checked_sub(start).filter(|after| *after < length) else { continue };
            let part = u128::from(after) * parts as u128 / u128::from(length);
            counts[usize::try_from(part).unwrap_or(0)] += 1;
        }
        counts
    }
}

fn unix_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}
