//! Dimensions with lease rows: every bucket and every lease changes, or none does.

use std::sync::Arc;

use sluice_core::{Bucket, Lease, Plan, RatePlanner, RateReceipt, SlotPlanner, Take, Update, Verdict, Write};

use super::{Parts, Taken, Terms, Want, contended, known, longest, refresh, refused, try_again, unknown};
use crate::acquire::AcquireError;
use crate::attempt::saw;
use crate::client::Inner;
use crate::config::Leases;
use crate::grant::Part;
use crate::outcome::RetryIn;
use crate::store::{Cancelled, StoreError, Transacted, Transaction};

/// One bucket's share of the transaction.
struct Step {
    update: Update,
    /// The row as it will be if the condition holds; for slots, as it was read.
    bucket: Bucket,
    lease: Option<Lease>,
}

enum Plans {
    Steps(Vec<Step>),
    Refused(RetryIn),
    /// Readings that refuse but are too old to be believed.
    Stale(Vec<Want>),
}

pub(super) async fn take(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> Result<Taken<Parts>, AcquireError> {
    let mut tries = 0;
    loop {
        let steps = match plan(inner, wants, terms).await? {
            Plans::Steps(steps) => steps,
            Plans::Refused(retry) => return Ok(Taken::Refused(retry)),
            Plans::Stale(stale) => {
                // A read costs an eighth of a transaction that fails.
                for want in stale {
                    refresh(inner, &want.entry).await?;
                }
                continue;
            }
        };
        match inner.store.transact(&Transaction::new(&writes(&steps))).await? {
            Transacted::Committed => return Ok(Taken::Granted(granted(inner, wants, steps))),
            Transacted::Cancelled(reasons) => {
                if learn(inner, wants, &steps, &reasons)? {
                    return Ok(Taken::Granted(granted(inner, wants, steps)));
                }
                let transient = reasons.iter().any(|cancelled| cancelled.reason.verdict.is_transient());
                tries = if transient { tries.max(super::PLANS_AT_ONCE - 1) } else { tries };
            }
        }
        tries += 1;
        if !try_again(inner, tries, &wants[0].entry.dimension).await {
            return Ok(Taken::Refused(contended(&wants[0].entry.dimension)));
        }
    }
}

async fn plan(inner: &Inner, wants: &[Want], terms: Terms) -> Result<Plans, AcquireError> {
    let (mut steps, mut refusals, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    for want in wants {
        let mut reading = known(inner, &want.entry).await?;
        let now = inner.now();
        if reading.is_unread(now) {
            reading = refresh(inner, &want.entry).await?;
        }
        match step(inner, want, &reading.bucket, terms) {
            Plan::Write(step) => steps.push(step),
            _ if !reading.may_refuse(now) => stale.push(want.clone()),
            Plan::Refuse(refusal) => refusals.push(refused(&want.entry.dimension, refusal)),
            Plan::NeverSatisfiable { capacity } => {
                let (dimension, cost) = (want.entry.dimension.clone(), want.cost);
                return Err(AcquireError::NeverSatisfiable { dimension, cost, capacity });
            }
        }
    }
    Ok(match longest(refusals) {
        Some(retry) => Plans::Refused(retry),
        None if stale.is_empty() => Plans::Steps(steps),
        None => Plans::Stale(stale),
    })
}

fn step(inner: &Inner, want: &Want, bucket: &Bucket, terms: Terms) -> Plan<Step> {
    let now = inner.now();
    let take = Take { cost: want.cost, now, patience: terms.patience };
    let has_lease = bucket.limit().is_concurrent() || inner.config.leases == Leases::All;
    let lease = has_lease.then(|| {
        let id = inner.config.lease_ids.next();
        let ends = now.after(terms.lease_for);
        id.map(|id| Lease::new(want.entry.dimension.clone(), &id, want.cost, now, ends, &inner.config.caller))
    });
    let lease = lease.flatten();
    if bucket.limit().is_concurrent() {
        match SlotPlanner::new(bucket).plan(take) {
            Plan::Write(update) => Plan::Write(Step { update, bucket: bucket.clone(), lease }),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    } else {
        match RatePlanner::new(bucket).plan_pinned(take) {
            Plan::Write(planned) => Plan::Write(Step { update: planned.update, bucket: planned.after, lease }),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    }
}

/// The buckets in the order of the steps, then the leases.
fn writes(steps: &[Step]) -> Vec<Write> {
    let updates = steps.iter().map(|step| Write::Update(step.update.clone()));
    let puts = steps.iter().filter_map(|step| step.lease.as_ref()).map(|lease| Write::Put(lease.put()));
    updates.chain(puts).collect()
}

fn granted(inner: &Inner, wants: &[Want], steps: Vec<Step>) -> Parts {
    let now = inner.now();
    let part = |(want, step): (&Want, Step)| match step.lease {
        Some(lease) if step.bucket.limit().is_concurrent() => {
            want.entry.predicted(step.bucket.after_taking(want.cost), now);
            Part::slots(&want.entry, want.cost, step.bucket, lease)
        }
        lease => {
            want.entry.predicted(step.bucket.clone(), now);
            Part::tokens(&want.entry, want.cost, RateReceipt::new(step.bucket, want.cost), now, lease)
        }
    };
    wants.iter().zip(steps).map(part).collect()
}

/// Takes in what the reasons of a cancellation say. True where they say that the transaction was applied before: a lease
/// under our own, unique id can only stem from a try whose reply was lost.
fn learn(inner: &Inner, wants: &[Want], steps: &[Step], reasons: &[Cancelled]) -> Result<bool, AcquireError> {
    if let Some(permanent) = reasons.iter().find(|cancelled| cancelled.reason.verdict == Verdict::Permanent) {
        return Err(AcquireError::Store(StoreError::Rejected {
            operation: "TransactWriteItems",
            table: inner.store.table().to_owned(),
            message: permanent.reason.message.clone(),
        }));
    }
    let failed = |cancelled: &Cancelled| cancelled.reason.verdict == Verdict::ConditionFailed;
    let (buckets, leases) = reasons.split_at(steps.len().min(reasons.len()));
    if !leases.is_empty() && leases.iter().all(failed) {
        return Ok(true);
    }
    for (want, cancelled) in wants.iter().zip(buckets).filter(|(_, cancelled)| failed(cancelled)) {
        match &cancelled.row {
            Some(row) => saw(inner, &want.entry, row)?,
            None => return Err(unknown(inner, &want.entry)),
        };
    }
    Ok(false)
}
