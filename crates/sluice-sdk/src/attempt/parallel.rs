//! Rate dimensions without lease rows: one conditional write each, side by side.

use std::sync::Arc;

use sluice_core::{Bucket, Form, Plan, RatePlanner, RateReceipt, Take};

use tokio::time::timeout;

use super::{Parts, Taken, Terms, Want, contended, in_parallel, known, longest, refresh, refused, try_again, unknown};
use crate::acquire::AcquireError;
use crate::attempt::saw;
use crate::cache::Entry;
use crate::client::Inner;
use crate::give_back::give_back_unused;
use crate::grant::Part;
use crate::store::{ATTEMPT_TIMEOUT, IfAmbiguous, Written};

/// All or nothing: what was granted is given back if any refuses. A crash in between loses rate tokens, which refill.
pub(super) async fn take(inner: &Arc<Inner>, wants: Vec<Want>, terms: Terms) -> Result<Taken<Parts>, AcquireError> {
    if let Some(retry) = remembered(inner, &wants, terms).filter(|_| terms.patience.is_zero()) {
        return Ok(Taken::Refused(retry));
    }
    let takes = wants.into_iter().map(|want| {
        let inner = Arc::clone(inner);
        async move { take_one(&inner, &want, terms).await }
    });
    let (mut parts, mut refusals, mut failure) = (Vec::new(), Vec::new(), None);
    for taken in in_parallel(takes.collect()).await {
        match taken {
            Ok(Taken::Granted(part)) => parts.push(part),
            Ok(Taken::Refused(retry)) => refusals.push(retry),
            Err(error) => failure = Some(error),
        }
    }
    if refusals.is_empty() && failure.is_none() {
        return Ok(Taken::Granted(parts));
    }
    give_back_unused(inner, parts).await;
    match (failure, longest(refusals)) {
        (None, Some(retry)) => Ok(Taken::Refused(retry)),
        (Some(error), _) => Err(error),
        (None, None) => Ok(Taken::Granted(Vec::new())),
    }
}

/// The longest of the refusals that are known without asking.
fn remembered(inner: &Inner, wants: &[Want], terms: Terms) -> Option<crate::outcome::RetryIn> {
    let now = inner.now();
    longest(wants.iter().filter_map(|want| {
        let reading = want.entry.reading().filter(|reading| reading.may_refuse(now))?;
        let take = Take { cost: want.cost, now, patience: terms.patience };
        match RatePlanner::new(&reading.bucket).plan(take) {
            Plan::Refuse(refusal) => Some(refused(&want.entry.dimension, refusal)),
            _ => None,
        }
    }))
}

async fn take_one(inner: &Inner, want: &Want, terms: Terms) -> Result<Taken<Part>, AcquireError> {
    let entry = &want.entry;
    let mut tries = 0;
    let mut turn = None;
    loop {
        let reading = known(inner, entry).await?;
        if reading.bucket.limit().is_concurrent() {
            // Removed and made anew as another type, this moment: the next attempt sees it as it is.
            return Ok(Taken::Refused(contended(&entry.dimension)));
        }
        let now = inner.now();
        let take = Take { cost: want.cost, now, patience: terms.patience };
        if let Some(part) = take_over(entry, &reading.bucket, take) {
            return Ok(Taken::Granted(part));
        }
        let planner = RatePlanner::new(&reading.bucket).with_headroom(entry.headroom(now));
        let planned = match planner.plan(take) {
            Plan::Write(planned) => planned,
            Plan::Refuse(refusal) if reading.may_refuse(now) => {
                return Ok(Taken::Refused(refused(&entry.dimension, refusal)));
            }
            Plan::Refuse(_) => planner.probe(take),
            Plan::NeverSatisfiable { capacity } if reading.may_refuse(now) => {
                let (dimension, cost) = (entry.dimension.clone(), want.cost);
                return Err(AcquireError::NeverSatisfiable { dimension, cost, capacity });
            }
            Plan::NeverSatisfiable { .. } => {
                refresh(inner, entry).await?;
                continue;
            }
        };
        if planned.form == Form::Spend {
            turn = None;
        } else if turn.is_none() {
            // Wait for whoever moves the anchor at this moment, then plan again from what it left; a write that hangs holds
            // nobody up for longer than one attempt.
            turn = Some(timeout(ATTEMPT_TIMEOUT, entry.anchor_turn.lock()).await.ok());
            continue;
        }
        // A second application after a lost reply takes tokens twice: against this caller, and they refill.
        match inner.store.update(&planned.update, IfAmbiguous::SendAgain).await? {
            Written::Applied(row) => {
                let bucket = super::parse(&entry.dimension, &row)?;
                entry.wrote(bucket.clone(), inner.now());
                let receipt = RateReceipt::new(bucket, want.cost);
                return Ok(Taken::Granted(Part::tokens(entry, want.cost, receipt, now, None)));
            }
            Written::ConditionFailed(Some(row)) => {
                let bucket = saw(inner, entry, &row)?;
                if planned.form != Form::Spend && bucket.anchor() != reading.bucket.anchor() {
                    let now_failed = inner.now();
                    entry.anchor_conflict(now_failed, now_failed.since(now));
                }
            }
            Written::ConditionFailed(None) => return Err(unknown(inner, entry)),
        }
        tries += 1;
        if !try_again(inner, tries, &entry.dimension).await {
            return Ok(Taken::Refused(contended(&entry.dimension)));
        }
    }
}

/// A start that another caller of this process left, where it is earlier than one booked now would be.
fn take_over(entry: &Entry, bucket: &Bucket, take: Take) -> Option<Part> {
    let is_blocked = bucket.blocked_until().is_some_and(|until| until > take.now);
    let booked_now = bucket.reaches(take.cost.amount())?;
    let latest = booked_now.min(take.now.after(take.patience));
    if is_blocked { None } else { entry.take_over(take.cost, take.now, latest) }
}
