//! Reaction to a 429: what the fleet does about it, and what becomes of the call.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Dimension, Factor, Limit, Timestamp};
use sluice_vendors::{Headers, Quota, Reported, Vendor, VendorRefusal, classify};

use crate::api::error::AcquireError;
use crate::api::refusal::delay_seconds;
use crate::api::request::{Ask, Request};
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::known;
use crate::telemetry;
use crate::vendor::cool_down::cool_down;
use crate::vendor::observe::is_same_window;
use crate::vendor::penalize::{PenalizeError, Penalty, penalize};
use crate::vendor::rate_limited::succession::RateLimited;

pub(crate) mod succession;

use crate::vendor::rate_limited::succession::{CountedRefusal, RefusalKind};

/// The parts of a vendor's reply from which a refusal is read.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a, H> {
    /// The HTTP status code.
    pub status: u16,
    /// The headers: an `http::HeaderMap`, a map of strings, or pairs of name and value.
    pub headers: &'a H,
    /// The body, if it was read: some vendors state there how long to wait, or what exceeded the limit.
    pub body: Option<&'a [u8]>,
}

impl<'a, H> Reply<'a, H> {
    /// A reply without its body.
    pub const fn new(status: u16, headers: &'a H) -> Self {
        Self { status, headers, body: None }
    }

    /// The same reply with its body.
    #[must_use]
    pub const fn with_body(mut self, body: &'a [u8]) -> Self {
        self.body = Some(body);
        self
    }
}

impl<'a> From<&'a http::response::Parts> for Reply<'a, http::HeaderMap> {
    fn from(parts: &'a http::response::Parts) -> Self {
        Self::new(parts.status.as_u16(), &parts.headers)
    }
}

/// What to do with a call that the vendor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Sleep for the wait, acquire again, and call again.
    RetryInline {
        /// From now; at most `SLUICE_INLINE_RETRY_THRESHOLD`.
        wait: Duration,
    },
    /// Put the work back into its queue: the wait is longer than a worker should sleep.
    Requeue {
        /// From now.
        wait: Duration,
        /// The value for SQS's `DelaySeconds`: one second more than the wait, at most 900 (15 minutes).
        delay_seconds: u32,
    },
    /// No wait helps: the account's allowance is used up or not paid for. Notify people.
    GiveUp,
    /// The reply is not a refusal for load. Nothing was done.
    NotRefused,
}

impl Decision {
    /// How long to wait; `None` if no wait helps or none is needed.
    #[must_use]
    pub const fn wait(self) -> Option<Duration> {
        match self {
            Self::RetryInline { wait } | Self::Requeue { wait, .. } => Some(wait),
            Self::GiveUp | Self::NotRefused => None,
        }
    }
}

/// The longest wait for a used-up quota: a day's quota admits other calls before it is whole again.
const LONGEST_RESET: Duration = Duration::from_secs(60);

/// A bucket that the refused call asked for.
#[derive(Debug)]
struct RefusedAsk {
    ask: Ask,
    entry: Arc<Entry>,
    is_concurrent: bool,
}

/// How far a refusal lowers a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    First,
    Repeated,
    /// The vendor asks for a long wait.
    Long,
}

impl Reduction {
    /// The share of the level that remains. The factors of the guide for 429s.
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
    /// Reacts to a vendor's refusal of a call for `request`, for the fleet and for the call.
    ///
    /// - A limit over a time window, with a wait (`Retry-After` in any of its forms, above zero): a cool-down
    ///   of that length for every process. If the wait is longer than `SLUICE_INLINE_RETRY_THRESHOLD`, the
    ///   buckets also keep only 0.3 of their level.
    /// - A limit over a window, without a wait: the buckets keep 0.8 of their level, and 0.5 in succession;
    ///   one with nothing to take cools down for the pause. The call waits for the pause (one second, doubled
    ///   for each refusal in succession, at most a minute), its own cost, and the reset of a used-up quota
    ///   (at most a minute).
    /// - Too many calls at once: nothing is lowered, since each call that ends makes room. Wait in the queue.
    /// - The vendor is busy: a cool-down as long as it says, or as the pause; no level is lowered.
    ///
    /// Refusals of one kind before a pause is over count as one: they wait for its end and lower nothing
    /// more. One within ten seconds after it is *in succession*. No call waits less than an active cool-down.
    ///
    /// Concurrency buckets cool down only if named alone. A bucket keeps its level if the reply says that
    /// half of the limit or more is left, in the bucket's own window. An unreadable wait is counted
    /// (`sluice.vendor.unreadable_headers`) and treated as none.
    ///
    /// Takes at most six requests (4.2 s each) for each dimension, one while DynamoDB does not answer; an
    /// attempt (1 s) and a request more for an unknown bucket.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, or no answer. What was done to one bucket stays.
    pub async fn on_rate_limited<'a, H: Headers>(
        &self,
        request: impl Into<Request<'a>>,
        reply: Reply<'_, H>,
    ) -> Result<Decision, AcquireError> {
        on_rate_limited(&self.inner, &request.into(), &reply).await
    }
}

