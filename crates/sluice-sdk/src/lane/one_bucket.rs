//! One attempt at one bucket, in the line of its share, and the time that a caller gives an attempt.

use std::pin::{Pin, pin};
use std::sync::Arc;

use sluice_core::Cost;

use crate::api::refusal::contended;
use crate::api::request::cost_in;
use crate::lane::answer_by::AnswerBy;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::{known, of_share};
use crate::lane::setback::Taken;
use crate::lane::terms::Terms;
use crate::lane::unclaimed::LaneAnswer;
use crate::lane::wants::want;
use crate::lane::{own_line, slot_lines};

/// Takes from the bucket; if the share that pays has gone meanwhile, from the common line.
pub(super) async fn take_one(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    cost: Option<Cost>,
    terms: Terms,
) -> LaneAnswer {
    let answer = take_known(inner, Arc::clone(&entry), cost, terms).await;
    match &answer {
        Err(error) if slot_lines::is_share_gone(inner, error).await => {
            let entry = match entry.share_of() {
                Some((bucket, share)) => inner.entry_of(bucket, Some(share)),
                None => entry,
            };
            take_known(inner, entry, cost, terms).await
        }
        _ => answer,
    }
}

async fn take_known(
    inner: &Arc<Inner>,
    mut entry: Arc<Entry>,
    cost: Option<Cost>,
    terms: Terms,
) -> LaneAnswer {
    entry = of_share(inner, entry).await?;
    let limit = match entry.limit() {
        Some(limit) => limit,
        None => *known(inner, &entry).await?.bucket.limit(),
    };
    let cost = cost_in(&entry.dimension, cost, &limit)?;
    let want = want(inner, entry, &limit, cost)?;
    slot_lines::take(inner, &[want], terms).await
}

/// Takes slots for a call that runs already, which began while DynamoDB was out.
pub(crate) async fn take_running(inner: &Arc<Inner>, entry: &Arc<Entry>, cost: Cost) -> LaneAnswer {
    let terms = Terms { is_running: true, ..Terms::at_once(inner.config.lease_ttl) };
    let taking = pin!(async {
        let limit = *known(inner, entry).await?.bucket.limit();
        if !limit.is_concurrent() {
            return Ok(Taken::Refused(contended(&entry.dimension)));
        }
        let want = want(inner, Arc::clone(entry), &limit, cost)?;
        own_line::take(inner, &[want], terms).await
    });
    in_time(inner, terms, taking).await
}

/// A caller that waits has a deadline of its own.
pub(super) async fn in_time(
    inner: &Inner,
    terms: Terms,
    taking: Pin<&mut impl Future<Output = LaneAnswer>>,
) -> LaneAnswer {
    match terms.stays {
        true => taking.await,
        false => AnswerBy::new(inner).wait(taking).await?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<'a, F>(_: impl FnOnce(&'a Arc<Inner>, Arc<Entry>, Option<Cost>, Terms) -> F) -> usize {
        size_of::<F>()
    }

    /// A caller holds this for as long as it waits, and each attempt copies it: 24 KB once halved the grants
    /// a second of 512 callers.
    #[test]
    fn an_attempt_takes_little_memory() {
        let size = bytes(take_one);
        assert!(size <= 2_500, "{size} bytes: box what few attempts come to, and pin what is handed on");
    }
}
