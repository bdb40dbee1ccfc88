//! What is granted while DynamoDB is out, if anything: a share of each limit, counted in this process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{
    Bucket, Cost, Dimension, Limit, Plan, RatePlanner, RateReceipt, Reason, Refusal, ShareName, Take,
    Timestamp,
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
mod slots;

use slots::NotTaken;

/// What the process knows of the slots of one row, beside the table.
type OwnRow = slots::OwnRow<Part>;
/// The same of each row, by its name.
type OwnSlots = HashMap<Dimension, OwnRow>;

/// A line of a bucket: of a share, or the common one.
type LineKey = (Dimension, Option<ShareName>);

/// The most lines that are told to have no share: names may come from input.
const MOST_TOLD: usize = 100;

/// The process's own buckets. When an outage first needs one, it has its part of what the table was last seen
/// to have: what the process and others took just before counts. With as many processes as parts, their
/// levels add up to that of the table. After the outage, what was granted here is taken from the table
/// ([`charge`]). Slots come back, and are counted otherwise ([`slots`]).
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    /// Of rate limits. Locked before `slots`.
    buckets: Mutex<HashMap<LineKey, Local>>,
    slots: Mutex<OwnSlots>,
    /// An answer of an outage was logged.
    pub(super) logged: OnceAnOutage,
    /// Whether a task waits for DynamoDB, to charge what was granted.
    is_charging: AtomicBool,
    /// Lines of which the process would have nothing in an outage, each told once.
    without: Mutex<HashSet<LineKey>>,
}

/// A rate bucket of the process's own.
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

    /// What was granted and has not refilled.
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

/// What a call gets of one bucket.
struct Granted {
    entry: Arc<Entry>,
    cost: Cost,
    own: Own,
}

enum Own {
    /// What is left of the process's own bucket, and the start.
    Tokens(LineKey, Box<Local>, Timestamp),
    Slots(slots::Taken),
}