/// Reacts to the vendor's refusal of a call for `request`.
pub(crate) async fn on_rate_limited<H: Headers>(
    inner: &Inner,
    request: &Request<'_>,
    reply: &Reply<'_, H>,
) -> Result<Decision, AcquireError> {
    let now = inner.now();
    let asks = request.parse()?;
    let dimension = asks[0].dimension.clone();
    report_unreadable(inner, &dimension, reply, now);
    let Some(refusal) = classify(Vendor::of(&dimension), reply.status, reply.headers, reply.body, now) else {
        return Ok(Decision::NotRefused);
    };
    let now = inner.time().await?;
    let mut all = Vec::with_capacity(asks.len());
    for ask in asks {
        let entry = inner.entry(&ask.dimension);
        let is_concurrent = known(inner, &entry).await?.bucket.limit().is_concurrent();
        all.push(RefusedAsk { ask, entry, is_concurrent });
    }
    let is_alone = all.iter().all(|asked| asked.is_concurrent);
    let asked: Vec<&RefusedAsk> = all.iter().filter(|asked| is_alone || !asked.is_concurrent).collect();
    tracing::warn!(event = "vendor.refused", %dimension, ?refusal);
    asked.iter().for_each(|asked| telemetry::vendor_refused(asked.entry.label(), name_of(&refusal)));
    // A wait of zero counts as none: the call and its refusal would repeat without a pause.
    let named = refusal.retry_after().filter(|wait| !wait.is_zero());
    let wait = match (refusal, named) {
        (VendorRefusal::QuotaExhausted, _) => return Ok(Decision::GiveUp),
        (VendorRefusal::Concurrency { .. }, _) => pause_of(&asked, RefusalKind::Concurrency, now, named),
        (VendorRefusal::SystemBusy { .. }, _) => {
            let pause = pause_of(&asked, RefusalKind::Busy, now, named);
            cool_all(inner, &asked, now, pause).await?
        }
        (_, Some(wait)) => {
            let until_over = cool_all(inner, &asked, now, wait).await?;
            if wait > inner.config.inline_retry_threshold {
                lower_by_long(inner, &asked, now, wait).await?;
            }
            until_over
        }
        (_, None) => lower_all(inner, &asked, reply.headers, now).await?,
    };
    Ok(decide(wait.max(blocked_for(inner, &all, now).await?), inner.config.inline_retry_threshold))
}

/// The name of the refusal in metrics.
const fn name_of(refusal: &VendorRefusal) -> &'static str {
    match refusal {
        VendorRefusal::Concurrency { .. } => "concurrency",
        VendorRefusal::SystemBusy { .. } => "busy",
        VendorRefusal::QuotaExhausted => "quota",
        _ => "rate",
    }
}

/// Reports waits that cannot be read. They count as no wait, and somebody should know.
fn report_unreadable<H: Headers>(inner: &Inner, dimension: &Dimension, reply: &Reply<'_, H>, now: Timestamp) {
    if reply.status < 400 {
        return;
    }
    for unreadable in sluice_vendors::retry_after(reply.headers, reply.body, now).unreadable {
        telemetry::vendor_unreadable(inner.entry(dimension).label());
        tracing::warn!(event = "vendor.unreadable_header", %dimension, %unreadable);
    }
}

/// Counts the refusal for each bucket, and returns the longest of their pauses.
fn pause_of(asked: &[&RefusedAsk], kind: RefusalKind, now: Timestamp, named: Option<Duration>) -> Duration {
    let pauses = asked.iter().map(|asked| asked.entry.extensions.of::<RateLimited>().count(kind, now, named).pause);
    pauses.max().unwrap_or_default()
}

/// Sets a cool-down for every process. Returns how long until its end, or until the end of a longer one.
async fn cool_all(
    inner: &Inner,
    asked: &[&RefusedAsk],
    now: Timestamp,
    pause: Duration,
) -> Result<Duration, AcquireError> {
    let mut wait = pause;
    for asked in asked {
        wait = wait.max(cool_down(inner, &asked.entry, now.after(pause)).await?.until().since(now));
    }
    Ok(wait)
}

async fn lower_by_long(
    inner: &Inner,
    asked: &[&RefusedAsk],
    now: Timestamp,
    wait: Duration,
) -> Result<(), AcquireError> {
    for asked in asked.iter().filter(|asked| !asked.is_concurrent) {
        if asked.entry.extensions.of::<RateLimited>().count(RefusalKind::Long, now, Some(wait)).before.is_some() {
            // If there is nothing to take, the cool-down is enough.
            let _ = lower(inner, &asked.entry, Reduction::Long).await?;
        }
    }
    Ok(())
}

