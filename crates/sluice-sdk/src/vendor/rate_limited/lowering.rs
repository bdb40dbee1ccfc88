//! Lowers the rate buckets that a refusal is blamed on.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Factor, Limit, Timestamp};
use sluice_vendors::{Headers, Quota, Reported, refused_quota};

use crate::api::error::AcquireError;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::known;
use crate::vendor::observe::limit::strictest;
use crate::vendor::penalize::{PenalizeError, Penalty, penalize};
use crate::vendor::rate_limited::reaction::{Done, Reaction};
use crate::vendor::rate_limited::succession::{CountedRefusal, RateLimited, RefusalKind};
use crate::vendor::rate_limited::{RefusedAsk, Reply, cool, pause_of};

/// The longest wait for a used-up quota: a day's quota admits other calls before it is whole again.
const LONGEST_RESET: Duration = Duration::from_secs(60);

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

/// Lowers rate buckets whose vendor asks for a long wait, once for each trouble.
pub(super) async fn lower_by_long(
    inner: &Inner,
    asked: &[&RefusedAsk],
    now: Timestamp,
    wait: Duration,
    reaction: &mut Reaction,
) -> Result<(), AcquireError> {
    for asked in asked.iter().filter(|asked| !asked.is_concurrent) {
        if asked
            .entry
            .extensions
            .of::<RateLimited>()
            .count(RefusalKind::Long, now, Some(wait))
            .before
            .is_some()
        {
            // If there is nothing to take, the cool-down is enough.
            let _ = lower(inner, &asked.entry, Reduction::Long, reaction).await?;
        }
    }
    Ok(())
}

/// Lowers the buckets after a refusal without a wait. Returns how long until the call is worth another try.
pub(super) async fn lower_all(
    inner: &Inner,
    asked: &[&RefusedAsk],
    reply: &Reply<'_, impl Headers>,
    now: Timestamp,
    reaction: &mut Reaction,
) -> Result<Duration, AcquireError> {
    let mut wait = Duration::ZERO;
    let mut blamed = Vec::with_capacity(asked.len());
    let named = refused_quota(reply.body);
    for asked in asked {
        let limit = known(inner, &asked.entry).await?.bucket.whole_limit();
        let reported = reported(&asked.entry, &limit, reply.headers, now);
        let used_up = reported.iter().filter(|reported| reported.remaining == Some(Amount::ZERO));
        wait = used_up
            .filter_map(|reported| reported.reset)
            .fold(wait, |wait, reset| wait.max(reset.min(LONGEST_RESET)));
        let quota = Quota::of(&asked.entry.dimension, limit.limit_type());
        let is_another = named.is_some_and(|named| !named.includes(quota));
        if asked.is_concurrent || !(is_another || has_some_left(&limit, &reported)) {
            blamed.push(*asked);
        }
    }
    if !blamed.is_empty() {
        reaction.blame(blamed.iter().map(|asked| &asked.ask.dimension));
    } else {
        // The quota has no bucket here. Lowering a bucket would not help; waiting longer each time does.
        wait = wait.max(pause_of(asked, RefusalKind::Rate, now, None));
    }
    for asked in blamed {
        let counted = asked.entry.extensions.of::<RateLimited>().count(RefusalKind::Rate, now, None);
        wait = wait.max(counted.pause);
        if !asked.is_concurrent {
            lower_or_cool(inner, &asked.entry, now, counted, reaction).await?;
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
    entry: &Arc<Entry>,
    now: Timestamp,
    counted: CountedRefusal,
    reaction: &mut Reaction,
) -> Result<(), AcquireError> {
    let blow = match counted.before {
        None => return Ok(()),
        Some(0) => Reduction::First,
        Some(_) => Reduction::Repeated,
    };
    if let Some(Penalty::NothingToTake(_)) = lower(inner, entry, blow, reaction).await? {
        // The bucket is used as fast as it fills, and that is too fast: only a pause lets the vendor recover.
        cool(inner, entry, now.after(counted.pause), reaction).await?;
    }
    Ok(())
}

/// What the refusal says about the bucket's quota.
pub(super) fn reported(
    entry: &Entry,
    limit: &Limit,
    headers: &impl Headers,
    now: Timestamp,
) -> Vec<Reported> {
    let quota = Quota::of(&entry.dimension, limit.limit_type());
    sluice_vendors::read(&entry.vendor, quota, headers, now).reported
}

/// Whether the vendor says that so much of this quota is left that it did not cause the refusal.
pub(super) fn has_some_left(limit: &Limit, reported: &[Reported]) -> bool {
    let reported = strictest(limit, reported);
    let half = reported.limit.unwrap_or_else(|| limit.capacity()).half();
    let is_plenty = |left| left > Amount::ZERO && left >= half;
    reported.remaining.is_some_and(is_plenty)
}

/// Takes at most what refills within the longest cool-down: one reply costs the fleet no more. Returns `None`
/// if other writers were faster in every try.
async fn lower(
    inner: &Inner,
    entry: &Entry,
    blow: Reduction,
    reaction: &mut Reaction,
) -> Result<Option<Penalty>, AcquireError> {
    let Some(factor) = blow.factor() else { return Ok(None) };
    match penalize(inner, entry, factor, Some(inner.config.longest_cool_down)).await {
        Ok(penalty) => {
            if let Penalty::Applied(level) = penalty {
                reaction.did(&entry.dimension, Done::LoweredTo(level));
            }
            Ok(Some(penalty))
        }
        Err(PenalizeError::Acquire(error)) => Err(error),
        // Other writers change the bucket all the time: the next refusal lowers it, if there is one.
        Err(error) => {
            tracing::debug!(event = "penalize.failed", dimension = %entry.dimension, %error);
            reaction.did(&entry.dimension, Done::NotLowered);
            Ok(None)
        }
    }
}
