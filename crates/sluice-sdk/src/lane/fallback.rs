//! What is granted while DynamoDB is out, if anything: a share of each limit, counted in this process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{
    Amount, Bucket, Cost, Dimension, Limit, Plan, RatePlanner, RateReceipt, Settle, ShareName, SlotPlanner, Take,
    Timestamp,
};

use crate::api::basis::Basis;
use crate::api::refusal::{RetryIn, refused};
use crate::api::request::Ask;
use crate::config::on_unavailable::OnUnavailable;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::in_parallel;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::setback::Taken;
use crate::lane::settle;
use crate::lane::unclaimed::UnclaimedGrant;

/// How long a process believes the number of processes that it saw before an outage. Its notes show it once a minute,
/// while it uses the bucket.
const PROCESSES_KNOWN_FOR: Duration = Duration::from_secs(60 * 60);

/// How often a process that granted something looks whether DynamoDB is there, of which one request alone failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A line of a bucket: of a share, or the common one.
type LineKey = (Dimension, Option<ShareName>);

/// The process's own buckets. When an outage first needs one, it has its part of what the table was last seen to
/// have: what the process and others took just before counts. With as many processes as parts, their levels add up to
/// that of the table. After the outage, what was granted here is taken from the table.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    buckets: Mutex<HashMap<LineKey, Local>>,
    /// The last outage in which an answer was noted; zero for none.
    answered_in: AtomicU32,
    /// The outage after which a task takes from the table what was granted here; zero for none.
    charged_after: AtomicU32,
    /// Lines of which the process would have nothing in an outage, each told once.
    without: Mutex<HashSet<LineKey>>,
}

/// A bucket of the process's own.
#[derive(Clone, Debug)]
struct Local {
    entry: Arc<Entry>,
    /// The number of returns of DynamoDB before its outage.
    outage: u32,
    bucket: Bucket,
    /// The same, if nothing had been granted.
    untouched: Bucket,
}

impl Local {
    /// Whether a bucket of one outage is that of another: slots that are held through both stay taken.
    fn goes_on(&self, outage: u32) -> bool {
        self.outage == outage || self.bucket.limit().is_concurrent()
    }

