//! What a reply to a transaction means for its callers.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{CancellationCause, Cost, RateReceipt};
use sluice_table::{Cancelled, StoreError};

use super::RowBatch;
use crate::api::error::AcquireError;
use crate::lane::part::{Part, Parts};
use crate::lane::reading::{apply_read, unknown};
use crate::lane::round::Step;
use crate::lane::rows::transaction::{AppliedCaller, SentTransaction};
use crate::lane::rows::{RowAsk, RowWaiter};
use crate::lane::setback::Taken;
use crate::lane::unclaimed::{OriginLane, UnclaimedGrant};

impl RowBatch<'_> {
    /// Grants what the transaction took. Callers that were passed over stay in the batch.
    pub(super) fn granted(&mut self, sent: &SentTransaction, took: Duration) -> Step {
        for ((entry, after), total) in self.entries.iter().zip(&sent.after).zip(&sent.totals) {
            match (after.limit().is_concurrent(), Cost::new(*total)) {
                (true, Ok(total)) => entry.slots_taken(total),
                (true, Err(_)) => {}
                (false, _) => entry.predicted(Arc::clone(after)),
            }
            entry.look_near(self.inner.now());
        }
        let everyone = sent.served.iter().map(AppliedCaller::now).collect();
        self.hand_out(sent, everyone, took)
    }

    /// Answers the callers of `sent` that were granted. A lease that has ended counts as a failed try.
    fn hand_out(&mut self, sent: &SentTransaction, applied: Vec<AppliedCaller<'_>>, took: Duration) -> Step {
        let (now, mut came_late) = (self.inner.store.clock().known(), false);
        let mut waiters: Vec<Option<RowWaiter>> =
            std::mem::take(&mut self.waiters).into_iter().map(Some).collect();
        for applied in applied {
            let Some(mut waiter) = waiters[applied.caller.waiter].take() else { continue };
            let parts: Parts = self.parts(sent, &applied, &waiter.ask).collect();
            // What was borrowed goes back if its caller left: the lease names the borrower.
            let lane = (!waiter.ask.borrows()).then(|| OriginLane::Rows(Arc::clone(self.lane)));
            let unclaimed = UnclaimedGrant::new(Arc::clone(self.inner), parts, sent.now, took, lane);
            if !applied.lives_at(now) {
                // For example, the process was frozen, or learned of the lease only after the lease had
                // ended. The grant goes back, and its caller asks again.
                came_late = true;
                drop(unclaimed);
                waiter.ask.ids.iter_mut().for_each(|id| *id = self.inner.config.lease_ids.next());
                waiters[applied.caller.waiter] = Some(waiter);
                continue;
            }
            match waiter.is_left() {
                true => self.unclaimed_grants.push(unclaimed),
                false => waiter.answer(Ok(Taken::Granted(unclaimed))),
            }
        }
        self.waiters = waiters.into_iter().flatten().collect();
        if came_late { Step::Overtaken } else { Step::Served }
    }

    fn parts(
        &self,
        sent: &SentTransaction,
        applied: &AppliedCaller<'_>,
        ask: &RowAsk,
    ) -> impl Iterator<Item = Part> {
        (0..self.entries.len()).map(|at| {
            let (entry, cost, after) = (&self.entries[at], ask.costs[at], Arc::clone(&sent.after[at]));
            match (&applied.leases[at], after.limit().is_concurrent()) {
                (Some(lease), true) => Part::slots(entry, cost, after, lease.clone()),
                (lease, _) => {
                    let behind = sent.totals[at].minus(applied.caller.sums_to_caller[at]);
                    Part::tokens(
                        entry,
                        cost,
                        RateReceipt::foreseen(after, behind, cost),
                        sent.now,
                        lease.clone(),
                    )
                }
            }
        })
    }

    /// Learns from the reasons of a cancellation. A lease under an id of our own can only come from a try
    /// whose reply was lost: it was applied, and its callers are granted.
    pub(super) fn learn(
        &mut self,
        sent: &SentTransaction,
        reasons: &[Cancelled],
        took: Duration,
    ) -> Result<Step, AcquireError> {
        if let Some(permanent) =
            reasons.iter().find(|cancelled| cancelled.reason.cause == CancellationCause::Permanent)
        {
            return Err(AcquireError::Store(StoreError::Rejected {
                operation: "TransactWriteItems",
                table: self.inner.store.table().to_owned(),
                message: permanent.reason.message.clone(),
            }));
        }
        let failed = |cancelled: &Cancelled| cancelled.reason.cause == CancellationCause::ConditionFailed;
        let (buckets, mut leases) = reasons.split_at(self.entries.len().min(reasons.len()));
        let mut theirs = Vec::new();
        for caller in &sent.served {
            let (own, rest) = leases.split_at(caller.leases.iter().flatten().count().min(leases.len()));
            leases = rest;
            if own.iter().any(failed) {
                theirs.push(AppliedCaller::before(caller, own));
            }
        }
        if !theirs.is_empty() {
            let step = self.hand_out(sent, theirs, took);
            // The next plan reads what the buckets are now.
            self.entries.iter().for_each(|entry| entry.doubt());
            return Ok(step);
        }
        for (entry, cancelled) in self.entries.iter().zip(buckets).filter(|(_, cancelled)| failed(cancelled))
        {
            match &cancelled.row {
                Some(row) => apply_read(self.inner, entry, row)?,
                None => return Err(unknown(self.inner, entry)),
            };
        }
        let transient = reasons.iter().any(|cancelled| cancelled.reason.cause.is_transient());
        Ok(if transient { Step::Held } else { Step::Overtaken })
    }
}
