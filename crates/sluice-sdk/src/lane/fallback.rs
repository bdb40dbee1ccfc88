//! What is granted while DynamoDB is out, if anything: a share of each limit, counted in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{
    Bucket, Cost, Dimension, Factor, Plan, RatePlanner, RateReceipt, ShareName, SlotPlanner, Take, Timestamp,
};

use crate::api::basis::Basis;
use crate::api::refusal::{RetryIn, refused};
use crate::api::request::Ask;
use crate::config::OnUnavailable;
use crate::lane::inner::Inner;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::setback::Taken;
use crate::lane::unclaimed::UnclaimedGrant;

/// A line of a bucket: of a share, or the common one.
type LineKey = (Dimension, Option<ShareName>);

/// The process's own buckets. When an outage first needs one, it has its part of what the table was last seen to
/// have: what the process and others took just before counts. With as many processes as parts, their levels add up to
/// that of the table.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    /// Each with the number of returns of DynamoDB before its outage.
    buckets: Mutex<HashMap<LineKey, (u32, Bucket)>>,
    /// The last outage in which an answer was noted; zero for none.
    answered_in: AtomicU32,
}

impl Fallback {
    /// Returns the answer to `asks` while DynamoDB is out; `None` if the answer is the error.
    pub(crate) fn take(&self, inner: &Arc<Inner>, asks: &[Ask], patience: Duration) -> Option<Taken<UnclaimedGrant>> {
        let now = inner.now();
        match inner.config.on_unavailable {
            OnUnavailable::Error => None,
            OnUnavailable::Allow => {
                Some(Taken::Granted(UnclaimedGrant::local(Arc::clone(inner), Parts::new(), now, Basis::Unchecked)))
            }
            OnUnavailable::Share(factor) => self.take_share(inner, asks, factor, now, patience),
        }
    }

    /// Whether no answer was noted in this outage before: the one after so many returns.
    pub(crate) fn is_first_in(&self, returns: u32) -> bool {
        let outage = returns.wrapping_add(1);
        self.answered_in.swap(outage, Ordering::Relaxed) != outage
    }

    fn take_share(
        &self,
        inner: &Arc<Inner>,
        asks: &[Ask],
        factor: Factor,
        now: Timestamp,
        patience: Duration,
    ) -> Option<Taken<UnclaimedGrant>> {
        let outage = inner.store.returns();
        let mut buckets = self.buckets.lock();
        if buckets.len() >= inner.config.max_buckets {
            // One of an earlier outage begins anew, and a full bucket is the same as one that was never met.
            buckets.retain(|_, (of, bucket)| {
                goes_on(*of, bucket, outage) && bucket.level(now) < bucket.limit().capacity()
            });
        }
        let (mut taken, mut parts, mut refusal) = (Vec::new(), Parts::new(), None::<RetryIn>);
        for ask in asks {
            let entry = inner.entry_for(ask);
            // A share of an unknown limit cannot be computed: the caller gets the error.
            let reading = entry.reading()?;
            let limit = *reading.bucket.limit();
            let line = (ask.dimension.clone(), reading.bucket.share().cloned());
            let (share, of) = factor.ratio();
            // A share with no room for one call is no share: the caller gets the error.
            let limit_here = limit.share(share, of)?;
            let bucket = match buckets.get(&line) {
                Some((of, bucket)) if *bucket.limit() == limit_here && goes_on(*of, bucket, outage) => bucket.clone(),
                _ => reading.bucket.part(limit_here, now),
            };
            // The caller gets the error of the table, and after the outage that of its request.
            let cost = ask.cost_in(&limit).ok()?;
            match take_one(&bucket, Take { cost, now, patience }) {
                Plan::Write(after) => {
                    let start_at = RateReceipt::new(after.clone(), cost).start_at(now);
                    parts.push(Part {
                        entry,
                        cost,
                        start_at,
                        hold: Hold::Local,
                        used: None,
                        known_gone: false,
                        borrower: None,
                    });
                    taken.push((line, (outage, after)));
                }
                Plan::Refuse(refusal_of) => {
                    let retry = refused(&ask.dimension, refusal_of);
                    refusal = refusal.into_iter().chain([retry]).max_by_key(|retry| retry.wait);
                }
                Plan::NeverSatisfiable { .. } => return None,
            }
        }
        if let Some(retry) = refusal {
            return Some(Taken::Refused(retry));
        }
        buckets.extend(taken);
        Some(Taken::Granted(UnclaimedGrant::local(Arc::clone(inner), parts, now, Basis::LocalShare)))
    }

    /// Frees the slots of a holder that is done. Rate tokens stay spent.
    pub(crate) fn give_back(&self, dimension: &Dimension, cost: Cost) {
        let mut buckets = self.buckets.lock();
        // Slots have no shares.
        if let Some((_, bucket)) = buckets.get_mut(&(dimension.clone(), None))
            && bucket.limit().is_concurrent()
        {
            *bucket = bucket.after_giving_back(cost);
        }
    }
}

/// Whether a bucket of one outage is that of another: slots that are held through both stay taken.
const fn goes_on(of: u32, bucket: &Bucket, outage: u32) -> bool {
    of == outage || bucket.limit().is_concurrent()
}

fn take_one(bucket: &Bucket, take: Take) -> Plan<Bucket> {
    if bucket.limit().is_concurrent() {
        match SlotPlanner::new(bucket).plan(take) {
            Plan::Write(_) => Plan::Write(bucket.after_taking(take.cost)),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    } else {
        match RatePlanner::new(bucket).plan(take) {
            Plan::Write(planned) => Plan::Write(planned.after),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    }
}
