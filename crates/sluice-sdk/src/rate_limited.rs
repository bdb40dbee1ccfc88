//! After a 429: what the fleet does about it, and what becomes of the call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_core::{Factor, Timestamp};
use sluice_vendors::{Headers, Refusal, Vendor, classify};

use crate::acquire::AcquireError;
use crate::attempt::known;
use crate::cache::Entry;
use crate::client::{Client, Inner};
use crate::cool_down::cool_down;
use crate::penalize::{PenalizeError, penalize};
use crate::request::Request;

/// A vendor's reply, as far as its refusals need it.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a, H> {
    /// The status code of HTTP.
    pub status: u16,
    /// Its headers: an `http::HeaderMap`, a map of strings, or pairs of name and value.
    pub headers: &'a H,
    /// Its body, where that was read: some vendors say there how long to wait, or what was too much.
    pub body: Option<&'a [u8]>,
}

/// What is to become of a call that the vendor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Sleep so long, acquire again and call again.
    RetryInline {
        /// From now; at most `SLUICE_INLINE_RETRY_THRESHOLD`.
        wait: Duration,
    },
    /// Put the work back into its queue: the wait is longer than a worker should sleep.
    Requeue {
        /// From now.
        wait: Duration,
        /// What SQS takes as `DelaySeconds`: a second more than the wait, at most 900 (15 minutes).
        delay_seconds: u32,
    },
    /// No wait helps: the account's allowance is used up, or not paid for. Let people know.
    GiveUp,
    /// The reply refuses nothing for load. Nothing was done.
    NotRefused,
}

impl Decision {
    /// How long to wait; `None` where no wait helps, or none is needed.
    #[must_use]
    pub const fn wait(self) -> Option<Duration> {
        match self {
            Self::RetryInline { wait } | Self::Requeue { wait, .. } => Some(wait),
            Self::GiveUp | Self::NotRefused => None,
        }
    }
}

/// SQS takes no longer delay: 15 minutes
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>).
const LONGEST_DELAY_SECS: u64 = 900;

/// Refusals this close together are one trouble, and each takes more away than the one before.
const IN_SUCCESSION: Duration = Duration::from_secs(10);

/// The wait after a first refusal that names none; doubled for each that follows in succession.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The refusals of one bucket in this process.
#[derive(Debug, Default)]
pub(crate) struct RateLimited(Mutex<Option<Succession>>);

#[derive(Clone, Copy, Debug)]
struct Succession {
    last: Timestamp,
    count: u32,
}

impl RateLimited {
    /// Counts a refusal; returns how many came before it in succession.
    fn count(&self, now: Timestamp) -> u32 {
        let mut succession = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match *succession {
            Some(Succession { last, count }) if now.since(last) <= IN_SUCCESSION => count,
            _ => 0,
        };
        *succession = Some(Succession { last: now, count: before.saturating_add(1) });
        before
    }
}

/// How far a refusal lowers a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    First,
    Repeated,
    /// The vendor asks for a long wait.
    Long,
}

impl Blow {
    /// What is left of the level: a fifth goes, then half, then 70 %. The factors of the guide for 429s.
    fn factor(self) -> Option<Factor> {
        match self {
            Self::First => "0.8",
            Self::Repeated => "0.5",
            Self::Long => "0.3",
        }
        .parse()
        .ok()
    }
}

