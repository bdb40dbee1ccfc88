//! What is granted while DynamoDB is out, if anything: a share of each limit, counted in this process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{
    Bucket, Cost, Dimension, Limit, Plan, RatePlanner, RateReceipt, ShareName, SlotPlanner, Take, Timestamp,
};

use crate::api::basis::Basis;
use crate::api::refusal::{RetryIn, refused};
use crate::api::request::{Ask, Payer};
use crate::config::on_unavailable::OnUnavailable;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::once_an_outage::OnceAnOutage;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::setback::Taken;
use crate::lane::unclaimed::UnclaimedGrant;

pub(crate) mod charge;
pub(crate) mod hold;

/// A line of a bucket: of a share, or the common one.
type LineKey = (Dimension, Option<ShareName>);

/// The most lines that are told to have no share: names may come from input.
const MOST_TOLD: usize = 100;

/// The process's own buckets. When an outage first needs one, it has its part of what the table was last seen
/// to have: what the process and others took just before counts. With as many processes as parts, their
/// levels add up to that of the table. After the outage, what was granted here is taken from the table
/// ([`charge`]).
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    buckets: Mutex<HashMap<LineKey, Local>>,
    /// An answer of an outage was logged.
    pub(super) logged: OnceAnOutage,
    /// Whether a task waits for DynamoDB, to charge what was granted.
    is_charging: AtomicBool,
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
    /// The process's part of what the table was last seen to have.
    fn new(entry: &Arc<Entry>, outage: u32, part: Bucket) -> Self {
        Self { entry: Arc::clone(entry), outage, untouched: part.clone(), bucket: part }
    }

    /// Whether a bucket of one outage is that of another: slots that are held through both stay taken.
    fn goes_on(&self, outage: u32) -> bool {
        self.outage == outage || self.bucket.limit().is_concurrent()
    }

    /// What was granted and has neither refilled nor come back.
    fn spent(&self, now: Timestamp) -> Option<Cost> {
        Cost::new(self.untouched.level(now).minus(self.bucket.level(now))).ok()
    }

    /// The same, with what another of the same line has granted.
    fn with_spent_of(mut self, other: &Self, now: Timestamp) -> Self {
        if let Some(spent) = other.spent(now) {
            self.bucket = self.bucket.after_taking(spent);
        }
        self
    }

    /// Frees slots. Never more than there are: the limit may have been another when they were taken.
    fn give_back(&mut self, cost: Cost) {
        let after = self.bucket.after_giving_back(cost);
        self.bucket = if after.tokens() <= after.limit().capacity() { after } else { self.untouched.clone() };
    }
}

/// What of a limit is this process's.
enum Share {
    Of(Limit),
    /// It is not known how many processes there are.
    Unknown,
    /// Nothing: it has no room for one call.
    None,
}

impl Share {
    fn new(inner: &Inner, entry: &Entry, bucket: &Bucket, now: Timestamp) -> Self {
        let part = match inner.config.on_unavailable {
            OnUnavailable::Share(factor) => {
                let (share, of) = factor.ratio();
                bucket.limit().share(share, of)
            }
            // The processes of all lines are counted together: each has a part of all lines.
            OnUnavailable::EqualShare => match entry.load.processes(now) {
                Some(processes) => bucket.whole_limit().share(1, processes),
                None => return Self::Unknown,
            },
            OnUnavailable::Error | OnUnavailable::Allow => None,
        };
        part.map_or(Self::None, Self::Of)
    }

    /// A bucket of the process's own, which has that part of what `bucket` has.
    fn of_bucket(inner: &Inner, bucket: &Bucket, here: Limit, now: Timestamp) -> Bucket {
        match inner.config.on_unavailable {
            OnUnavailable::EqualShare => bucket.part_of_whole(here, now),
            _ => bucket.part(here, now),
        }
    }
}

/// What the process answers by itself.
enum Answer {
    Granted(Vec<(LineKey, Local)>, Parts),
    Refused(RetryIn),
    /// The caller gets the error.
    Error(NoAnswer),
}

/// Why the process has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAnswer {
    /// The limit is not known, or how many processes there are.
    Unknown,
    /// The process's share has no room for one call.
    NoShare,
    /// The table would refuse the cost for ever, and so does the share.
    Cost,
}

impl Fallback {
    /// Returns the answer to `asks` while DynamoDB is out; `None` if the answer is the error.
    pub(crate) fn take(
        &self,
        inner: &Arc<Inner>,
        asks: &[Ask],
        patience: Duration,
    ) -> Option<Taken<UnclaimedGrant>> {
        let now = inner.now();
        match inner.config.on_unavailable {
            OnUnavailable::Error => None,
            OnUnavailable::Allow => Some(Taken::Granted(UnclaimedGrant::local(
                Arc::clone(inner),
                Parts::new(),
                now,
                Basis::Unchecked,
            ))),
            OnUnavailable::Share(_) | OnUnavailable::EqualShare => {
                self.take_share(inner, asks, now, patience)
            }
        }
    }

