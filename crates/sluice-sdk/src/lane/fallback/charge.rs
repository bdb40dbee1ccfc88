//! After an outage: tokens that the process granted by itself are taken from the table. The vendor counts
//! those calls, and the table would grant as many again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_core::{Amount, Cost, RatePlanner, RateReceipt, Settle, Timestamp};
use sluice_table::{HeardSince, Resend, Written};
use tokio::time::sleep;

use super::{Fallback, LineKey, Local, hold};
use crate::api::error::AcquireError;
use crate::config::on_unavailable::OnUnavailable;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::in_parallel_here;
use crate::lane::reading::{apply_read, known, parse, unknown};
use crate::lane::settle::{self, SettleError};

/// How often the task looks whether DynamoDB answers, of which single requests failed: nobody says so.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many buckets are charged at once. All processes charge within the [`hold`]: a larger number charges
/// more buckets in it, and sends more requests to a table that has just come back.
const SIDE_BY_SIDE: usize = 32;

/// The task, one for a client. It does not keep the client: what a client that is closed or dropped has not
/// charged refills. If its runtime ends, the next grant begins another.
struct Charge {
    inner: Weak<Inner>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.fallback.is_charging.store(false, Ordering::Release);
        }
    }
}

/// Begins the task, if something is to be charged and there is none.
pub(crate) fn begin(inner: &Arc<Inner>) {
    if !inner.fallback.has_to_charge() {
        return;
    }
    let Some(runtime) = inner.background.runtime() else { return };
    if !inner.fallback.is_charging.swap(true, Ordering::AcqRel) {
        inner.background.spawn(&runtime, Charge { inner: Arc::downgrade(inner) }.run());
    }
}

impl Charge {
    async fn run(self) {
        while self.is_answered().await {
            let Some(inner) = self.inner.upgrade() else { return };
            charge_all(&inner).await;
            if inner.fallback.is_charged() {
                return;
            }
        }
    }

    /// Waits until DynamoDB answers. False if the client is gone, or about to be.
    async fn is_answered(&self) -> bool {
        loop {
            let Some(inner) = self.inner.upgrade() else { return false };
            let (heard, returns) = (inner.store.heard(), inner.store.returns());
            tokio::select! {
                () = inner.store.returned(returns) => return true,
                () = inner.background.closing() => return false,
                () = sleep(LOOK_AGAIN) => {
                    if !inner.store.is_out() && inner.store.heard_since(heard) == HeardSince::Answered {
                        return true;
                    }
                }
            }
        }
    }
}

/// Charges what all buckets of the process have granted, within the [`hold`].
async fn charge_all(inner: &Arc<Inner>) {
    let mut spent = inner.fallback.take_spent(inner, inner.now()).into_iter();
    loop {
        let some: Vec<_> = spent.by_ref().take(SIDE_BY_SIDE).collect();
        if some.is_empty() {
            return;
        }
        let charges = some.into_iter().map(|(line, local, amount)| {
            Box::pin(async move { charge(inner, local, amount).await.map(|local| (line, local)) })
        });
        let left = in_parallel_here(charges.collect()).await.into_iter().flatten().collect();
        inner.fallback.put_back(left, inner.store.returns(), inner.now());
    }
}

/// Takes `cost` from the table, for what a bucket of the process has granted. Returns the bucket if that
/// failed without effect and may be tried again.
async fn charge(inner: &Arc<Inner>, local: Local, cost: Cost) -> Option<Local> {
    let (dimension, spent) = (&local.entry.dimension, cost.amount());
    let charged = match inner.config.on_unavailable {
        // It was a part of all lines.
        OnUnavailable::EqualShare => charge_whole(inner, &local.entry, spent).await,
        _ => {
            // As a call that has used all that it may beyond what it reserved: the cap on debts holds.
            let counted = spent.plus(spent);
            let receipt = RateReceipt::new(local.bucket.clone(), cost);
            let settle = Settle { receipt, counted, surplus: Amount::ZERO.minus(spent) };
            settle::in_lane(inner, &local.entry, settle).await
        }
    };
    match charged {
        Ok(change) => {
            tracing::debug!(event = "unavailable.charged", %dimension, %spent, charged = %change.abs());
            None
        }
        Err(error) if may_try_again(&error) => Some(local),
        Err(error) => {
            tracing::warn!(event = "unavailable.not_charged", %dimension, %error, %spent,
                "the vendor may refuse as many calls");
            None
        }
    }
}

/// Takes what a part of the whole limit granted from all lines of its bucket. Charged to its own line, it
/// could be more than that line may owe, and the others would grant it again. Returns what was taken: less if
/// the cap on debts is reached.
async fn charge_whole(inner: &Inner, entry: &Entry, spent: Amount) -> Result<Amount, SettleError> {
    let mut tries = inner.store.tries();
    while tries.another() {
        let bucket = known(inner, entry).await?.bucket;
        if bucket.limit().is_concurrent() {
            return Ok(Amount::ZERO);
        }
        let now = inner.patient.time().await.map_err(AcquireError::from)?;
        let charge = RatePlanner::new(&bucket).charge_whole(spent, inner.config.debt, now);
        let Some((amount, update)) = charge else { return Ok(Amount::ZERO) };
        // Not idempotent: never sent again after an ambiguous reply.
        match inner.patient.update(&update, Resend::UnlessAmbiguous).await.map_err(AcquireError::from)? {
            Written::Applied(row) => {
                let after = parse(entry, &row);
                after.into_iter().for_each(|after| entry.apply_write(Arc::new(after), inner.now()));
                return Ok(amount);
            }
            Written::ConditionFailed(Some(row)) => drop(apply_read(inner, entry, &row)?),
            Written::ConditionFailed(None) => return Err(unknown(inner, entry).into()),
        }
    }
    Err(SettleError::Contended(entry.dimension.clone()))
}

/// Whether nothing was changed, for a reason that passes.
fn may_try_again(error: &SettleError) -> bool {
    error.is_without_effect() && error.is_passing()
}

impl Fallback {
    /// Removes the buckets of rate limits, and returns those of which something is to be charged, and how
    /// much: what was granted and has not refilled, and the addition of the [`hold`].
    fn take_spent(&self, inner: &Inner, now: Timestamp) -> Vec<(LineKey, Local, Cost)> {
        let ended = std::mem::take(&mut *self.buckets.lock());
        let to_charge = ended.into_iter().filter_map(|(line, local)| {
            let spent = local.spent(now).map_or(Amount::ZERO, Cost::amount);
            let addition = hold::addition(&inner.store, inner.config.on_unavailable, local.bucket.limit());
            Some((line, local, Cost::new(spent.plus(addition)).ok()?))
        });
        to_charge.collect()
    }

    /// Puts buckets back whose charge failed: their grants count from now on, too.
    fn put_back(&self, left: Vec<(LineKey, Local)>, outage: u32, now: Timestamp) {
        let mut buckets = self.buckets.lock();
        for (line, local) in left {
            let local = match buckets.remove(&line) {
                Some(newer) => newer.with_spent_of(&local, now),
                None => Local { outage, ..local },
            };
            buckets.insert(line, local);
        }
    }

    fn has_to_charge(&self) -> bool {
        !self.buckets.lock().is_empty()
    }

    /// Whether nothing is left to charge. Whoever grants something from now on begins another task.
    fn is_charged(&self) -> bool {
        let buckets = self.buckets.lock();
        let is_charged = buckets.is_empty();
        if is_charged {
            self.is_charging.store(false, Ordering::Release);
        }
        is_charged
    }
}
