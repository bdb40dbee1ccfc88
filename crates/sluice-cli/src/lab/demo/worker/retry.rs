//! One caller without Sluice: calls when it likes, and retries with backoff. Knows no Client.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use sluice_sdk::Clock;
use tokio::time::{Instant, sleep};

use super::{JobEnd, Worker};
use crate::failure::Failure;
use crate::lab::demo::limits::Api;
use crate::lab::demo::vendor::Call;

// What the clients of OpenAI and Anthropic for Python and TypeScript do by default (`DEFAULT_MAX_RETRIES`,
// `INITIAL_RETRY_DELAY` and `MAX_RETRY_DELAY` in openai-python, src/openai/_constants.py): what most callers
// have.
/// Tries after the first one.
pub(crate) const RETRIES: u32 = 2;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(8);
/// A delay is shorter by up to this share of it, at random.
const JITTER: f64 = 0.25;
/// A longer `Retry-After` is ignored.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

impl Worker {
    pub(super) async fn retry_until_stop(&self, of: usize, api: &Api) {
        let left = || self.stop.since(Clock::system().now());
        while !left().is_zero() {
            // A caller that waits for its next try at the end does not hold up the end.
            let _ = tokio::time::timeout(left(), self.job(of, api)).await;
        }
    }

    /// Tries one job until there is a good reply, or the tries are used up.
    async fn job(&self, of: usize, api: &Api) {
        let wanted = Instant::now();
        for retry in 0..=RETRIES {
            match self.try_once(api).await {
                Ok(None) => return self.ended(of, wanted, JobEnd::Done),
                Ok(Some(headers)) if retry < RETRIES => sleep(delay(&headers, retry, fastrand::f64())).await,
                Ok(Some(_)) => self.ended(of, wanted, JobEnd::GivenUp),
                Err(error) => return self.failed(&error).await,
            }
        }
    }

    /// Calls the vendor; returns the headers of a 429.
    pub(super) async fn try_once(&self, api: &Api) -> Result<Option<HeaderMap>, Failure> {
        let start_at = u64::try_from(Clock::system().now().micros())?;
        let tokens =
            api.tokens.map_or(0, |tokens| tokens.counted(fastrand::u32(tokens.used.0..=tokens.used.1)));
        let (status, headers, _) = self.send(api, &Call { tokens, start_at, process: self.process }).await?;
        Ok((status == StatusCode::TOO_MANY_REQUESTS).then_some(headers))
    }
}

/// How long to wait before the next try: what the vendor asks for, or twice as long each time. `random`: 0 to
/// 1.
fn delay(headers: &HeaderMap, retry: u32, random: f64) -> Duration {
    let asked = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let asked =
        asked.map(Duration::from_secs).filter(|asked| !asked.is_zero() && *asked <= LONGEST_RETRY_AFTER);
    asked.unwrap_or_else(|| {
        let full = FIRST_DELAY.saturating_mul(2u32.saturating_pow(retry)).min(LONGEST_DELAY);
        full.mul_f64(1.0 - JITTER * random)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_waits_as_the_vendors_clients_do() {
        let none = HeaderMap::new();
        let delays = [0, 1, 2, 4, 9].map(|retry| delay(&none, retry, 0.0).as_millis());
        assert_eq!(delays, [500, 1_000, 2_000, 8_000, 8_000]);
        assert_eq!(delay(&none, 0, 1.0).as_millis(), 375);
        let asked = |value: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
            delay(&headers, 0, 0.0).as_millis()
        };
        assert_eq!(["3", "60", "0", "61", "soon"].map(asked), [3_000, 60_000, 500, 500, 500]);
    }
}
