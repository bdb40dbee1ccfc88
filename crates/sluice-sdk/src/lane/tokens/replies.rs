//! What a reply to a write means for its callers, and what it shows of the line.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Form, RateReceipt, Timestamp};
use sluice_table::Item;

use super::shares::TakenFrom;
use super::{SentWrite, TokenBatch, TokenWaiter};
use crate::api::error::AcquireError;
use crate::lane::part::{Part, Parts};
use crate::lane::reading::parse;
use crate::lane::setback::Taken;
use crate::lane::unclaimed::{OriginLane, UnclaimedGrant};
use crate::lane::{full_guess, last_start, prefetch};
use crate::telemetry;

impl TokenBatch<'_> {
    /// Grants what the write took, in order. Callers that were passed over stay in the batch.
    pub(super) fn granted(&mut self, row: &Item, sent: &SentWrite) -> Result<(), AcquireError> {
        let mut after = Arc::new(parse(self.entry, row)?);
        let now = self.inner.now();
        self.entry.apply_write(Arc::clone(&after), now);
        self.booked(&after, sent, now);
        let lender = self.lent(row, sent, now)?.map(|(lender, line)| {
            after = line;
            lender
        });
        let took = sent.began.elapsed();
        if sent.prefetched > Amount::ZERO {
            prefetch::add(self.inner, self.entry, Arc::clone(&after), sent.prefetched, sent.now);
            self.lot = Some(Amount::ZERO);
        }
        let sums_to_callers = sent.sums_to_callers.iter().copied().chain(std::iter::repeat(None));
        for (waiter, sum_to_caller) in std::mem::take(&mut self.waiters).into_iter().zip(sums_to_callers) {
            let Some(sum_to_caller) = sum_to_caller else {
                self.waiters.push(waiter);
                continue;
            };
            let receipt =
                RateReceipt::in_batch(Arc::clone(&after), sent.total.minus(sum_to_caller), waiter.ask.cost);
            if let Some(lender) = &lender {
                let (share, lender) = (self.entry.share.as_ref(), lender.share.as_ref());
                telemetry::borrowed(self.entry.label(), share, lender, waiter.ask.cost.amount());
            }
            let part = match &lender {
                None => Part::tokens(self.entry, waiter.ask.cost, receipt, sent.now, None),
                Some(lender) => Part::borrowed(lender, self.entry, receipt, sent.now),
            };
            if let Some(stock) = &self.entry.stock {
                stock.granted(waiter.ask.cost);
            }
            self.grant(waiter, part, sent.now, took);
        }
        Ok(())
    }

    pub(super) fn grant(&mut self, waiter: TokenWaiter, part: Part, at: Timestamp, took: Duration) {
        let unclaimed = self.unclaimed(part, at, took);
        if waiter.is_left() {
            self.unclaimed_grants.push(unclaimed);
        } else {
            waiter.answer(Ok(Taken::Granted(unclaimed)));
        }
    }

    /// Notes what a failed write shows: whether the line was full, a line that had too little to lend, and a
    /// conflict if another process moved the anchor at the same time.
    pub(super) fn learn(&self, sent: &SentWrite, before: &Bucket, after: &Bucket, now: Timestamp) {
        if let TakenFrom::Lender(share, floor) = &sent.from {
            let line = after.clone().seen_from(share.as_ref());
            self.was_not_lent(&line, *floor, sent.planned.form, now);
            return;
        }
        let failed_at = self.inner.now();
        full_guess::note_failed_write(&self.entry.extensions, after, sent.planned.form, failed_at);
        if after.has_shares() && after.anchor() == before.anchor() && after.tokens() < before.tokens() {
            last_start::rival_seen(&self.entry.extensions);
        }
        let moves_anchor = sent.planned.form != Form::Spend || before.is_full(sent.now);
        if moves_anchor && after.anchor() != before.anchor() {
            self.entry.anchor_conflict(failed_at, failed_at.since(sent.now));
        }
    }

    fn unclaimed(&self, part: Part, at: Timestamp, took: Duration) -> UnclaimedGrant {
        let lane = OriginLane::Tokens(Arc::clone(&self.entry.tokens));
        UnclaimedGrant::new(Arc::clone(self.inner), Parts::from_buf([part]), at, took, Some(lane))
    }
}