    fn take_share(
        &self,
        inner: &Arc<Inner>,
        asks: &[Ask],
        now: Timestamp,
        patience: Duration,
    ) -> Option<Taken<UnclaimedGrant>> {
        let mut buckets = self.buckets.lock();
        let outage = inner.store.returns();
        if buckets.len() >= inner.config.max_buckets {
            // One of an earlier outage begins again, and a full bucket is the same as one that was never met.
            buckets.retain(|_, local| {
                local.goes_on(outage) && local.bucket.level(now) < local.bucket.limit().capacity()
            });
        }
        match answer(inner, &buckets, asks, now, patience) {
            Answer::Granted(taken, parts) => {
                buckets.extend(taken);
                let inner = Arc::clone(inner);
                Some(Taken::Granted(UnclaimedGrant::local(inner, parts, now, Basis::LocalShare)))
            }
            Answer::Refused(retry) => Some(Taken::Refused(retry)),
            Answer::Error(_) => None,
        }
    }

    /// Outside of an outage: answers one call as an outage would, and forgets the answer. So what answers in
    /// an outage runs all the time, and that there is no share is known before.
    pub(crate) fn rehearse(&self, inner: &Inner, entry: &Entry, now: Timestamp) {
        if !inner.config.on_unavailable.is_share() {
            return;
        }
        let Some(limit) = entry.limit() else { return };
        let (share, cost) = (Payer::Named(entry.payer().cloned()), Some(limit.cost_per_call()));
        let ask = Ask { dimension: entry.asked().clone(), cost, share };
        let answer = answer(inner, &self.buckets.lock(), std::slice::from_ref(&ask), now, Duration::ZERO);
        let (dimension, processes) = (&entry.dimension, entry.load.processes(now));
        tracing::debug!(event = "unavailable.rehearsed", %dimension, ?processes, answer = answer.name());
        let Answer::Error(NoAnswer::NoShare) = answer else { return };
        let capacity = limit.capacity();
        let mut without = self.without.lock();
        if without.len() < MOST_TOLD && without.insert((entry.dimension.clone(), entry.share.clone())) {
            tracing::warn!(event = "unavailable.no_share", %dimension, %capacity, ?processes,
                "if DynamoDB is out, calls of this dimension get the error: this process's share has no room for one \
                 call");
        }
    }

    /// Frees the slots of a holder that is done. Rate tokens stay spent.
    pub(crate) fn give_back(&self, dimension: &Dimension, cost: Cost) {
        let mut buckets = self.buckets.lock();
        // The row of a share of slots is a bucket of its own.
        if let Some(local) = buckets.get_mut(&(dimension.clone(), None))
            && local.bucket.limit().is_concurrent()
        {
            local.give_back(cost);
        }
    }
}

impl Answer {
    const fn name(&self) -> &'static str {
        match self {
            Self::Granted(..) => "granted",
            Self::Refused(_) => "refused",
            Self::Error(NoAnswer::Unknown) => "unknown",
            Self::Error(NoAnswer::NoShare) => "no share",
            Self::Error(NoAnswer::Cost) => "cost",
        }
    }
}

/// Returns the answer to `asks`, and what it leaves of the process's `buckets`.
fn answer(
    inner: &Inner,
    buckets: &HashMap<LineKey, Local>,
    asks: &[Ask],
    now: Timestamp,
    patience: Duration,
) -> Answer {
    let outage = inner.store.returns();
    let (mut taken, mut parts, mut refusal) = (Vec::new(), Parts::new(), None::<RetryIn>);
    for ask in asks {
        let entry = inner.entry_for(ask);
        // A share of an unknown limit cannot be computed.
        let Some(reading) = entry.reading() else { return Answer::Error(NoAnswer::Unknown) };
        let limit = *reading.bucket.limit();
        let held = hold::refusal(&inner.store, inner.config.on_unavailable, &ask.dimension);
        if let Some(retry) = held.filter(|_| !limit.is_concurrent()) {
            // Its request failed at the end of the outage, or alone. What it had here is being charged.
            refusal = refusal.into_iter().chain([retry]).max_by_key(|retry| retry.wait);
            continue;
        }
        let line = (entry.dimension.clone(), reading.bucket.share().cloned());
        let is_same_kind = |local: &&Local| local.bucket.limit().is_concurrent() == limit.is_concurrent();
        let known = buckets.get(&line).filter(|local| local.goes_on(outage)).filter(is_same_kind);
        let local = match (known, Share::new(inner, &entry, &reading.bucket, now)) {
            (Some(local), Share::Of(here)) if *local.bucket.limit() == here => local.clone(),
            // How many processes there are is not learned in an outage, and is forgotten in a long one.
            (Some(local), Share::Unknown) if local.outage == outage => local.clone(),
            (known, Share::Of(here)) => {
                let part = Share::of_bucket(inner, &reading.bucket, here, now);
                let part = Local::new(&entry, outage, part);
                known.map_or(part.clone(), |known| part.with_spent_of(known, now))
            }
            (_, Share::Unknown) => return Answer::Error(NoAnswer::Unknown),
            (_, Share::None) => return Answer::Error(NoAnswer::NoShare),
        };
        // The caller gets the error of the table, and after the outage that of its request.
        // A part of all lines may have room for what the caller's own line never has.
        let cost = ask.cost_in(&limit).ok().filter(|cost| cost.amount() <= limit.capacity());
        let Some(cost) = cost else { return Answer::Error(NoAnswer::Cost) };
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
            Plan::NeverSatisfiable { .. } => return Answer::Error(NoAnswer::Cost),
        }
    }
    refusal.map_or(Answer::Granted(taken, parts), Answer::Refused)
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