/// Lowers the buckets after a refusal without a wait. Returns how long until the call is worth another try.
async fn lower_all(
    inner: &Inner,
    asked: &[&RefusedAsk],
    headers: &impl Headers,
    now: Timestamp,
) -> Result<Duration, AcquireError> {
    let mut wait = Duration::ZERO;
    let mut blamed = Vec::with_capacity(asked.len());
    for asked in asked {
        let limit = *known(inner, &asked.entry).await?.bucket.limit();
        let reported = reported(&asked.entry, &limit, headers, now);
        if let (Some(Amount::ZERO), Some(reset)) = (reported.remaining, reported.reset) {
            wait = wait.max(reset.min(LONGEST_RESET));
        }
        if asked.is_concurrent || !has_some_left(&limit, &reported) {
            blamed.push(*asked);
        }
    }
    if blamed.is_empty() {
        // The quota has no bucket here. Lowering a bucket would not help; waiting longer each time does.
        wait = wait.max(pause_of(asked, RefusalKind::Rate, now, None));
    }
    for asked in blamed {
        let counted = asked.entry.extensions.of::<RateLimited>().count(RefusalKind::Rate, now, None);
        wait = wait.max(counted.pause);
        if !asked.is_concurrent {
            lower_or_cool(inner, &asked.entry, now, counted).await?;
        }
    }
    for asked in asked.iter().filter(|asked| !asked.is_concurrent) {
        let bucket = known(inner, &asked.entry).await?.bucket;
        let there = bucket.reaches(asked.ask.cost.unwrap_or_else(|| bucket.limit().cost_per_call()).amount());
        wait = wait.max(there.map_or(Duration::ZERO, |there| there.since(now)));
    }
    Ok(wait)
}

/// Lowers the bucket or cools it down, once for each trouble.
async fn lower_or_cool(
    inner: &Inner,
    entry: &Entry,
    now: Timestamp,
    counted: CountedRefusal,
) -> Result<(), AcquireError> {
    let blow = match counted.before {
        None => return Ok(()),
        Some(0) => Reduction::First,
        Some(_) => Reduction::Repeated,
    };
    if let Some(Penalty::NothingToTake(_)) = lower(inner, entry, blow).await? {
        // The bucket is used as fast as it fills, and that is too fast: only a pause lets the vendor recover.
        cool_down(inner, entry, now.after(counted.pause)).await?;
    }
    Ok(())
}

/// How long until none of the buckets is blocked, as far as this process knows.
async fn blocked_for(inner: &Inner, asked: &[RefusedAsk], now: Timestamp) -> Result<Duration, AcquireError> {
    let mut longest = Duration::ZERO;
    for asked in asked {
        let until = known(inner, &asked.entry).await?.bucket.blocked_until();
        longest = longest.max(until.map_or(Duration::ZERO, |until| until.since(now)));
    }
    Ok(longest)
}

/// What the refusal says about the bucket's quota.
fn reported(entry: &Entry, limit: &Limit, headers: &impl Headers, now: Timestamp) -> Reported {
    let quota = Quota::of(&entry.dimension, limit.limit_type());
    sluice_vendors::read(Vendor::of(&entry.dimension), quota, headers, now).reported
}

/// Whether the vendor says that so much of this quota is left that it did not cause the refusal.
fn has_some_left(limit: &Limit, reported: &Reported) -> bool {
    let half = reported.limit.unwrap_or_else(|| limit.capacity()).half();
    let is_plenty = |left| left > Amount::ZERO && left >= half;
    is_same_window(limit, reported) && reported.remaining.is_some_and(is_plenty)
}

/// Returns `None` if other writers were faster in every try.
async fn lower(inner: &Inner, entry: &Entry, blow: Reduction) -> Result<Option<Penalty>, AcquireError> {
    let Some(factor) = blow.factor() else { return Ok(None) };
    match penalize(inner, entry, factor).await {
        Ok(penalty) => Ok(Some(penalty)),
        Err(PenalizeError::Acquire(error)) => Err(error),
        // Other writers change the bucket all the time: the next refusal lowers it, if there is one.
        Err(error) => {
            tracing::warn!(event = "penalize.failed", dimension = %entry.dimension, %error);
            Ok(None)
        }
    }
}

fn decide(wait: Duration, inline_at_most: Duration) -> Decision {
    if wait <= inline_at_most {
        return Decision::RetryInline { wait };
    }
    Decision::Requeue { wait, delay_seconds: delay_seconds(wait) }
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
}
