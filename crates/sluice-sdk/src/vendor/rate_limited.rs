//! Reaction to a 429: what the fleet does about it, and what becomes of the call.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, Timestamp};
use sluice_vendors::{Headers, Profile, VendorRefusal, classify, classify_event, should_retry};

use crate::api::error::AcquireError;
use crate::api::request::{Ask, Request};
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::known;
use crate::lane::shadow;
use crate::telemetry;
use crate::vendor::cool_down::{CoolDown, cool_down};

mod blame;
mod decision;
mod lowering;
mod reaction;
pub(crate) mod succession;

pub use decision::Decision;

use crate::vendor::rate_limited::blame::guilty;
use crate::vendor::rate_limited::decision::decide;
use crate::vendor::rate_limited::lowering::{lower_all, lower_by_long};
use crate::vendor::rate_limited::reaction::{Done, Reaction};
use crate::vendor::rate_limited::succession::{
    FIRST_PAUSE, FIRST_PAUSE_OF_EXHAUSTED, RateLimited, RefusalKind,
};

/// The parts of a vendor's reply from which a refusal is read.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a, H> {
    /// The HTTP status code.
    pub status: u16,
    /// The headers: an `http::HeaderMap`, a map of strings, or pairs of name and value.
    pub headers: &'a H,
    /// The body, if it was read: some vendors state there how long to wait, or what exceeded the limit. Of a
    /// stream that began with 200 and broke off with an error, the data of that event.
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

/// Without the body.
impl<'a> From<&'a http::response::Parts> for Reply<'a, http::HeaderMap> {
    fn from(parts: &'a http::response::Parts) -> Self {
        Self::new(parts.status.as_u16(), &parts.headers)
    }
}

/// The whole reply: some vendors say only in the body that an account is used up, or that too many calls run
/// at once.
impl<'a, B: AsRef<[u8]>> From<&'a http::Response<B>> for Reply<'a, http::HeaderMap> {
    fn from(response: &'a http::Response<B>) -> Self {
        Self::new(response.status().as_u16(), response.headers()).with_body(response.body().as_ref())
    }
}

/// A bucket that the refused call asked for.
#[derive(Debug)]
struct RefusedAsk {
    ask: Ask,
    entry: Arc<Entry>,
    is_concurrent: bool,
    in_cool_down: bool,
}

/// Which buckets were in a cool-down when shadow mode made the call all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PastCoolDowns<'a> {
    /// Those of the grant.
    Of(&'a [&'a Dimension]),
    /// There is no grant: in shadow mode, those that are in a cool-down now.
    Now,
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
    /// - A day's quota or the account is used up: a cool-down (a minute, doubled for each refusal in
    ///   succession), so that not every worker finds out by a failing call of its own; none if one project
    ///   alone is concerned.
    /// - The call is larger than the limit: nothing.
    ///
    /// No cool-down is longer than `SLUICE_LONGEST_COOL_DOWN`, and no level is lowered by more than what
    /// refills in that time. The call itself hears the vendor's whole wait.
    ///
    /// Refusals of one kind before a pause is over count as one: they wait for its end and lower nothing
    /// more. One within ten seconds after it is *in succession*. No call waits less than an active cool-down.
    ///
    /// In shadow mode, a bucket that is in a cool-down is left as it is: an enforcing client would not have
    /// called.
    ///
    /// Concurrency buckets cool down only if named alone. A bucket keeps its level if the reply says that
    /// half of the limit or more is left, in the bucket's own window, or that another quota was exceeded. An
    /// unreadable wait is counted (`sluice.vendor.unreadable_headers`) and treated as none.
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
        let (inner, request) = (&self.inner, request.into());
        let vendor =
            || Dimension::new(request.names().first()?).ok().map(|first| inner.config.vendors.of(&first));
        let alone = || judged_alone(inner, vendor().unwrap_or(inner.config.vendors.other()), &reply);
        shadow::or_in_shadow(inner, on_rate_limited(inner, &request, &reply, PastCoolDowns::Now).await, alone)
    }
}

