//! Like OpenAI: evenly refilled limits by the minute, on requests and tokens. The first drops during the run.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::answers::{Answer, Answers};
use super::waits::Waits;
use super::{Call, VendorReply, headers, locked, retry_after, takes};
use crate::lab::demo::limits::{MINUTE_SECS, OPENAI_REQUESTS, OPENAI_TOKENS};

/// The shortest and the longest time of a call, in milliseconds.
const CALL_MILLIS: (u64, u64) = (30, 90);
/// The time that stands for a minute.
pub(crate) const MINUTE: Duration = Duration::from_secs(MINUTE_SECS as u64);

#[derive(Debug)]
pub(crate) struct Books {
    requests: Quota,
    tokens: Quota,
    drop_at: Instant,
    dropped: bool,
    taken: Vec<Instant>,
    waits: Waits,
    pub(super) answers: Answers,
}

/// A limit by the minute. It refills evenly, and accumulates at most a short time's worth.
#[derive(Debug)]
struct Quota {
    per_minute: u64,
    /// Below zero after a drop. A call has as many parts as a minute has microseconds: no division rounds.
    level: i128,
    at: Instant,
}

/// The parts of one call: the microseconds of a minute.
const PARTS: i128 = 60_000_000;

impl Quota {
    fn full(per_minute: u32, at: Instant) -> Self {
        let mut quota = Self { per_minute: per_minute.into(), level: 0, at };
        quota.level = quota.brim();
        quota
    }

    fn brim(&self) -> i128 {
        i128::from(self.per_minute) * i128::from(MINUTE_SECS) * 1_000_000
    }

    fn flow(&mut self, now: Instant) {
        let micros = now.saturating_duration_since(self.at).as_micros();
        let flowed = i128::try_from(micros).unwrap_or(i128::MAX).saturating_mul(self.per_minute.into());
        (self.level, self.at) = (self.level.saturating_add(flowed).min(self.brim()), self.at.max(now));
    }

    /// Lowers the limit; what is used stays used.
    fn lower_to(&mut self, per_minute: u32) {
        let used = self.brim() - self.level;
        self.per_minute = per_minute.into();
        self.level = self.brim() - used;
    }

    /// How long until `amount` is available.
    fn wait_for(&self, amount: u32) -> Duration {
        self.wait_until(i128::from(amount) * PARTS)
    }

    fn wait_until(&self, level: i128) -> Duration {
        let micros = (level - self.level).max(0).unsigned_abs().div_ceil(self.per_minute.into());
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn take(&mut self, amount: u32) {
        self.level -= i128::from(amount) * PARTS;
    }

    /// The header values: the limit, what may be used now, and the time until that is full again.
    fn says(&self) -> [String; 3] {
        let reset = self.wait_until(self.brim());
        [
            self.per_minute.to_string(),
            (self.level.max(0) / PARTS).to_string(),
            format!("{}.{:03}s", reset.as_secs(), reset.subsec_millis()),
        ]
    }
}

impl Books {
    pub(super) fn new(drop_at: Instant) -> Self {
        let now = Instant::now();
        Self {
            requests: Quota::full(OPENAI_REQUESTS.at_first, now),
            tokens: Quota::full(OPENAI_TOKENS, now),
            drop_at,
            dropped: false,
            taken: Vec::new(),
            waits: Waits::default(),
            answers: Answers::default(),
        }
    }

    fn flow(&mut self, now: Instant) {
        if !self.dropped && now >= self.drop_at {
            self.requests.flow(self.drop_at);
            self.requests.lower_to(OPENAI_REQUESTS.later);
            self.dropped = true;
        }
        self.requests.flow(now);
        self.tokens.flow(now);
    }

    /// Accepts the call, or returns how long to wait. A rejected call also counts as a request.
    fn judge(&mut self, call: &Call, now: Instant) -> Result<(), Duration> {
        self.flow(now);
        let wait = |books: &Self| books.requests.wait_for(1).max(books.tokens.wait_for(call.tokens));
        let is_refused = !wait(self).is_zero();
        self.requests.take(1);
        self.waits.came(now);
        self.answers.note(now, if is_refused { Answer::Refused } else { Answer::Taken });
        if is_refused {
            return Err(wait(self));
        }
        self.tokens.take(call.tokens);
        self.taken.push(now);
        Ok(())
    }

