//! Dimensions whose buckets change in separate writes: each in its bucket's lane, in parallel.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Claim, RatePlanner};
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, longest, refused};
use crate::lane::inner::Inner;
use crate::lane::no_grant::too_late;
use crate::lane::parallel::in_parallel_here;
use crate::lane::poll::{Poll, WaitContext, pause_until_return};
use crate::lane::release::give_back_unused;
use crate::lane::setback::{Setback, Taken};
use crate::lane::task::boxed;
use crate::lane::terms::Terms;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::lane::wants::Want;
use crate::lane::{inline, lending, tokens};

/// How long a refused caller waits for the return of other dimensions' grants. The return itself goes on.
pub(crate) const RETURN_WAIT: Duration = Duration::from_secs(1);

/// Takes all or nothing: if any bucket refuses, what the others granted is given back. A crash in between
/// loses rate tokens, which refill, and inline leases, which end.
pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    if let Some(retry) = remembered(inner, wants, terms) {
        return Ok(Taken::Refused(retry));
    }
    if let [want] = wants {
        return take_part(inner, want, terms).await;
    }
    let waits = terms.stays_until().filter(|_| wants.iter().filter(|want| want.concurrent).count() > 1);
    // Boxed: every attempt moves this future in memory, and most ask for one bucket.
    match waits {
        Some(until) => Box::pin(take_slots(inner, wants, terms, until)).await,
        None => Box::pin(take_all(inner, wants, terms)).await,
    }
}

/// Takes all parts in parallel.
async fn take_all(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> LaneAnswer {
    // All parts join their queues before any of them is waited for.
    let parts: Vec<_> = wants.iter().map(|want| Box::pin(take_part(inner, want, terms))).collect();
    let (mut held, mut refusals, mut failure) = (None::<UnclaimedGrant>, Vec::new(), None);
    for answer in in_parallel_here(parts).await {
        match answer {
            Ok(Taken::Granted(unclaimed)) => match &mut held {
                Some(held) => held.join(unclaimed),
                None => held = Some(unclaimed),
            },
            Ok(Taken::Refused(retry)) => refusals.push(retry),
            Err(error) => failure = Some(error),
        }
    }
    let answer = match (failure, longest(refusals), held.take()) {
        (None, None, Some(held)) => return Ok(Taken::Granted(held)),
        (Some(error), _, rest) => (Err(error), rest),
        (None, Some(retry), rest) => (Ok(Taken::Refused(retry)), rest),
        (None, None, None) => (Err(AcquireError::Request(crate::api::request::RequestError::Empty)), None),
    };
    let (answer, rest) = answer;
    if let Some(parts) = rest.map(UnclaimedGrant::into_parts) {
        let inner = Arc::clone(inner);
        let kept = match terms.stays {
            // The return waits for DynamoDB, and the caller does not.
            _ if inner.store.is_out() => Duration::ZERO,
            true => terms.patience().min(RETURN_WAIT),
            false => RETURN_WAIT,
        };
        // On its own task: if this future is dropped, the parts are still given back.
        let _ =
            timeout(kept, tokio::spawn(boxed(async move { give_back_unused(&inner, parts).await }))).await;
    }
    answer
}

/// Takes slots of several buckets for a caller that waits: in the queue of one, and then the others at once
/// or not at all. If callers held one slot while they waited for another, two could wait for each other.
async fn take_slots(inner: &Arc<Inner>, wants: &[Want], terms: Terms, until: Instant) -> LaneAnswer {
    let (mut first, mut poll, mut why) = (0, Poll::default(), None);
    let taking = async {
        loop {
            let returns = inner.store.returns();
            let mut held = match take_part(inner, &wants[first], terms).await? {
                Taken::Granted(unclaimed) => unclaimed,
                Taken::Refused(retry) => return Ok(Taken::Refused(retry)),
            };
            let Some((at, setback)) = take_others(inner, wants, first, terms, &mut held).await else {
                return Ok(Taken::Granted(held));
            };
            drop(held);
            if !setback.is_waited_out(terms.queue_patience(inner.config.on_unavailable)) {
                return setback.answer();
            }
            let crowd = wants[at].entry.load.crowd();
            let pause =
                poll.next(&setback, WaitContext { crowd, until: Some(until), ..WaitContext::default() });
            (first, why) = (at, Some(setback));
            pause_until_return(&inner.store, pause, returns).await;
        }
    };
    match timeout_at(until, taking).await {
        Ok(answer) => answer,
        Err(_) => too_late(inner, wants, why, None),
    }
}

async fn take_others(
    inner: &Arc<Inner>,
    wants: &[Want],
    first: usize,
    terms: Terms,
    held: &mut UnclaimedGrant,
) -> Option<(usize, Setback)> {
    let now = Terms { until: None, stays: false, ..terms };
    for (at, want) in wants.iter().enumerate().filter(|(at, _)| *at != first) {
        match take_part(inner, want, now).await {
            Ok(Taken::Granted(unclaimed)) => held.join(unclaimed),
            Ok(Taken::Refused(retry)) => return Some((at, Setback::Refused(retry))),
            Err(error) => return Some((at, Setback::of(error, &want.entry.dimension))),
        }
    }
    None
}

async fn take_part(inner: &Arc<Inner>, want: &Want, terms: Terms) -> LaneAnswer {
    match want.concurrent {
        true => inline::take(inner, want, terms).await,
        false => tokens::take(inner, want, terms).await,
    }
}

/// Returns the longest refusal that is known without a request, for a caller that does not wait.
fn remembered(inner: &Inner, wants: &[Want], terms: Terms) -> Option<RetryIn> {
    if terms.until.is_some() {
        return None;
    }
    // Read once, for the first bucket that may refuse.
    let mut clock = None;
    // Tokens in stock, and starts that other callers left, are available whatever the level of the bucket is.
    let has_nothing_else = |want: &&Want| want.entry.stock.is_none() && !want.entry.has_abandoned();
    longest(wants.iter().filter(|want| !want.concurrent).filter(has_nothing_else).filter_map(|want| {
        let reading = want.entry.reading()?;
        let planner = RatePlanner::new(&reading.bucket);
        if planner.never_refuses(want.cost) {
            return None;
        }
        let now = (*clock.get_or_insert_with(|| inner.store.clock().known()))?;
        // If the anchor is far ahead, the lane may move it back, and the wait is then a different one.
        if !reading.may_refuse(now) || reading.bucket.is_anchored_far_ahead(now) {
            return None;
        }
        let refusal = planner.refusal(Claim { cost: want.cost, patience: Duration::ZERO }, now)?;
        // Another line may have what this one lacks.
        if lending::lender(&want.entry.extensions, &reading, want.cost, now).is_some() {
            return None;
        }
        Some(refused(&want.entry.dimension, refusal))
    }))
}