/// What the process answers by itself.
enum Answer {
    Granted(Vec<Granted>),
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
        let (mut buckets, mut slots) = (self.buckets.lock(), self.slots.lock());
        let (returns, outage) = (inner.store.returns(), outage_of(inner));
        if slots.len() >= inner.config.max_buckets {
            slots.retain(|_, row| !row.is_empty(outage));
        }
        if buckets.len() >= inner.config.max_buckets {
            // One of an earlier outage begins again, and a full bucket is the same as one that was never met.
            buckets.retain(|_, local| local.outage == returns && !local.bucket.is_full(now));
        }
        match answer(inner, (&buckets, &slots), asks, now, patience) {
            Answer::Granted(granted) => {
                let take = |Granted { entry, cost, own }| match own {
                    Own::Tokens(line, local, start_at) => {
                        buckets.insert(line, *local);
                        Some(Part::local_tokens(entry, cost, start_at))
                    }
                    Own::Slots(taken) => {
                        let row = slots.entry(entry.dimension.clone()).or_default();
                        match taken {
                            slots::Taken::Spare => row.hand_on(cost).map(|part| Part::handed_on(part, now)),
                            slots::Taken::Own(part) => {
                                row.grant(*part, cost, outage);
                                Some(Part::local_slots(entry, cost, now))
                            }
                        }
                    }
                };
                let parts: Parts = granted.into_iter().filter_map(take).collect();
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
        let own = (&*self.buckets.lock(), &*self.slots.lock());
        let answer = answer(inner, own, std::slice::from_ref(&ask), now, Duration::ZERO);
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

    /// The call of slots that the process granted by itself is over, or has them of the table by now.
    pub(crate) fn end_unleased(&self, inner: &Inner, row: &Dimension, cost: Cost) {
        let mut slots = self.slots.lock();
        let Some(own) = slots.get_mut(row) else { return };
        own.end_unleased(cost);
        if own.is_empty(outage_of(inner)) {
            slots.remove(row);
        }
    }

    /// The lease of a call is gone from the table: from now on, only the process knows of its slots.
    pub(crate) fn begin_unleased(&self, row: &Dimension, cost: Cost) {
        self.slots.lock().entry(row.clone()).or_default().begin_unleased(cost);
    }

    /// Keeps slots of the table that a call gives back while DynamoDB is out, for the next call. Returns false
    /// if they are to go back now. After the outage, those that nobody has go back.
    pub(crate) fn keep(&self, inner: &Inner, part: &Part) -> bool {
        let is_slots = matches!(part.hold, Hold::Slots(_) | Hold::Inline(_));
        let may_grant = inner.config.on_unavailable.is_share() && !inner.config.mode.is_shadow();
        if !is_slots || !may_grant || !inner.store.is_out() {
            return false;
        }
        let mut slots = self.slots.lock();
        // Under the lock: the end of the client takes what is kept after it has begun.
        if inner.background.is_closing() {
            return false;
        }
        let kept = Part { may_be_gone: true, ..part.clone() };
        slots.entry(part.entry.dimension.clone()).or_default().keep(part.cost, kept);
        true
    }

    /// Whether slots are kept that no call has.
    pub(crate) fn has_spare(&self) -> bool {
        self.slots.lock().values().any(OwnRow::has_spare)
    }

    /// Ends the outage of all rows of slots, and returns the slots of the table that no call has.
    pub(crate) fn take_spare(&self, now: Timestamp) -> Parts {
        let mut slots = self.slots.lock();
        let spare = slots.values_mut().flat_map(OwnRow::end_outage);
        let spare = spare.map(|part| Part { start_at: now, ..part }).collect();
        slots.retain(|_, row| !row.is_empty(None));
        spare
    }
}

/// The number of returns of DynamoDB before the outage, if there is one.
fn outage_of(inner: &Inner) -> Option<u32> {
    inner.store.is_out().then(|| inner.store.returns())
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

/// Returns the answer to `asks`, and what it leaves of what is the process's `own`.
fn answer(
    inner: &Inner,
    own: (&HashMap<LineKey, Local>, &OwnSlots),
    asks: &[Ask],
    now: Timestamp,
    patience: Duration,
) -> Answer {
    let (buckets, slots) = own;
    let (mut granted, mut refusal) = (Vec::new(), None::<RetryIn>);
    for ask in asks {
        let entry = inner.entry_for(ask);
        // A share of an unknown limit cannot be computed.
        let Some(reading) = entry.reading() else { return Answer::Error(NoAnswer::Unknown) };
        let limit = *reading.bucket.limit();
        if let Some(retry) = hold::refusal(&inner.store, inner.config.on_unavailable, &ask.dimension) {
            // Its request failed at the end of the outage, or alone. What it had here goes to the table.
            refusal = refusal.into_iter().chain([retry]).max_by_key(|retry| retry.wait);
            continue;
        }
        // The caller gets the error of the table, and after the outage that of its request.
        // A part of all lines may have room for what the caller's own line never has.
        let cost = ask.cost_in(&limit).ok().filter(|cost| cost.amount() <= limit.capacity());
        let Some(cost) = cost else { return Answer::Error(NoAnswer::Cost) };
        let planned = match limit.is_concurrent() {
            true => plan_slots(inner, slots, &entry, &reading.bucket, cost, now),
            false => plan_tokens(inner, buckets, &entry, &reading.bucket, Take { cost, now, patience }),
        };
        match planned {
            Ok(Ok(own)) => granted.push(Granted { entry, cost, own }),
            Ok(Err(refusal_of)) => {
                let retry = refused(&ask.dimension, refusal_of);
                refusal = refusal.into_iter().chain([retry]).max_by_key(|retry| retry.wait);
            }
            Err(no) => return Answer::Error(no),
        }
    }
    refusal.map_or(Answer::Granted(granted), Answer::Refused)
}

/// What a call gets of the process's own tokens; or the refusal; or why there is no answer.
fn plan_tokens(
    inner: &Inner,
    buckets: &HashMap<LineKey, Local>,
    entry: &Arc<Entry>,
    bucket: &Bucket,
    take: Take,
) -> Result<Result<Own, Refusal>, NoAnswer> {
    let (now, outage) = (take.now, inner.store.returns());
    let line = (entry.dimension.clone(), bucket.share().cloned());
    let known = buckets.get(&line).filter(|local| local.outage == outage);
    let local = match (known, Share::new(inner, entry, bucket, now)) {
        (Some(local), Share::Of(here)) if *local.bucket.limit() == here => local.clone(),
        // How many processes there are is not learned in an outage, and is forgotten in a long one.
        (Some(local), Share::Unknown) => local.clone(),
        (known, Share::Of(here)) => {
            let part = Local::new(entry, outage, Share::of_bucket(inner, bucket, here, now));
            known.map_or(part.clone(), |known| part.with_spent_of(known, now))
        }
        (_, Share::Unknown) => return Err(NoAnswer::Unknown),
        (_, Share::None) => return Err(NoAnswer::NoShare),
    };
    match RatePlanner::new(&local.bucket).plan(take) {
        Plan::Write(planned) => {
            let start_at = RateReceipt::new(planned.after.clone(), take.cost).start_at(now);
            let local = Local { outage, bucket: planned.after, ..local };
            Ok(Ok(Own::Tokens(line, Box::new(local), start_at)))
        }
        Plan::Refuse(refusal) => Ok(Err(refusal)),
        Plan::NeverSatisfiable { .. } => Err(NoAnswer::Cost),
    }
}

/// The same for slots.
fn plan_slots(
    inner: &Inner,
    slots: &OwnSlots,
    entry: &Entry,
    bucket: &Bucket,
    cost: Cost,
    now: Timestamp,
) -> Result<Result<Own, Refusal>, NoAnswer> {
    if let Some(until) = bucket.blocked_until().filter(|until| *until > now) {
        return Ok(Err(Refusal { wait: until.since(now), reason: Reason::CoolingDown }));
    }
    let part = || match Share::new(inner, entry, bucket, now) {
        Share::Of(here) => Ok(Share::of_bucket(inner, bucket, here, now)),
        Share::Unknown => Err(NoAnswer::Unknown),
        Share::None => Err(NoAnswer::NoShare),
    };
    let unknown = OwnRow::default();
    let row = slots.get(&entry.dimension).unwrap_or(&unknown);
    match row.plan(cost, outage_of(inner), part) {
        Ok(taken) => Ok(Ok(Own::Slots(taken))),
        Err(NotTaken::Refused(refusal)) => Ok(Err(refusal)),
        Err(NotTaken::TooMuch) => Err(NoAnswer::Cost),
        Err(NotTaken::NoPart(no)) => Err(no),
    }
}
