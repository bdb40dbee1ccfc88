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
    refused: u64,
    /// Those of them that were one too many at once.
    too_many: u64,
    /// The longest time between a call's start and its arrival, in microseconds.
    slowest: u64,
    /// When each call arrived, in microseconds of Unix time, and whether it was taken; for the summary.
    arrivals: Vec<(u64, bool)>,
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
        let arrived = unix_micros();
        self.slowest = self.slowest.max(arrived.saturating_sub(call.start_at));
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
            self.arrivals.push((arrived, false));
            self.refused += 1;
            self.too_many += u64::from(matches!(over, Over::Concurrency));
            return Err(over);
        }
        self.taken.push_back(Taken { at: now, tokens: call.tokens });
        self.under_way += 1;
        self.peak = self.peak.max(self.under_way);
        self.arrivals.push((arrived, true));
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
        self.arrivals.len() as u64
    }

    /// Calls answered 429.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Calls answered 429 because of as many as it takes at once.
    pub(crate) fn too_many(&self) -> u64 {
        self.too_many
    }

    /// The longest time between a call's start and its arrival.
    pub(crate) fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest)
    }

    /// Calls under way, now and at most.
    pub(crate) fn concurrency(&self) -> (u32, u32) {
        (self.under_way, self.peak)
    }

    /// Most calls that arrived in any window, taken or not.
    pub(crate) fn busiest_window(&self) -> usize {
        most_in_a_window(self.arrivals.iter().map(|(at, _)| *at).collect())
    }

    /// Calls taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken_at().count()
    }

    fn taken_at(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrivals.iter().filter(|(_, is_taken)| *is_taken).map(|(at, _)| *at)
    }

    /// When the first call arrived, in microseconds of Unix time.
    pub(crate) fn first_call(&self) -> Option<u64> {
        self.arrivals.first().map(|(at, _)| *at)
    }

    /// Calls taken in each part of `length` after `start` (microseconds of Unix time).
    pub(crate) fn taken_over_time(&self, start: u64, length: Duration, parts: usize) -> Vec<usize> {
        let mut counts = vec![0; parts];
        let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX).max(1);
        for arrival in self.taken_at() {
            let Some(after) = arrival.checked_sub(start).filter(|after| *after < length) else { continue };
            let part = u128::from(after) * parts as u128 / u128::from(length);
            counts[usize::try_from(part).unwrap_or(0)] += 1;
        }
        counts
    }
}

/// Most of `moments`, in microseconds, that lie less far apart than a window is long.
fn most_in_a_window(mut moments: Vec<u64>) -> usize {
    moments.sort_unstable();
    let window = u64::from(WINDOW_SECS) * 1_000_000;
    let ending_at = |(last, end): (usize, &u64)| last + 1 - moments.partition_point(|first| first + window <= *end);
    moments.iter().enumerate().map(ending_at).max().unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_lies_less_far_apart_than_it_is_long() {
        let window = u64::from(WINDOW_SECS) * 1_000_000;
        assert_eq!(most_in_a_window(vec![]), 0);
        assert_eq!(most_in_a_window(vec![7, 7, 7]), 3);
        assert_eq!(most_in_a_window(vec![window - 1, 0, 1]), 3);
        assert_eq!(most_in_a_window(vec![window, 0, 1]), 2);
        assert_eq!(most_in_a_window(vec![0, 1, window + 2, window + 3, window + 4]), 3);
    }

    #[test]
    fn a_late_call_and_one_too_many_at_once_are_noted() {
        let (mut books, now) = (Books::default(), Instant::now());
        let start_at = unix_micros() - 300_000;
        for _ in 0..AT_ONCE {
            assert!(books.judge(&Call { tokens: 1, start_at: u64::MAX }, now).is_ok());
        }
        assert_eq!((books.slowest(), books.too_many()), (Duration::ZERO, 0));
        assert!(books.judge(&Call { tokens: 1, start_at }, now).is_err());
        assert_eq!((books.calls(), books.refused(), books.too_many()), (u64::from(AT_ONCE) + 1, 1, 1));
        assert!(books.slowest() >= Duration::from_millis(300), "{:?}", books.slowest());
        assert_eq!((books.busiest_window(), books.taken()), (AT_ONCE as usize + 1, AT_ONCE as usize));
    }
}
