//! Like Anthropic: limits on calls and tokens in any window of time, and on calls at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::time::Instant;

use super::answers::{Answer, Answers};
use super::{Call, UnderWay, VendorReply, headers, locked, retry_after, takes, unix_micros};
use crate::lab::demo::limits::{AT_ONCE, REQUESTS_PER_WINDOW, TOKENS_PER_WINDOW, WINDOW_SECS};

#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Calls that were accepted, oldest first.
    taken: VecDeque<Taken>,
    under_way: u32,
    peak: u32,
    /// The most calls in any window.
    busiest: usize,
    refused: Refused,
    /// All calls that arrived, in order; for the summary.
    arrivals: Vec<Arrival>,
    pub(super) answers: Answers,
}

/// A call that arrived; times in microseconds of Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) start_at: u64,
    pub(crate) at: u64,
    pub(crate) process: usize,
    is_taken: bool,
}

impl Arrival {
    /// From the start to the arrival; zero if the call came before its start.
    pub(crate) const fn took(&self) -> Duration {
        Duration::from_micros(self.at.saturating_sub(self.start_at))
    }
}

#[cfg(test)]
impl Arrival {
    pub(crate) const fn taken(start_at: u64, at: u64) -> Self {
        Self { start_at, at, process: 0, is_taken: true }
    }
}

#[cfg(test)]
impl Books {
    pub(crate) fn after(arrivals: Vec<Arrival>, refused: Refused) -> Self {
        Self { arrivals, refused, ..Self::default() }
    }
}

/// Calls answered with 429, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    pub(crate) concurrency: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Instant,
    tokens: u32,
}

#[derive(Clone, Copy)]
enum ExceededLimit {
    Requests,
    Tokens,
    Concurrency,
}

const WINDOW: Duration = Duration::from_secs(WINDOW_SECS as u64);
/// The shortest and the longest time of a call, in milliseconds.
const CALL_MILLIS: (u64, u64) = (30, 90);

impl Books {
    /// `arrived` is `now` on the other clock, in microseconds of Unix time.
    fn judge(&mut self, call: &Call, now: Instant, arrived: u64) -> Result<(), ExceededLimit> {
        while self.taken.front().is_some_and(|oldest| now.duration_since(oldest.at) >= WINDOW) {
            self.taken.pop_front();
        }
        let exceeded = if self.under_way >= AT_ONCE {
            self.refused.concurrency += 1;
            Some(ExceededLimit::Concurrency)
        } else if self.taken.len() >= REQUESTS_PER_WINDOW as usize {
            self.refused.requests += 1;
            Some(ExceededLimit::Requests)
        } else if self.tokens() + call.tokens > TOKENS_PER_WINDOW {
            self.refused.tokens += 1;
            Some(ExceededLimit::Tokens)
        } else {
            None
        };
        self.arrivals.push(Arrival {
            start_at: call.start_at,
            at: arrived,
            process: call.process,
            is_taken: exceeded.is_none(),
        });
        self.answers.note(now, if exceeded.is_none() { Answer::Taken } else { Answer::Refused });
        if let Some(exceeded) = exceeded {
            return Err(exceeded);
        }
        self.taken.push_back(Taken { at: now, tokens: call.tokens });
        self.busiest = self.busiest.max(self.taken.len());
        self.under_way += 1;
        self.peak = self.peak.max(self.under_way);
        Ok(())
    }

    fn tokens(&self) -> u32 {
        self.taken.iter().map(|taken| taken.tokens).sum()
    }

    /// Headers with the limits by the minute, of which a window has its share; what is left; and the reset.
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

    pub(crate) fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    pub(crate) fn refused(&self) -> Refused {
        self.refused
    }

    pub(crate) fn concurrency(&self) -> (u32, u32) {
        (self.under_way, self.peak)
    }

    pub(crate) fn busiest_window(&self) -> usize {
        self.busiest
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken_at().count()
    }

    fn taken_at(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrivals.iter().filter(|arrival| arrival.is_taken).map(|arrival| arrival.at)
    }

    /// When the first call arrived, in microseconds of Unix time.
    pub(crate) fn first_call(&self) -> Option<u64> {
        self.arrivals.first().map(|arrival| arrival.at)
    }

    /// Calls accepted in `length` after `start` (microseconds of Unix time).
    pub(crate) fn taken_within(&self, start: u64, length: Duration) -> usize {
        let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        self.taken_at().filter(|at| at.checked_sub(start).is_some_and(|after| after < length)).count()
    }
}

/// The headers of an accepted call, which is under way now; or the reply to a refused one.
pub(super) fn judged(
    books: &super::Books<Books>,
    call: &Call,
) -> Result<(HeaderMap, UnderWay<Books>), VendorReply> {
    let now = Instant::now();
    let (judged, mut headers) = {
        let mut books = locked(books);
        (books.judge(call, now, unix_micros()), books.headers(now))
    };
    let body = match judged {
        Ok(()) => return Ok((headers, UnderWay(Arc::clone(books), |books| books.under_way -= 1))),
        Err(ExceededLimit::Requests) => {
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"too many requests in the window"}}"#
        }
        Err(ExceededLimit::Tokens) => {
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"too many tokens in the window"}}"#
        }
        Err(ExceededLimit::Concurrency) => {
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"too many concurrent requests"}}"#
        }
    };
    retry_after(&mut headers, Duration::from_secs(1));
    Err((StatusCode::TOO_MANY_REQUESTS, headers, body))
}

pub(super) async fn answer(State(books): State<super::Books<Books>>, Json(call): Json<Call>) -> VendorReply {
    let (_, _under_way) = match judged(&books, &call) {
        Ok(accepted) => accepted,
        Err(refused) => return refused,
    };
    takes(CALL_MILLIS).await;
    let headers = locked(&books).headers(Instant::now());
    (StatusCode::OK, headers, "done")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books_after(calls: u32, tokens: u32, now: Instant) -> Books {
        let mut books = Books::default();
        for n in 0..calls {
            books.under_way = 0;
            assert!(books.judge(&Call { tokens, start_at: 0, process: 0 }, now, u64::from(n)).is_ok());
        }
        books
    }

    #[test]
    fn a_refusal_counts_by_its_reason_and_arrived_all_the_same() {
        let now = Instant::now();
        let call = |tokens| Call { tokens, start_at: 7, process: 0 };
        let mut books = books_after(REQUESTS_PER_WINDOW, 1, now);
        assert!(books.judge(&call(1), now, 1_000).is_err());
        assert_eq!(books.refused(), Refused { requests: 1, ..Refused::default() });
        books.under_way = AT_ONCE;
        assert!(books.judge(&call(1), now, 1_001).is_err());
        assert_eq!(books.refused(), Refused { requests: 1, concurrency: 1, tokens: 0 });
        let all = REQUESTS_PER_WINDOW as usize;
        assert_eq!((books.taken(), books.busiest_window(), books.arrivals().len()), (all, all, all + 2));
        assert_eq!(books.taken_within(0, Duration::from_secs(1)), all, "only these were taken");
        let last = books.arrivals()[all + 1];
        assert_eq!((last.start_at, last.at), (7, 1_001));
        books.under_way = 0;
        assert!(books.judge(&call(1), now + WINDOW, 1_002).is_ok());
        let mut books = books_after(2, TOKENS_PER_WINDOW / 2, now);
        assert!(books.judge(&call(1), now, 2).is_err());
        assert_eq!(books.refused(), Refused { tokens: 1, ..Refused::default() });
    }
}
