//! The answers to callers that do not wait, or no longer wait.

use std::sync::Arc;
use std::time::Duration;

use crate::api::refusal::RetryReason;
use crate::lane::inner::Inner;
use crate::lane::setback::{Setback, Taken};
use crate::lane::slot_wait;
use crate::lane::unclaimed::LaneAnswer;
use crate::lane::wants::Want;

/// Returns the answer to a caller that does not wait, and would stand behind callers that do.
pub(super) fn behind(inner: &Arc<Inner>, wants: &[Want], why: Setback) -> LaneAnswer {
    let retry = why.refusal()?;
    let of_bucket = wants.iter().find(|want| want.entry.dimension == retry.dimension);
    Ok(Taken::Refused(match of_bucket {
        Some(want) => {
            let retry = slot_wait::behind(&want.entry, want.cost, retry, inner.now());
            inner.refused(&want.entry, &retry);
            retry
        }
        None => retry,
    }))
}

/// Returns the answer to a caller whose deadline has passed, and that has left the queue. `why` is the
/// setback of the last look. `looks_for` is how long the next look has been under way. If that is an attempt
/// or longer, the state of the bucket is unknown (a bucket that was full may no longer be full), and the
/// caller receives `Contended`, unless DynamoDB is out or the setback is final.
pub(super) fn too_late(
    inner: &Arc<Inner>,
    wants: &[Want],
    why: Option<Setback>,
    looks_for: Option<Duration>,
) -> LaneAnswer {
    let is_unanswered = looks_for.is_some_and(|time| time >= inner.store.attempt().of_rows());
    let why = why.filter(|why| !is_unanswered || matches!(why, Setback::Out(_) | Setback::Final(_)));
    let retry = why.unwrap_or_else(|| Setback::overtaken(&wants[0].entry.dimension)).refusal()?;
    let of_bucket = wants.iter().find(|want| want.entry.dimension == retry.dimension);
    Ok(Taken::Refused(match of_bucket.filter(|_| retry.reason == RetryReason::NoFreeSlot) {
        Some(want) => {
            let retry = slot_wait::deadline_passed(&want.entry, want.cost, inner.now());
            inner.refused(&want.entry, &retry);
            retry
        }
        None => retry,
    }))
}
