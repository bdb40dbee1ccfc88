//! Classifies a failed request, and computes the wait before the next try. Pure. Only this layer retries: the
//! retries of the AWS SDK are switched off.

use std::time::Duration;

use crate::clock::whole_micros;

/// What is known of a request that got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The request never reached DynamoDB.
    NotSent,
    /// The request may have been applied, or not.
    Ambiguous,
    /// DynamoDB rejected the request because another transaction held the item. Nothing was applied.
    Conflict,
    /// DynamoDB throttled the request. Nothing was applied.
    Throttled,
    /// The request will be rejected every time.
    Permanent,
}

impl Fate {
    /// Whether the same request is worth sending again.
    pub(crate) const fn is_transient(self) -> bool {
        !matches!(self, Self::Permanent)
    }
}

/// Error codes that mean: nothing was applied, and the caller may try again later.
const THROTTLES: [&str; 5] = [
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "TransactionInProgressException",
    "LimitExceededException",
];

/// The fate of a request that the service answered with this error code and HTTP status.
pub(crate) fn classify_answer(code: &str, status: u16) -> Fate {
    if code == "TransactionConflictException" {
        Fate::Conflict
    } else if THROTTLES.contains(&code) {
        Fate::Throttled
    } else if status >= 500 {
        Fate::Ambiguous
    } else {
        Fate::Permanent
    }
}

/// Exponential backoff with full jitter: a wait between zero and `base * 2^attempt`, at most `cap` (Marc
/// Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// Between two tries of a request.
    pub const DEFAULT: Self = Self { base: Duration::from_millis(25), cap: Duration::from_millis(200) };
    /// Between two reads of a full concurrency bucket; a read costs a fifth of a write.
    pub const POLL: Self = Self { base: Duration::from_millis(25), cap: Duration::from_millis(100) };
    /// Between two tries of a caller that waits for a slot while other writers are in the way.
    pub const CROWD: Self = Self { base: Duration::from_millis(200), cap: Duration::from_secs(1) };

    /// The longest wait.
    #[must_use]
    pub const fn cap(self) -> Duration {
        self.cap
    }

    /// The longest wait after `attempt` failures (0 for the first). The wait is [`random_wait_up_to`] this.
    #[must_use]
    pub fn ceiling(self, attempt: u32) -> Duration {
        self.base.saturating_mul(1 << attempt.min(16)).min(self.cap)
    }

    /// The longest that the first `waits` waits take together.
    #[must_use]
    pub fn longest_sum(self, waits: u32) -> Duration {
        (0..waits).fold(Duration::ZERO, |sum, attempt| sum.saturating_add(self.ceiling(attempt)))
    }
}

/// The longest time of a request that is sent again `retries` times: every attempt runs into its timeout, and
/// every wait between two attempts is the longest. By default 4 attempts of 1 s, and 175 ms of waits.
pub(crate) fn longest_request(attempt_timeout: Duration, retries: u32) -> Duration {
    let attempts = attempt_timeout.saturating_mul(retries.saturating_add(1));
    attempts.saturating_add(Backoff::DEFAULT.longest_sum(retries))
}

/// A random number from 0 to `most`, both included.
#[must_use]
pub fn random_up_to(most: u64) -> u64 {
    fastrand::u64(..=most)
}

/// A random wait from zero to `longest`, both included: those that begin to wait at one time do not end at
/// one time.
#[must_use]
pub fn random_wait_up_to(longest: Duration) -> Duration {
    Duration::from_micros(random_up_to(whole_micros(longest)))
}

/// A random wait from half of `mean` to one and a half of it: those that wait again and again do not meet
/// each time.
#[must_use]
pub fn random_wait_around(mean: Duration) -> Duration {
    mean / 2 + random_wait_up_to(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_never_beyond() {
        let longest: Vec<u128> = (0..6).map(|n| Backoff::DEFAULT.ceiling(n).as_millis()).collect();
        assert_eq!(longest, [25, 50, 100, 200, 200, 200]);
    }

    #[test]
    fn random_waits_fill_their_range_and_stay_in_it() {
        let second = Duration::from_secs(1);
        let ranges = [
            (random_wait_up_to as fn(Duration) -> Duration, Duration::ZERO, second),
            (random_wait_around, second / 2, second * 3 / 2),
        ];
        for (draw, least, most) in ranges {
            let drawn: Vec<Duration> = (0..1_000).map(|_| draw(second)).collect();
            let (shortest, longest) = (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap());
            // That none of a thousand is in a tenth of the range happens once in 10^45 runs.
            assert!((least..least + second / 10).contains(&shortest), "{shortest:?}");
            assert!((most - second / 10..=most).contains(&longest), "{longest:?}");
            assert_eq!(draw(Duration::ZERO), Duration::ZERO);
        }
    }

    #[test]
    fn a_request_takes_its_attempts_and_the_waits_between_them() {
        let second = Duration::from_secs(1);
        assert_eq!(longest_request(second, 3), Duration::from_millis(4_175));
        assert_eq!(longest_request(second, 0), second);
        assert_eq!(longest_request(second, 20), Duration::from_millis(21_000 + 175 + 17 * 200));
    }

    #[test]
    fn an_answer_tells_whether_something_may_have_happened() {
        assert_eq!(classify_answer("TransactionConflictException", 400), Fate::Conflict);
        assert_eq!(classify_answer("ThrottlingException", 400), Fate::Throttled);
        assert_eq!(classify_answer("InternalServerError", 500), Fate::Ambiguous);
        assert_eq!(classify_answer("ValidationException", 400), Fate::Permanent);
    }
}
