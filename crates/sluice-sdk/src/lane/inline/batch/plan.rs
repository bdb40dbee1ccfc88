//! Which callers one write is for.

use sluice_core::{
    Bucket, Cost, InlineAnswer, InlinePlan, InlinePlanner, InlineTake, ReleaseAnswer, Serves, Timestamp,
};

use super::InlineBatch;
use crate::api::refusal::refused;
use crate::bucket::known::BucketReading;
use crate::lane::inline::{InlineAsk, InlineWaiter};
use crate::lane::turns::Look;

/// A plan, with the positions of the callers that it is for.
pub(super) struct InlineDraft {
    pub(super) plan: InlinePlan,
    pub(super) takes: Vec<usize>,
    pub(super) releases: Vec<usize>,
    /// Whether a caller that waits is left out because it is not its turn, and all takes behind it.
    pub(super) is_cut: bool,
    /// Whether a take passes over numbers of other processes.
    pub(super) passes_over: bool,
    pub(super) at: Timestamp,
}

impl InlineDraft {
    /// Whether the write takes slots and gives none back. A write that gives back is sent again as it is: it
    /// needs no reading.
    pub(super) fn only_takes(&self) -> bool {
        self.plan.takes.contains(&InlineAnswer::Granted) && self.plan.releases.is_empty()
    }

    pub(super) fn finds_leases_gone(&self) -> bool {
        self.plan.releases.contains(&ReleaseAnswer::Gone)
    }
}

/// Whether the bucket has so many slots at all.
fn fits(cost: Cost, bucket: &Bucket) -> bool {
    cost.amount() <= bucket.limit().capacity()
}

impl InlineBatch<'_> {
    /// How many of the callers that wait may take a slot now.
    fn are_next(&self, reading: &BucketReading, now: Timestamp) -> usize {
        let bucket = &reading.bucket;
        let wants = |waiter: &InlineWaiter| match &waiter.ask {
            InlineAsk::Take { cost, terms, .. } if terms.stays && fits(*cost, bucket) => Some(cost.amount()),
            _ => None,
        };
        let mut waiting = self.waiters.iter().filter_map(wants);
        let Some(cost) = waiting.next() else { return 0 };
        if bucket.blocked_until().is_some_and(|until| until > now) {
            // The refusal says how long.
            self.turns.rest();
            return usize::MAX;
        }
        let look = Look { began: self.began, age: reading.age(now) };
        self.turns.are_next(bucket, look, 1 + waiting.count(), cost, now)
    }

    /// `is_held`: DynamoDB has just come back. Those who hold leases that have ended may not know it yet.
    pub(super) fn plan(&self, reading: &BucketReading, now: Timestamp, is_held: bool) -> InlineDraft {
        let bucket = &reading.bucket;
        let mut planner = InlinePlanner::new(bucket);
        if is_held {
            planner = planner.without_taking_over();
        }
        let mut takes: Vec<(usize, InlineTake)> = Vec::new();
        let (mut releases, mut released) = (Vec::new(), Vec::new());
        let (are_next, mut waiting, mut is_cut) = (self.are_next(reading, now), 0, false);
        for (at, waiter) in self.waiters.iter().enumerate() {
            match &waiter.ask {
                // It learns at once that it can have no slot. As one of those that wait, it would have no
                // turn, and all behind it would wait for it.
                InlineAsk::Take { cost, .. } if is_cut && fits(*cost, bucket) => {}
                InlineAsk::Take { cost, terms, .. }
                    if terms.stays && waiting == are_next && fits(*cost, bucket) =>
                {
                    is_cut = true;
                }
                InlineAsk::Take { id, cost, borrows, terms, .. } => {
                    let ends = now.after(terms.lease);
                    let mut serves = Serves::default();
                    if terms.stays && fits(*cost, bucket) {
                        serves = self.turns.serves(bucket, waiting, cost.amount(), now);
                        waiting += 1;
                    }
                    let (id, borrows) = (id.clone(), borrows.clone());
                    takes.push((at, InlineTake { id, cost: *cost, ends, serves, borrows }));
                }
                InlineAsk::Release { lease, .. } => {
                    releases.push(at);
                    released.push(lease.clone());
                }
            }
        }
        let (mut of, mut wanted): (Vec<usize>, Vec<InlineTake>) = takes.into_iter().unzip();
        let mut plan = planner.plan(&wanted, &released, now);
        // First come, first served: nobody is granted a slot before an earlier caller that waits for one.
        let is_waiting = |(at, answer): &(usize, &InlineAnswer)| match answer {
            InlineAnswer::Refused(refusal) => {
                let retry = refused(&self.entry.dimension, *refusal);
                self.waiters[of[*at]].ask.patience(self.inner).waits_for(&retry)
            }
            _ => false,
        };
        let first = plan.takes.iter().enumerate().find(is_waiting).map(|(at, _)| at);
        if let Some(first) = first.filter(|first| plan.takes[*first..].contains(&InlineAnswer::Granted)) {
            of.truncate(first + 1);
            wanted.truncate(first + 1);
            plan = planner.plan(&wanted, &released, now);
        }
        let taken = wanted.iter().zip(&plan.takes).filter(|(_, answer)| **answer == InlineAnswer::Granted);
        let passes_over = taken.into_iter().any(|(take, _)| take.serves.passes_over);
        InlineDraft { plan, takes: of, releases, is_cut, passes_over, at: now }
    }
}