/// Reacts to the vendor's refusal of a call for `request`.
pub(crate) async fn on_rate_limited<H: Headers>(
    inner: &Inner,
    request: &Request<'_>,
    reply: &Reply<'_, H>,
    past: PastCoolDowns<'_>,
) -> Result<Decision, AcquireError> {
    let now = inner.now();
    let asks = request.parse()?;
    let dimension = asks[0].dimension.clone();
    report_unreadable(inner, &dimension, reply, now);
    let vendor = Arc::clone(&inner.entry(&dimension).vendor);
    let Some(refusal) = refusal_of(&vendor, reply, now) else {
        return Ok(Decision::NotRefused);
    };
    let now = inner.time().await?;
    let mut all = Vec::with_capacity(asks.len());
    for ask in asks {
        let entry = inner.entry_for(&ask);
        let bucket = known(inner, &entry).await?.bucket;
        let in_cool_down = match past {
            PastCoolDowns::Of(dimensions) => dimensions.contains(&&ask.dimension),
            PastCoolDowns::Now => {
                inner.config.mode.is_shadow() && bucket.blocked_until().is_some_and(|until| until > now)
            }
        };
        all.push(RefusedAsk { ask, entry, is_concurrent: bucket.limit().is_concurrent(), in_cool_down });
    }
    let mut reaction = Reaction::to(refusal);
    let decision = react(inner, &all, refusal, reply, now, &mut reaction).await;
    let decision = decision.map(|decision| if is_given_up(reply) { Decision::GiveUp } else { decision });
    reaction.log(&decision);
    decision
}

/// What a reply refuses. A reply that began with a status of success may have an error in its body.
pub(crate) fn refusal_of<H: Headers>(
    vendor: &Profile,
    reply: &Reply<'_, H>,
    now: Timestamp,
) -> Option<VendorRefusal> {
    match reply.status {
        200..300 => classify_event(vendor, reply.body?, now),
        status => classify(vendor, status, reply.headers, reply.body, now),
    }
}

/// Whether the vendor says that the same call is not worth another try. That is said of the call: the buckets
/// hear of the refusal all the same.
fn is_given_up<H: Headers>(reply: &Reply<'_, H>) -> bool {
    should_retry(reply.headers) == Some(false)
}

/// Judges the reply to a call that was granted while DynamoDB was out: nothing can be done for the fleet.
pub(crate) fn judged_alone<H: Headers>(inner: &Inner, vendor: &Profile, reply: &Reply<'_, H>) -> Decision {
    match refusal_of(vendor, reply, inner.now()) {
        None => Decision::NotRefused,
        Some(VendorRefusal::QuotaExhausted { .. } | VendorRefusal::TooLarge) => Decision::GiveUp,
        Some(_) if is_given_up(reply) => Decision::GiveUp,
        Some(refusal) => {
            let named = refusal.retry_after().filter(|wait| !wait.is_zero());
            decide(named.unwrap_or(FIRST_PAUSE), inner.config.inline_retry_threshold)
        }
    }
}