    fn headers(&mut self, now: Instant) -> HeaderMap {
        self.flow(now);
        let [limit, remaining, reset] = self.requests.says();
        let [token_limit, token_remaining, token_reset] = self.tokens.says();
        headers([
            ("x-ratelimit-limit-requests", limit),
            ("x-ratelimit-remaining-requests", remaining),
            ("x-ratelimit-reset-requests", reset),
            ("x-ratelimit-limit-tokens", token_limit),
            ("x-ratelimit-remaining-tokens", token_remaining),
            ("x-ratelimit-reset-tokens", token_reset),
        ])
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.len()
    }

    pub(crate) fn taken_between(&self, from: Instant, to: Instant) -> usize {
        self.taken.iter().filter(|at| (from..to).contains(at)).count()
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }
}

/// The headers of an accepted call, or the reply to a refused one.
pub(super) fn judged(books: &super::Books<Books>, call: &Call) -> Result<HeaderMap, VendorReply> {
    let mut books = locked(books);
    let now = Instant::now();
    let Err(wait) = books.judge(call, now) else { return Ok(books.headers(now)) };
    let mut headers = books.headers(now);
    let wait = retry_after(&mut headers, wait);
    books.waits.asked(now, wait);
    let body = match books.requests.wait_for(1).is_zero() {
        true => r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#,
        false => {
            r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#
        }
    };
    Err((StatusCode::TOO_MANY_REQUESTS, headers, body))
}

pub(super) async fn answer(State(books): State<super::Books<Books>>, Json(call): Json<Call>) -> VendorReply {
    if let Err(refused) = judged(&books, &call) {
        return refused;
    }
    takes(CALL_MILLIS).await;
    let headers = locked(&books).headers(Instant::now());
    (StatusCode::OK, headers, "done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_flows_back_evenly_and_keeps_what_was_used_when_it_drops() {
        let start = Instant::now();
        let mut quota = Quota::full(600, start);
        assert_eq!(quota.says(), ["600", "30", "0.000s"]);
        quota.take(30);
        assert_eq!((quota.says()[1].as_str(), quota.wait_for(1)), ("0", Duration::from_millis(100)));
        quota.flow(start + Duration::from_millis(550));
        assert_eq!(quota.says(), ["600", "5", "2.450s"]);
        quota.lower_to(300);
        assert_eq!((quota.says()[1].as_str(), quota.wait_for(1)), ("0", Duration::from_millis(2_100)));
        quota.flow(start + Duration::from_secs(60));
        assert_eq!(quota.says(), ["300", "15", "0.000s"]);
    }

    #[test]
    fn after_the_drop_it_refuses_until_what_was_used_has_flowed_back() {
        let drop_at = Instant::now() + Duration::from_secs(1);
        let mut books = Books::new(drop_at);
        let call = Call { tokens: 1, start_at: 0, process: 0 };
        let (most, fewer) =
            (OPENAI_REQUESTS.at_first / 60 * MINUTE_SECS, OPENAI_REQUESTS.later / 60 * MINUTE_SECS);
        for _ in 0..most {
            assert_eq!(books.judge(&call, drop_at - Duration::from_micros(1)), Ok(()));
        }
        let (owed, per_sec) = (most - fewer, OPENAI_REQUESTS.later / 60);
        let wait = books.judge(&call, drop_at).unwrap_err();
        // The rejected call counts too, and the next call needs one more.
        let expected = Duration::from_secs(1) * (owed + 2) / per_sec;
        assert!(wait <= expected && wait > expected - Duration::from_millis(1), "{wait:?}");
        assert!(books.judge(&call, drop_at + wait - Duration::from_millis(1)).is_err());
        assert_eq!(
            books.judge(&call, drop_at + wait + Duration::from_millis(100)),
            Ok(()),
            "a second one had counted"
        );
        assert_eq!(books.taken_between(drop_at, drop_at + Duration::from_secs(60)), 1);
    }
}
