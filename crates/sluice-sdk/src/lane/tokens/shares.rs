//! What a lane of tokens does in a bucket with shares: it borrows, and lets other processes book.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Amount, Bucket, Claim, Form, Plan, RatePlanner, Reason, ShareName, Starts, Timestamp};
use sluice_table::Item;

use super::{SentWrite, TokenBatch, TokenWaiter, write_of};
use crate::api::error::AcquireError;
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::lending::Shown;
use crate::lane::reading::parse;
use crate::lane::{full_guess, last_start, lending, look_first};

/// The line that a write takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TakenFrom {
    Own,
    /// Another share's line, or the common line, and what stays there.
    Lender(Option<ShareName>, Amount),
}

/// The entry of a line that lent, and the line as the reply shows it.
type LenderSeen = (Arc<Entry>, Arc<Bucket>);

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
        reading: &BucketReading,
        claims: &[Claim],
        now: Timestamp,
    ) -> Option<SentWrite> {
        let bucket = &reading.bucket;
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
            // Those that do not fit stay for the next plan, which borrows for them, if a line lends. So do all
            // of them if the own line only seems full: the write then fails, and shows the row.
            Some(Plan::Write(_)) => {
                let is_refused = |(answer, _): &(&Plan<_>, &Claim)| matches!(answer, Plan::Refuse(_));
                let refused =
                    batch.answers.iter().zip(&at_once).find(is_refused).map(|(_, claim)| claim.cost);
                let is_guess = self.expects_spent(bucket) && bucket.is_full(now);
                let cost = refused.or(is_guess.then_some(at_once[0].cost))?;
                lending::lender(&self.entry.extensions, reading, cost, now)?;
                return write_of(batch, TakenFrom::Own, now);
            }
            Some(Plan::NeverSatisfiable { .. }) | None => return None,
        }
        let lender = lending::lender(&self.entry.extensions, reading, at_once[0].cost, now)?;
        let planner = RatePlanner::borrowing(&lender).expecting_spent(self.expects_spent(lender.line()));
        let batch = planner.plan_batch(&at_once, now, Starts::InReply, Amount::ZERO);
        let lender = TakenFrom::Lender(lender.line().share().cloned(), lender.floor());
        if batch.total == Amount::ZERO { None } else { write_of(batch, lender, now) }
    }

    /// Whether others have most likely spent from this line since a reading that says that it is full.
    pub(super) fn expects_spent(&self, line: &Bucket) -> bool {
        !self.has_seen_row && full_guess::expects_spent(&self.entry.extensions, line)
    }

    /// The refusals of all callers, if each leaves its start to other processes and the last reading is
    /// enough to refuse it. `None` if a request is needed.
    pub(super) fn refused_from_memory(
        &self,
        reading: &BucketReading,
        claims: &[Claim],
        left_to_others: &[Duration],
        now: Timestamp,
    ) -> Option<Vec<Plan<Amount>>> {
        if reading.is_doubted() {
            return None;
        }
        let (bucket, age) = (&reading.bucket, reading.age(now));
        let judged =
            |(claim, left): (&Claim, &Duration)| last_start::claim_from_memory(*claim, *left, bucket, age);
        let claims: Vec<Claim> = claims.iter().zip(left_to_others).map(judged).collect::<Option<_>>()?;
        let batch = self.planner(bucket, now).plan_batch(&claims, now, Starts::InReply, Amount::ZERO);
        let waits =
            |answer: &Plan<_>| matches!(answer, Plan::Refuse(refusal) if refusal.reason == Reason::Exhausted);
        let all_wait = batch.answers.len() == claims.len() && batch.answers.iter().all(waits);
        (all_wait && batch.write.is_none()).then_some(batch.answers)
    }

    /// Notes what a write took of the own line, if the bucket has shares, and what others took meanwhile.
    pub(super) fn booked(&self, after: &Bucket, sent: &SentWrite, now: Timestamp) {
        if !after.has_shares() || sent.from != TakenFrom::Own {
            return;
        }
        if after.tokens() < sent.planned.after.tokens() {
            last_start::rival_seen(&self.entry.extensions);
        }
        let granted = self.waiters.iter().zip(&sent.sums_to_callers);
        let last = granted.rev().find(|(_, sum)| sum.is_some());
        if let Some((last, _)) = last.filter(|(last, _)| last.ask.terms.lets_others) {
            last_start::booked(&self.entry.extensions, last.ask.claim(), after, now);
        }
    }

    /// The line that a write borrowed from, as its reply shows it; `None` if it took from the own line.
    pub(super) fn lent(
        &self,
        row: &Item,
        sent: &SentWrite,
        now: Timestamp,
    ) -> Result<Option<LenderSeen>, AcquireError> {
        let TakenFrom::Lender(share, floor) = &sent.from else { return Ok(None) };
        // By the reply the bucket has the share, whatever an older reading of the common line says.
        let lender = self.inner.line_of(&self.entry.dimension, share.as_ref());
        let after = Arc::new(parse(&lender, row)?);
        lender.apply_write(Arc::clone(&after), now);
        self.note_look(&after, *floor, sent.total, sent.now);
        Ok(Some((lender, after)))
    }

    /// Notes what a failed write of a borrower shows: a line that had too little to lend.
    pub(super) fn was_not_lent(&self, line: &Bucket, floor: Amount, form: Form, now: Timestamp) {
        full_guess::note_failed_write(&self.entry.extensions, line, form, self.inner.now());
        // The write also fails if the owner's write found the line full and moved its anchor, or if the line
        // has enough for the first caller but not for all. In both cases it has something to lend.
        match self.lends_too_little(line, floor, now) {
            true => self.note_look(line, floor, Amount::ZERO, now),
            false => lending::ask_again(&self.entry.extensions, line.share(), now),
        }
    }

    /// Whether a read has to show first that there is something to take: the write would most likely fail.
    pub(super) fn looks_first(&self, sent: &SentWrite, reading: &BucketReading, now: Timestamp) -> bool {
        if self.has_seen_row || !reading.bucket.has_shares() {
            return false;
        }
        // A write that takes nothing repairs the anchor, and is sent once.
        let taken = self.waiters.iter().zip(&sent.sums_to_callers).find(|(_, sum)| sum.is_some());
        let Some((first, _)) = taken.filter(|_| sent.total > Amount::ZERO) else { return false };
        let (of_line, cost) = (&self.entry.extensions, first.ask.cost);
        match &sent.from {
            // A caller that waits books.
            TakenFrom::Own if !first.ask.terms.patience().is_zero() => false,
            TakenFrom::Own => look_first::is_most_likely_gone(of_line, reading, cost, now),
            TakenFrom::Lender(_, floor) => {
                let line = &sent.planned.after;
                lending::finds_little(of_line, Shown { line, floor: *floor, took: Amount::ZERO, cost })
            }
        }
    }

    /// Notes what a read showed of a lender that has too little. If it has enough, the write that follows
    /// says more.
    pub(super) fn was_read(&self, from: &TakenFrom, row: &Bucket, now: Timestamp) {
        let TakenFrom::Lender(share, floor) = from else { return };
        let line = row.clone().seen_from(share.as_ref());
        if self.lends_too_little(&line, *floor, now) {
            self.note_look(&line, *floor, Amount::ZERO, now);
        }
    }

    /// Whether the line does not lend what the first caller asks for.
    fn lends_too_little(&self, line: &Bucket, floor: Amount, now: Timestamp) -> bool {
        let least = self.waiters.first().map_or(Amount::ZERO, |first| first.ask.cost.amount());
        line.level(now).minus(floor) < least
    }

    fn note_look(&self, line: &Bucket, floor: Amount, took: Amount, now: Timestamp) {
        let Some(first) = self.waiters.first() else { return };
        lending::note_look(&self.entry.extensions, Shown { line, floor, took, cost: first.ask.cost }, now);
    }
}
