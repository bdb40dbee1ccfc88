//! Settling: a call is charged what it used, not what it was expected to use.

use std::sync::Arc;

use sluice_core::{Amount, CostError, Dimension, RatePlanner, Settle};
use sluice_table::{Resend, StoreError, Written};
use tokio::time::Instant;

use crate::api::error::AcquireError;
use crate::api::error_kind::ErrorKind;
use crate::api::quantity::Quantity;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::stopped;
use crate::lane::part::{Hold, Part};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, Service, Waiter};
use crate::lane::reading::{apply_read, known, unknown};
use crate::lane::{chunks, noted_use};
use crate::telemetry;

mod capped;

/// What settling a call did to its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The call used what it counted as: nothing was to be done.
    AsTaken,
    /// This amount went back: less than what was left over if the rest has refilled, or has no room below the
    /// capacity.
    Returned(Amount),
    /// This amount was taken in addition, below zero if necessary.
    Owed(Amount),
    /// The call used so much more than it had reserved that only a part was taken in addition: a debt ends at
    /// minus the capacity of the bucket. Most often the number counts another unit than the bucket.
    Capped {
        /// What was taken in addition.
        taken: Amount,
        /// What the call used beyond that.
        not_charged: Amount,
    },
}

/// Why a call could not be settled.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The grant took nothing from the dimension.
    #[error("the grant holds nothing of {0:?}: there is nothing to settle")]
    NotHeld(String),
    /// Slots come back by a release, whatever the call used.
    #[error("{0} is a concurrency limit, and there is nothing to settle: release the grant")]
    Concurrency(Dimension),
    /// The slot has ended: what its call used was settled then.
    #[error(
        "the slot has ended, and what its call used of {0} is settled: report the use before the closure returns"
    )]
    Ended(Dimension),
    /// The amount is below zero, or not a number.
    #[error("{used} cannot be what a call used of {dimension}: it must be 0 or a number above 0 ({source})")]
    Used {
        /// The dimension.
        dimension: Dimension,
        /// The amount as given.
        used: String,
        /// What is wrong with the amount.
        source: CostError,
    },
    /// Other writers were faster in every try; nothing was changed.
    #[error("settling {0} met a conflict in every try; nothing was changed")]
    Contended(Dimension),
    /// The error is about the bucket, its row, or the table.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl ErrorKind for SettleError {
    fn kind(&self) -> &'static str {
        "settle"
    }
}

impl SettleError {
    /// Whether the program has made no mistake: the bucket or the table failed.
    pub(crate) const fn is_of_table(&self) -> bool {
        matches!(self, Self::Contended(_) | Self::Acquire(_))
    }

    /// Whether the reason may be over soon: DynamoDB did not answer, or others were faster.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Contended(_) => true,
            Self::Acquire(AcquireError::Store(error)) => {
                error.is_unavailable() || matches!(error, StoreError::Contended { .. })
            }
            _ => false,
        }
    }

    /// Whether it is certain that nothing was changed, so that the settlement may be tried again.
    pub(super) fn is_without_effect(&self) -> bool {
        match self {
            Self::Acquire(AcquireError::Store(StoreError::Unavailable { maybe_applied, .. })) => {
                !maybe_applied
            }
            _ => true,
        }
    }
}

/// The lane of settlements: calls of one bucket that a process settles at the same time share a write.
pub(crate) type SettleLane = Lane<Settle, Result<Amount, SettleError>>;
type SettleWaiter = Waiter<Settle, Result<Amount, SettleError>>;

/// The most calls in one write.
const MOST_AT_ONCE: usize = 256;

pub(crate) fn parse(dimension: &str, used: &Quantity) -> Result<Amount, SettleError> {
    used.used().map_err(|source| match Dimension::new(dimension) {
        Ok(dimension) => SettleError::Used { dimension, used: used.to_string(), source },
        Err(_) => SettleError::NotHeld(dimension.to_owned()),
    })
}