impl Client {
    /// Does what is to be done about a refusal of the vendor, for the fleet and for the call, whose dimensions `request` names.
    ///
    /// - A limit in a window of time, with a wait (`Retry-After` in each of its forms): a cool-down of that length for every process;
    ///   where it is longer than `SLUICE_INLINE_RETRY_THRESHOLD`, the buckets keep 0.3 of their level besides. Without a wait: they
    ///   keep 0.8 of it, and 0.5 where another refusal came within ten seconds.
    /// - Too many calls at once: nothing is lowered, since each call that ends makes room. Wait in line.
    /// - The vendor is busy: a cool-down, of a second where it names no wait, doubled each time in succession; no level is lowered.
    ///
    /// Buckets of concurrency cool down only where the request names no other. Those of other quotas that the reply says are not used
    /// up keep their level.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, a table that does not answer. What was decided for one bucket stays.
    pub async fn on_rate_limited<'a, H: Headers>(
        &self,
        request: impl Into<Request<'a>>,
        reply: Reply<'_, H>,
    ) -> Result<Decision, AcquireError> {
        let inner = &self.inner;
        let now = inner.now();
        let asks = request.into().parse()?;
        let vendor = asks.first().map_or(Vendor::Other, |ask| Vendor::of(&ask.dimension));
        let Some(refusal) = classify(vendor, reply.status, reply.headers, reply.body, now) else {
            return Ok(Decision::NotRefused);
        };
        let mut entries = Vec::with_capacity(asks.len());
        for ask in &asks {
            let entry = inner.entry(&ask.dimension);
            let is_concurrent = known(inner, &entry).await?.bucket.limit().is_concurrent();
            entries.push((entry, is_concurrent));
        }
        if entries.iter().any(|(_, is_concurrent)| !is_concurrent) {
            entries.retain(|(_, is_concurrent)| !is_concurrent);
        }
        let before = entries.iter().map(|(entry, _)| entry.rate_limited.count(now)).max().unwrap_or(0);
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(6)).min(LONGEST_PAUSE);
        tracing::warn!(event = "vendor.refused", dimension = %asks[0].dimension, ?refusal, in_succession = before);
        let wait = match refusal {
            Refusal::QuotaExhausted => return Ok(Decision::GiveUp),
            Refusal::Concurrency { retry_after } => retry_after.unwrap_or(pause),
            Refusal::SystemBusy { retry_after } => {
                let wait = retry_after.unwrap_or(pause);
                for (entry, _) in &entries {
                    cool_down(inner, entry, now.after(wait)).await?;
                }
                wait
            }
            Refusal::Rate { retry_after: Some(wait) } => {
                let is_long = wait > inner.config.inline_retry_threshold;
                for (entry, is_concurrent) in &entries {
                    cool_down(inner, entry, now.after(wait)).await?;
                    if is_long && !is_concurrent {
                        lower(inner, entry, Blow::Long).await?;
                    }
                }
                wait
            }
            _ => self.lower_all(&entries, &reply, before, pause).await?,
        };
        Ok(decide(wait, inner.config.inline_retry_threshold))
    }

    /// The vendor named no wait: the buckets are believed less, and say when a call is worth another try.
    async fn lower_all<H: Headers>(
        &self,
        entries: &[(Arc<Entry>, bool)],
        reply: &Reply<'_, H>,
        before: u32,
        pause: Duration,
    ) -> Result<Duration, AcquireError> {
        let blow = if before == 0 { Blow::First } else { Blow::Repeated };
        let mut wait = pause;
        for (entry, is_concurrent) in entries {
            if *is_concurrent || has_some_left(&self.inner, entry, reply.headers).await? {
                continue;
            }
            lower(&self.inner, entry, blow).await?;
            let bucket = known(&self.inner, entry).await?.bucket;
            let there = bucket.reaches(bucket.limit().cost_per_call().amount());
            wait = wait.max(there.map_or(Duration::ZERO, |there| there.since(self.inner.now())));
        }
        Ok(wait)
    }
}

/// Whether the vendor says that this quota is not what was too much.
async fn has_some_left(inner: &Inner, entry: &Entry, headers: &impl Headers) -> Result<bool, AcquireError> {
    let limit = *known(inner, entry).await?.bucket.limit();
    let quota = sluice_vendors::Quota::of(&entry.dimension, limit.limit_type());
    let reading = sluice_vendors::read(Vendor::of(&entry.dimension), quota, headers, inner.now());
    Ok(reading.reported.remaining.is_some_and(|left| left >= limit.capacity().half()))
}

async fn lower(inner: &Inner, entry: &Entry, blow: Blow) -> Result<(), AcquireError> {
    let Some(factor) = blow.factor() else { return Ok(()) };
    match penalize(inner, entry, factor).await {
        Ok(_) => Ok(()),
        Err(PenalizeError::Acquire(error)) => Err(error),
        // Others move the bucket all the time: the next refusal lowers it, if there is one.
        Err(error) => {
            tracing::warn!(event = "penalize.failed", dimension = %entry.dimension, %error);
            Ok(())
        }
    }
}

fn decide(wait: Duration, inline_at_most: Duration) -> Decision {
    if wait <= inline_at_most {
        return Decision::RetryInline { wait };
    }
    let delay = wait.as_secs().saturating_add(1).min(LONGEST_DELAY_SECS);
    Decision::Requeue { wait, delay_seconds: u32::try_from(delay).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_above_the_threshold_goes_back_into_the_queue() {
        let five = Duration::from_secs(5);
        assert_eq!(decide(five, five), Decision::RetryInline { wait: five });
        let requeued = |millis| decide(Duration::from_millis(millis), five);
        assert!(matches!(requeued(5_001), Decision::Requeue { delay_seconds: 6, .. }));
        assert!(matches!(requeued(898_999), Decision::Requeue { delay_seconds: 899, .. }));
        assert!(matches!(requeued(899_000), Decision::Requeue { delay_seconds: 900, .. }));
        assert!(matches!(requeued(86_400_000), Decision::Requeue { delay_seconds: 900, .. }));
    }

    #[test]
    fn refusals_in_succession_are_counted_and_forgotten() {
        let refusals = RateLimited::default();
        let at = |secs: u32| Timestamp::from_secs(1_709_550_002 + secs);
        assert_eq!((refusals.count(at(0)), refusals.count(at(9)), refusals.count(at(19))), (0, 1, 2));
        assert_eq!(refusals.count(at(30)), 0);
    }
}
