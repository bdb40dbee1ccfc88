//! What the callers are told that were not granted.

use sluice_core::{Amount, Plan, Timestamp};

use super::RowBatch;
use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, longest};
use crate::bucket::known::BucketReading;
use crate::lane::contended::Contended;
use crate::lane::queue::stay;
use crate::lane::rows::transaction::judge;
use crate::lane::rows::{RowAsk, RowWaiter};
use crate::lane::setback::Setback;
use crate::lane::slot_wait;

impl RowBatch<'_> {
    /// Answers why nobody was granted, by readings of this round or young enough to refuse.
    pub(super) fn answer_refused(&mut self, readings: &[BucketReading], now: Timestamp) {
        let shares = self.shares(readings, now);
        let mut moved_on = None;
        for waiter in std::mem::take(&mut self.waiters) {
            match judge(&shares, &waiter.ask, now) {
                Err(refusals) => match self.never(&refusals, &waiter.ask) {
                    Some(error) => waiter.answer(Err(error)),
                    None => {
                        let retries = self.retries(&refusals, &waiter.ask);
                        self.report_full(&waiter, &retries);
                        let why = longest(retries).map(Setback::Refused);
                        if waiter.ask.terms.moves_on && waiter.ask.terms.stays {
                            self.entries[0].extensions.of::<Contended>().note_waiter();
                            moved_on = moved_on.or_else(|| why.clone());
                        }
                        self.refuse(waiter, &why.unwrap_or_else(|| self.overtaken()));
                    }
                },
                // The request would fit, but stands behind a caller that waits.
                Ok(_) => {
                    let why = self.waiting.as_ref().map(|(_, why)| why.clone()).or_else(|| moved_on.clone());
                    self.refuse(waiter, &why.unwrap_or_else(|| self.overtaken()));
                }
            }
        }
    }

    pub(super) fn retry(&self, refusals: &[Plan<Amount>], ask: &RowAsk) -> Option<RetryIn> {
        longest(self.retries(refusals, ask))
    }

    fn retries(&self, refusals: &[Plan<Amount>], ask: &RowAsk) -> Vec<RetryIn> {
        let each = self.entries.iter().zip(refusals).zip(&ask.costs);
        let refused = each.filter_map(|((entry, plan), cost)| match plan {
            Plan::Refuse(refusal) => {
                Some(slot_wait::refusal(self.inner, entry, *cost, ask.terms.stays, *refusal))
            }
            _ => None,
        });
        refused.collect()
    }

    /// Reports each full bucket, not only the one that the caller's refusal names.
    fn report_full(&self, waiter: &RowWaiter, retries: &[RetryIn]) {
        for retry in retries {
            let Some(entry) = self.entries.iter().find(|entry| entry.dimension == retry.dimension) else {
                continue;
            };
            match waiter.ask.terms.queue_patience(self.inner.config.on_unavailable).waits_for(retry) {
                // Nobody heals at once: its process may be the first to find the end of an outage.
                _ if waiter.ask.terms.is_running => {}
                true => self.inner.waits(entry, retry),
                false => self.inner.refused(entry, retry),
            }
        }
    }

    fn never(&self, refusals: &[Plan<Amount>], ask: &RowAsk) -> Option<AcquireError> {
        self.entries.iter().zip(refusals).zip(&ask.costs).find_map(|((entry, plan), cost)| match plan {
            Plan::NeverSatisfiable { capacity } => {
                let (dimension, cost, capacity) = (entry.dimension.clone(), *cost, *capacity);
                Some(AcquireError::NeverSatisfiable { dimension, cost, capacity, share: entry.line() })
            }
            _ => None,
        })
    }

    pub(super) fn refuse(&mut self, waiter: RowWaiter, why: &Setback) {
        match why.is_waited_out(waiter.ask.terms.queue_patience(self.inner.config.on_unavailable)) {
            true => stay(&mut self.waiting, waiter, why),
            false => waiter.answer(why.clone().answer()),
        }
    }

    pub(super) fn overtaken(&self) -> Setback {
        Setback::overtaken(&self.entries[0].dimension)
    }
}