/// Settles what was charged to the part. A failure is only logged: the call is over.
pub(crate) async fn settle_charged(inner: &Arc<Inner>, part: &mut Part) {
    let Some(used) = part.used.take() else { return };
    match settle_part(inner, part, used).await {
        Ok(settled) => tracing::debug!(event = "settle.ok", dimension = %part.entry.dimension, ?settled),
        Err(error) => tracing::warn!(event = "settle.failed", dimension = %part.entry.dimension, %error),
    }
}

pub(crate) async fn settle_part(
    inner: &Arc<Inner>,
    part: &mut Part,
    used: Amount,
) -> Result<Settled, SettleError> {
    let settled = settle_unmeasured(inner, part, used).await;
    if let Ok(Settled::Capped { taken, not_charged }) = settled {
        capped::warn(&part.entry, used, part.cost.amount(), taken, not_charged);
    }
    telemetry::settled(part.entry.label(), name_of(&settled));
    settled
}

/// The outcome of a settlement as metrics name it.
const fn name_of(settled: &Result<Settled, SettleError>) -> &'static str {
    match settled {
        Ok(Settled::AsTaken) => "as_taken",
        Ok(Settled::Returned(_)) => "returned",
        Ok(Settled::Owed(_)) => "owed",
        Ok(Settled::Capped { .. }) => "capped",
        Err(_) => "failed",
    }
}

async fn settle_unmeasured(
    inner: &Arc<Inner>,
    part: &mut Part,
    used: Amount,
) -> Result<Settled, SettleError> {
    let Hold::Tokens { receipt, counts, kept, is_settled, .. } = &mut part.hold else {
        return match part.hold {
            // A grant from the process's own share is not worth settling while DynamoDB is out.
            // A call that was let through took nothing.
            Hold::Local | Hold::LocalSlots(_) | Hold::LetThrough { .. } => Ok(Settled::AsTaken),
            _ => Err(SettleError::Concurrency(part.entry.dimension.clone())),
        };
    };
    *is_settled = true;
    let (counted, was_kept, mut surplus) = (*counts, *kept, counts.minus(used));
    if surplus == Amount::ZERO {
        return Ok(Settled::AsTaken);
    }
    if part.borrower.is_some() && surplus > Amount::ZERO {
        // No more than the lender still gives. What the borrower paid refills in its own line. It still
        // counts, so that it is not paid twice if a later settle says more again.
        surplus = was_kept.minus(used).max(Amount::ZERO);
        if surplus == Amount::ZERO {
            return Ok(Settled::Returned(Amount::ZERO));
        }
    }
    // From here on the call counts as settled: if the caller is dropped, the write goes on and must not be
    // sent again.
    let returned = surplus.max(Amount::ZERO);
    (*counts, *kept) = (counted.minus(surplus), was_kept.minus(returned));
    let settle = Settle { receipt: receipt.clone(), counted, surplus };
    // What was borrowed goes back to its lender; what was used beyond it is the borrower's.
    let entry =
        if surplus > Amount::ZERO { &part.entry } else { part.borrower.as_ref().unwrap_or(&part.entry) };
    match in_lane(inner, entry, settle).await {
        // What found no room, or was not charged, may be settled later.
        Ok(change) => {
            (*counts, *kept) = (counted.minus(change), was_kept.minus(change.max(Amount::ZERO)));
            noted_use::changed(inner, part.payer(), Amount::ZERO.minus(change));
            Ok(outcome(&part.entry, surplus, change))
        }
        Err(error) => {
            if error.is_without_effect() {
                (*counts, *kept) = (counted, was_kept);
            }
            Err(error)
        }
    }
}

