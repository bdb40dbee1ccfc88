//! What a lane of tokens does in a bucket with shares: it borrows, and lets other processes book.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Claim, Plan, RatePlanner, ShareName, Starts, Timestamp};

use super::{SentWrite, TokenBatch, TokenWaiter, write_of};
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::{last_start, lending};

/// The line that a write takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TakenFrom {
    Own,
    /// Another share's line, or the common line, and what stays there.
    Lender(Option<ShareName>, Amount),
}

impl TokenBatch<'_> {
    /// What a caller claims, and how much of its patience is left to callers of other processes. A bucket
    /// without shares costs what it did before there were shares.
    pub(super) fn claim(&self, waiter: &TokenWaiter, bucket: &Bucket) -> (Claim, Duration) {
        let claim = waiter.ask.claim();
        let left_to_others = match bucket.has_shares() && waiter.ask.terms.lets_others {
            true => last_start::left_to_others(&self.entry.extensions, claim.patience),
            false => Duration::ZERO,
        };
        (Claim { patience: claim.patience - left_to_others, ..claim }, left_to_others)
    }

    /// In a bucket with shares: the write for callers who need not wait, from their own line or from one that
    /// lends. `None` if the first of them has to be booked or refused, and for a bucket without shares.
    pub(super) fn plan_with_shares(
        &self,
        bucket: &Bucket,
        claims: &[Claim],
        now: Timestamp,
    ) -> Option<SentWrite> {
        if !bucket.has_shares() {
            return None;
        }
        let at_once: Vec<Claim> =
            claims.iter().map(|claim| Claim { patience: Duration::ZERO, ..*claim }).collect();
        let own = self.planner(bucket, now);
        // The own line first, and a call that it can never hold is not granted by others.
        let batch = own.plan_batch(&at_once, now, Starts::InReply, Amount::ZERO);
        match batch.answers.first() {
            Some(Plan::Refuse(_)) => {}
            // Those that do not fit stay for the next plan, which borrows for them, if a line lends.
            Some(Plan::Write(_)) => {
                let is_refused = |(answer, _): &(&Plan<_>, &Claim)| matches!(answer, Plan::Refuse(_));
                let (_, refused) = batch.answers.iter().zip(&at_once).find(is_refused)?;
                lending::lender(&self.entry.extensions, bucket, refused.cost, now)?;
                return write_of(batch, TakenFrom::Own, now);
            }
            Some(Plan::NeverSatisfiable { .. }) | None => return None,
        }
        let lent = lending::lender(&self.entry.extensions, bucket, at_once[0].cost, now)?;
        let expects_spent = self.line_of(lent.0.share()).expects_spent();
        let planner = RatePlanner::borrowing(&lent).expecting_spent(expects_spent);
        let batch = planner.plan_batch(&at_once, now, Starts::InReply, Amount::ZERO);
        let lender = TakenFrom::Lender(lent.0.share().cloned(), lent.1);
        if batch.total == Amount::ZERO { None } else { write_of(batch, lender, now) }
    }

    /// The refusals of callers whose starts are left to callers of other processes, if all are, as far as the
    /// process can tell without a request.
    pub(super) fn left_to_others(
        &self,
        reading: &BucketReading,
        claims: &[Claim],
        left_to_others: &[Duration],
        now: Timestamp,
    ) -> Option<Vec<Plan<Amount>>> {
        if left_to_others.iter().all(Duration::is_zero) {
            return None;
        }
        let (bucket, age) = (&reading.bucket, reading.age(now));
        let expected = |(claim, left): (&Claim, &Duration)| last_start::expected(*claim, *left, bucket, age);
        let claims: Vec<Claim> = claims.iter().zip(left_to_others).map(expected).collect();
        let batch = self.planner(bucket, now).plan_batch(&claims, now, Starts::InReply, Amount::ZERO);
        let all_wait = batch.answers.iter().all(|answer| matches!(answer, Plan::Refuse(_)));
        (all_wait && batch.answers.len() == claims.len()).then_some(batch.answers)
    }

    /// Notes what a write took of a line of a bucket with shares, and what others took meanwhile.
    pub(super) fn booked(&self, after: &Bucket, sent: &SentWrite, now: Timestamp) {
        if after.tokens() < sent.planned.after.tokens() {
            last_start::rival_seen(&self.entry.extensions);
        }
        let granted = self.waiters.iter().zip(&sent.sums_to_callers);
        let last = granted.rev().find(|(_, sum)| sum.is_some());
        if let Some((last, _)) = last.filter(|(last, _)| last.ask.terms.lets_others) {
            last_start::booked(&self.entry.extensions, last.ask.claim(), after, now);
        }
    }

    pub(super) fn line_of(&self, share: Option<&ShareName>) -> Arc<Entry> {
        self.inner.line_of(&self.entry.dimension, share)
    }
}
