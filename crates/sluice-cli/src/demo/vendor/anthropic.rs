//! Like Anthropic: a number of calls and of tokens in any window of time, ending at any moment, and a number of calls at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::{Answer, Call, UnderWay, headers, locked, retry_after, takes, unix_micros};
use crate::demo::limits::{AT_ONCE, REQUESTS_PER_WINDOW, TOKENS_PER_WINDOW, WINDOW_SECS};

/// Everything that it knows.
#[derive(Debug, Default)]
pub(crate) struct Books {
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

/// Why a call is refused.
#[derive(Clone, Copy)]
enum Over {
    Requests,
    Tokens,
    Concurrency,
}

const WINDOW: Duration = Duration::from_secs(WINDOW_SECS as u64);
/// Shortest and longest time of a call, in milliseconds.
const CALL_MILLIS: (u64, u64) = (30, 90);

impl Books {
    fn judge(&mut self, call: &Call, now: Instant) -> Result<(), Over> {
        self.calls += 1;
        while self.taken.front().is_some_and(|oldest| now.duration_since(oldest.at) >= WINDOW) {
            self.taken.pop_front();
        }
        let over = if self.taken.len() >= REQUESTS_PER_WINDOW as usize {
            Some(Over::Requests)
        } else if self.tokens() + call.tokens > TOKENS_PER_WINDOW {
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

    fn tokens(&self) -> u32 {
        self.taken.iter().map(|taken| taken.tokens).sum()
    }

    /// Limits by the minute, of which each window takes its part; what is left of the window; and when it is whole again.
    fn headers(&self, now: Instant) -> HeaderMap {
        let windows = 60 / WINDOW_SECS;
        let newest = self.taken.back().map_or(Duration::ZERO, |taken| WINDOW.saturating_sub(now - taken.at));
        let reset = humantime::format_rfc3339_seconds(SystemTime::now() + newest).to_string();
        let requests = (REQUESTS_PER_WINDOW as usize).saturating_sub(self.taken.len());
        let tokens = TOKENS_PER_WINDOW.saturating_sub(self.tokens());
        headers([
            ("anthropic-ratelimit-requests-limit", (REQUESTS_PER_WINDOW * windows).to_string()),
            ("anthropic-ratelimit-requests-remaining", requests.to_string()),
            ("anthropic-ratelimit-requests-reset", reset.clone()),
            ("anthropic-ratelimit-tokens-limit", (TOKENS_PER_WINDOW * windows).to_string()),
            ("anthropic-ratelimit-tokens-remaining", tokens.to_string()),
            ("anthropic-ratelimit-tokens-reset", reset),
        ])
    }

    /// Calls that arrived, taken or not.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls answered 429.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Calls under way, now and at most.
    pub(crate) fn concurrency(&self) -> (u32, u32) {
        (self.under_way, self.peak)
    }

    /// Most calls in any window.
    pub(crate) fn busiest_window(&self) -> usize {
        self.busiest
    }

    /// Calls taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.arrivals.len()
    }

    /// When the first call arrived, in microseconds of Unix time.
    pub(crate) fn first_call(&self) -> Option<u64> {
        self.arrivals.first().copied()
    }

    /// Calls taken in each part of `length` after `start` (microseconds of Unix time).
    pub(crate) fn taken_over_time(&self, start: u64, length: Duration, parts: usize) -> Vec<usize> {
        let mut counts = vec![0; parts];
        let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX).max(1);
        for arrival in &self.arrivals {
            let Some(after) = arrival.checked_sub(start).filter(|after| *after < length) else { continue };
            let part = u128::from(after) * parts as u128 / u128::from(length);
            counts[usize::try_from(part).unwrap_or(0)] += 1;
        }
        counts
    }
}

pub(super) async fn answer(State(books): State<super::Books<Books>>, Json(call): Json<Call>) -> Answer {
    let now = Instant::now();
    let judged = locked(&books).judge(&call, now);
    if let Err(over) = judged {
        let mut headers = locked(&books).headers(now);
        retry_after(&mut headers, Duration::from_secs(1));
        let body = match over {
            Over::Requests => r#"{"error":{"type":"rate_limit_error","message":"too many requests in the window"}}"#,
            Over::Tokens => r#"{"error":{"type":"rate_limit_error","message":"too many tokens in the window"}}"#,
            Over::Concurrency => r#"{"error":{"type":"rate_limit_error","message":"too many concurrent requests"}}"#,
        };
        return (StatusCode::TOO_MANY_REQUESTS, headers, body);
    }
    let _under_way = UnderWay(Arc::clone(&books), |books: &mut Books| books.under_way -= 1);
    takes(CALL_MILLIS).await;
    let headers = locked(&books).headers(Instant::now());
    (StatusCode::OK, headers, "done")
}