/// Reacts to `refusal` of a call for `all`, and notes what was done.
async fn react<H: Headers>(
    inner: &Inner,
    all: &[RefusedAsk],
    refusal: VendorRefusal,
    reply: &Reply<'_, H>,
    now: Timestamp,
    reaction: &mut Reaction,
) -> Result<Decision, AcquireError> {
    let asked = concerned(all, &refusal);
    reaction.blame(asked.iter().map(|asked| &asked.ask.dimension));
    asked.iter().for_each(|asked| telemetry::vendor_refused(asked.entry.label(), name_of(&refusal)));
    // An enforcing client would not have made the call in a cool-down. Shadow clients call on: their refusals
    // would prolong it for all, without an end.
    let asked: Vec<_> = asked.into_iter().filter(|asked| !asked.in_cool_down).collect();
    if asked.is_empty() {
        let decision = judged_alone(inner, &all[0].entry.vendor, reply);
        let Some(wait) = decision.wait() else { return Ok(decision) };
        return Ok(decide(
            wait.max(blocked_for(inner, all, now).await?),
            inner.config.inline_retry_threshold,
        ));
    }
    // A wait of zero counts as none: the call and its refusal would repeat without a pause.
    let named = refusal.retry_after().filter(|wait| !wait.is_zero());
    let wait = match (refusal, named) {
        (VendorRefusal::TooLarge | VendorRefusal::QuotaExhausted { alone: true, .. }, _) => {
            return Ok(Decision::GiveUp);
        }
        (VendorRefusal::QuotaExhausted { .. }, _) => {
            // Some vendors name seconds, after which the quota is still used up.
            let named = named.filter(|wait| *wait >= FIRST_PAUSE_OF_EXHAUSTED);
            let pause = pause_of(&asked, RefusalKind::Exhausted, now, named);
            cool_all(inner, &asked, now, pause, reaction).await?;
            return Ok(Decision::GiveUp);
        }
        (VendorRefusal::Concurrency { .. }, _) => pause_of(&asked, RefusalKind::Concurrency, now, named),
        (VendorRefusal::SystemBusy { .. }, _) => {
            let pause = pause_of(&asked, RefusalKind::Busy, now, named);
            cool_all(inner, &asked, now, pause, reaction).await?
        }
        (_, Some(wait)) => {
            let guilty = guilty(inner, &asked, reply, now).await?;
            reaction.blame(guilty.iter().map(|asked| &asked.ask.dimension));
            let until_over = cool_all(inner, &guilty, now, wait, reaction).await?;
            if wait > inner.config.inline_retry_threshold {
                lower_by_long(inner, &guilty, now, wait, reaction).await?;
            }
            until_over
        }
        (_, None) => lower_all(inner, &asked, reply, now, reaction).await?,
    };
    Ok(decide(wait.max(blocked_for(inner, all, now).await?), inner.config.inline_retry_threshold))
}

/// The buckets that a refusal concerns: those of slots if too many calls ran at once, otherwise those of
/// rates. All of them, if the call asked for none of that type.
fn concerned<'a>(all: &'a [RefusedAsk], refusal: &VendorRefusal) -> Vec<&'a RefusedAsk> {
    let is_of_slots = matches!(refusal, VendorRefusal::Concurrency { .. });
    let has_such = all.iter().any(|asked| asked.is_concurrent == is_of_slots);
    all.iter().filter(|asked| !has_such || asked.is_concurrent == is_of_slots).collect()
}

/// The name of the refusal in metrics.
const fn name_of(refusal: &VendorRefusal) -> &'static str {
    match refusal {
        VendorRefusal::Concurrency { .. } => "concurrency",
        VendorRefusal::SystemBusy { .. } => "busy",
        VendorRefusal::QuotaExhausted { .. } => "quota",
        VendorRefusal::TooLarge => "too_large",
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
    let pauses =
        asked.iter().map(|asked| asked.entry.extensions.of::<RateLimited>().count(kind, now, named).pause);
    pauses.max().unwrap_or_default()
}

/// Sets a cool-down for every process, of at most the longest that one reply may ask for. Returns how long
/// the call waits: the whole pause, or until the end of a longer cool-down.
async fn cool_all(
    inner: &Inner,
    asked: &[&RefusedAsk],
    now: Timestamp,
    pause: Duration,
    reaction: &mut Reaction,
) -> Result<Duration, AcquireError> {
    let mut wait = pause;
    let fleets = pause.min(inner.config.longest_cool_down);
    for asked in asked {
        wait = wait.max(cool(inner, &asked.entry, now.after(fleets), reaction).await?.since(now));
    }
    Ok(wait)
}

/// Sets a cool-down until `until`. Returns its end, or the end of a longer one.
async fn cool(
    inner: &Inner,
    entry: &Arc<Entry>,
    until: Timestamp,
    reaction: &mut Reaction,
) -> Result<Timestamp, AcquireError> {
    let set = cool_down(inner, entry, until).await?;
    if let CoolDown::Set(until) = set {
        reaction.did(&entry.dimension, Done::CoolingDown(until));
    }
    Ok(set.until())
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