    /// What was granted and has not refilled.
    fn spent(&self, now: Timestamp) -> Option<Cost> {
        let spent = self.untouched.level(now).minus(self.bucket.level(now));
        (!self.bucket.limit().is_concurrent()).then(|| Cost::new(spent).ok()).flatten()
    }
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
            OnUnavailable::Share(_) | OnUnavailable::EqualShare => self.take_share(inner, asks, now, patience),
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
        now: Timestamp,
        patience: Duration,
    ) -> Option<Taken<UnclaimedGrant>> {
        let outage = inner.store.returns();
        let mut buckets = self.buckets.lock();
        if buckets.len() >= inner.config.max_buckets {
            // One of an earlier outage begins again, and a full bucket is the same as one that was never met.
            buckets
                .retain(|_, local| local.goes_on(outage) && local.bucket.level(now) < local.bucket.limit().capacity());
        }
        let (mut taken, mut parts, mut refusal) = (Vec::new(), Parts::new(), None::<RetryIn>);
        for ask in asks {
            let entry = inner.entry_for(ask);
            // A share of an unknown limit cannot be computed: the caller gets the error.
            let reading = entry.reading()?;
            let limit = *reading.bucket.limit();
            let line = (ask.dimension.clone(), reading.bucket.share().cloned());
            let known = buckets.get(&line).filter(|local| local.goes_on(outage));
            let local = match (known, share_of(inner, &entry, limit, now)) {
                (Some(local), Some(here)) if *local.bucket.limit() == here => local.clone(),
                // How many processes there are is not learned in an outage, and may be forgotten in a long one.
                (Some(local), None) => local.clone(),
                // A share with no room for one call is no share: the caller gets the error.
                (_, here) => {
                    let bucket = reading.bucket.part(here?, now);
                    Local { entry: Arc::clone(&entry), outage, untouched: bucket.clone(), bucket }
                }
            };
            // The caller gets the error of the table, and after the outage that of its request.
            let cost = ask.cost_in(&limit).ok()?;
            match take_one(&local.bucket, Take { cost, now, patience }) {
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
                    taken.push((line, Local { outage, bucket: after, ..local }));
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
        drop(buckets);
        self.charge_after(inner, outage);
        Some(Taken::Granted(UnclaimedGrant::local(Arc::clone(inner), parts, now, Basis::LocalShare)))
    }

    /// Computes the share as an outage would, outside of one: that there is none should be known before.
    pub(crate) fn check(&self, inner: &Inner, entry: &Entry, now: Timestamp) {
        if !matches!(inner.config.on_unavailable, OnUnavailable::Share(_) | OnUnavailable::EqualShare) {
            return;
        }
        let Some(reading) = entry.reading() else { return };
        let limit = *reading.bucket.limit();
        if share_of(inner, entry, limit, now).is_some() {
            return;
        }
        let line = (entry.dimension.clone(), reading.bucket.share().cloned());
        if self.without.lock().insert(line) {
            let (capacity, processes) = (limit.capacity(), entry.load.processes(PROCESSES_KNOWN_FOR, now));
            tracing::warn!(event = "unavailable.no_share", dimension = %entry.dimension, %capacity, ?processes,
                "if DynamoDB is out, calls of this dimension get the error: this process's share has no room for one \
                 call");
        }
    }

    /// Begins the task that takes from the table what was granted here, unless one waits for the end of this outage.
    fn charge_after(&self, inner: &Arc<Inner>, outage: u32) {
        let number = outage.wrapping_add(1);
        if self.charged_after.load(Ordering::Relaxed) == number {
            return;
        }
        let Some(runtime) = inner.background.runtime() else { return };
        self.charged_after.store(number, Ordering::Relaxed);
        inner.background.spawn(&runtime, charge(Arc::clone(inner), outage));
    }

    /// What was granted in an outage and has not refilled. It counts as charged from now on.
    fn spent_in(&self, outage: u32, now: Timestamp) -> Vec<(Arc<Entry>, Bucket, Cost)> {
        let mut buckets = self.buckets.lock();
        self.charged_after.store(0, Ordering::Relaxed);
        let of = |local: &Local| local.outage == outage && !local.bucket.limit().is_concurrent();
        let ended = buckets.extract_if(|_, local| of(local)).map(|(_, local)| local);
        ended.filter_map(|local| Some((Arc::clone(&local.entry), local.bucket.clone(), local.spent(now)?))).collect()
    }

    /// Frees the slots of a holder that is done. Rate tokens stay spent.
    pub(crate) fn give_back(&self, dimension: &Dimension, cost: Cost) {
        let mut buckets = self.buckets.lock();
        // Slots have no shares.
        if let Some(local) = buckets.get_mut(&(dimension.clone(), None))
            && local.bucket.limit().is_concurrent()
        {
            local.bucket = local.bucket.after_giving_back(cost);
        }
    }
}

/// What of a limit is this process's; `None` if that is not known, or has no room for one call.
fn share_of(inner: &Inner, entry: &Entry, limit: Limit, now: Timestamp) -> Option<Limit> {
    match inner.config.on_unavailable {
        OnUnavailable::Share(factor) => {
            let (share, of) = factor.ratio();
            limit.share(share, of)
        }
        OnUnavailable::EqualShare => limit.share(1, entry.load.processes(PROCESSES_KNOWN_FOR, now)?),
        OnUnavailable::Error | OnUnavailable::Allow => None,
    }
}

/// Waits until DynamoDB is there again, and takes from it what was granted in that outage and has not refilled: the
/// vendor counts those calls, and the table would grant as many again. What a client that is closed has not charged
/// refills.
async fn charge(inner: Arc<Inner>, outage: u32) {
    loop {
        tokio::select! {
            () = inner.store.returned(outage) => break,
            () = inner.background.closing() => return,
            () = tokio::time::sleep(LOOK_AGAIN) => if !inner.store.is_out() { break },
        }
    }
    let spent = inner.fallback.spent_in(outage, inner.now());
    let charges = spent.into_iter().map(|(entry, bucket, cost)| {
        let inner = Arc::clone(&inner);
        async move { charge_one(&inner, &entry, bucket, cost).await }
    });
    // What a runtime that ends does not charge refills.
    let _ = in_parallel(charges.collect()).await;
}

async fn charge_one(inner: &Arc<Inner>, entry: &Arc<Entry>, bucket: Bucket, spent: Cost) {
    let (dimension, amount) = (&entry.dimension, spent.amount());
    let settle =
        Settle { receipt: RateReceipt::new(bucket, spent), counted: amount, surplus: Amount::ZERO.minus(amount) };
    match settle::in_lane(inner, entry, settle).await {
        Ok(_) => tracing::debug!(event = "unavailable.charged", %dimension, spent = %amount),
        Err(error) => tracing::warn!(event = "unavailable.not_charged", %dimension, %error, spent = %amount,
            "the vendor may refuse as many calls"),
    }
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