/// What a change of the bucket means for a call that has `surplus`, or owes it if it is below zero.
fn outcome(entry: &Entry, surplus: Amount, change: Amount) -> Settled {
    if surplus > Amount::ZERO {
        return Settled::Returned(change);
    }
    let (taken, not_charged) = (change.abs(), change.minus(surplus));
    // A bucket that was recreated as another type is not in debt for the old one.
    let is_charged = not_charged == Amount::ZERO || entry.limit().is_some_and(|limit| limit.is_concurrent());
    if is_charged { Settled::Owed(taken) } else { Settled::Capped { taken, not_charged } }
}

/// Settles a call in the lane of its bucket. Returns the change of the bucket.
pub(super) async fn in_lane(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    settle: Settle,
) -> Result<Amount, SettleError> {
    let serve = |leader| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(entry), leader)) };
    let settled = entry.settles.give(|| settle.clone(), serve).await;
    settled.unwrap_or_else(|| Err(AcquireError::Store(stopped("UpdateItem")).into()))
}

async fn serve(inner: Arc<Inner>, entry: Arc<Entry>, leader: Leader<Settle, Result<Amount, SettleError>>) {
    let _serving = inner.background.token();
    let (inner, entry) = (&*inner, &*entry);
    let settle = |waiters, began| settle_together(inner, entry, waiters, began);
    let unsent = |waiter: SettleWaiter, error| waiter.answer(Err(AcquireError::from(error).into()));
    chunks::lead(leader, MOST_AT_ONCE, settle, unsent).await;
}

/// Answers all `waiters` of a batch that `began` then. Returns the error if DynamoDB is out, and the batch
/// has no time for one more attempt: all of its callers share the time of one request. A settlement is not
/// sent again after an ambiguous reply, so one lost reply is no outage.
async fn settle_together(
    inner: &Inner,
    entry: &Entry,
    waiters: Vec<SettleWaiter>,
    began: Instant,
) -> Result<(), StoreError> {
    let calls: Vec<Settle> = waiters.iter().map(|waiter| waiter.ask.clone()).collect();
    let error = match write(inner, entry, &calls).await {
        Ok(changes) => {
            waiters.into_iter().zip(changes).for_each(|(waiter, change)| waiter.answer(Ok(change)));
            return Ok(());
        }
        Err(error) => error,
    };
    waiters.into_iter().for_each(|waiter| waiter.answer(Err(error.clone())));
    match error {
        SettleError::Acquire(AcquireError::Store(error)) if error.is_unavailable() => {
            let is_over = began.elapsed() + inner.store.attempt().of_rows() > inner.store.longest_request();
            if is_over { Err(error) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

async fn write(inner: &Inner, entry: &Entry, calls: &[Settle]) -> Result<Vec<Amount>, SettleError> {
    let mut tries = inner.store.tries();
    while tries.another() {
        let bucket = known(inner, entry).await?.bucket;
        if bucket.limit().is_concurrent() {
            // The bucket was recreated as another type: what was taken from the old one is gone with it.
            return Ok(vec![Amount::ZERO; calls.len()]);
        }
        let now = inner.patient.time().await.map_err(AcquireError::from)?;
        let settling = RatePlanner::new(&bucket).settle(calls, inner.config.debt, now);
        let Some(update) = settling.write else { return Ok(settling.changes) };
        // Not idempotent: never sent again after an ambiguous reply.
        match inner.patient.update(&update, Resend::UnlessAmbiguous).await.map_err(AcquireError::from)? {
            Written::Applied(row) => {
                // A row that cannot be read is left to the next caller: this write is applied.
                let after = crate::lane::reading::parse(entry, &row);
                after.into_iter().for_each(|after| entry.apply_write(Arc::new(after), inner.now()));
                return Ok(settling.changes);
            }
            // At once, from the row as it was a moment ago: a pause would only make the row older.
            Written::ConditionFailed(Some(row)) => drop(apply_read(inner, entry, &row)?),
            Written::ConditionFailed(None) => return Err(unknown(inner, entry).into()),
        }
    }
    Err(SettleError::Contended(entry.dimension.clone()))
}
