//! What one transaction takes from each bucket, for several callers.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, Claim, Cost, Lease, Plan, RateBatch, RatePlanner, SlotPlanner, Starts, Timestamp, Update,
    Write,
};
use sluice_table::{Attributes, Cancelled};

use crate::lane::rows::RowAsk;

/// What a transaction takes from one bucket.
pub(super) enum Share<'a> {
    /// The slots of all callers so far; if some of them borrow, what must be free.
    Slots {
        bucket: &'a Arc<Bucket>,
        total: Amount,
        borrows: Option<Amount>,
    },
    Tokens(Box<RateBatch<'a>>),
}

/// A caller of the transaction: its place in the batch, and the sum of costs up to its own for each bucket.
pub(super) struct PlannedCaller {
    pub(super) waiter: usize,
    pub(super) sums_to_caller: Vec<Amount>,
    pub(super) leases: Vec<Option<Lease>>,
}

/// A caller whose part is applied: by this transaction, or by an earlier try whose reply was lost.
pub(super) struct AppliedCaller<'a> {
    pub(super) caller: &'a PlannedCaller,
    /// The leases as they are in the table.
    pub(super) leases: Cow<'a, [Option<Lease>]>,
    /// Whether all leases of the caller exist.
    pub(super) is_whole: bool,
}

impl<'a> AppliedCaller<'a> {
    pub(super) fn now(caller: &'a PlannedCaller) -> Self {
        Self { caller, leases: Cow::Borrowed(&caller.leases), is_whole: true }
    }

    /// A caller whose part an earlier try applied. Its leases end when their rows say so, which is earlier
    /// than this transaction would set. Their cost is what was taken, whatever somebody has written into the
    /// rows since. If a lease no longer exists or cannot be read, the whole counts as a failed try.
    pub(super) fn before(caller: &'a PlannedCaller, own: &[Cancelled]) -> Self {
        let mut rows = own
            .iter()
            .map(|cancelled| cancelled.row.as_ref().and_then(|row| Lease::read(&Attributes(row)).ok()));
        let mut is_whole = true;
        let mut found = |planned: &Lease| match rows.next().flatten() {
            Some(there) => there.that_took(planned.cost()),
            None => {
                is_whole = false;
                planned.clone()
            }
        };
        let leases =
            caller.leases.iter().map(Option::as_ref).map(|planned| planned.map(&mut found)).collect();
        Self { caller, leases, is_whole }
    }

    /// Whether all leases exist and end after `now`; false if the time is not known.
    pub(super) fn lives_at(&self, now: Option<Timestamp>) -> bool {
        self.is_whole && self.leases.iter().flatten().all(|lease| now.is_some_and(|now| lease.ends() > now))
    }
}

/// A transaction, and the state that it leaves.
pub(super) struct SentTransaction {
    /// Each bucket as it will be; a concurrency bucket as it was read.
    pub(super) after: Vec<Arc<Bucket>>,
    pub(super) totals: Vec<Amount>,
    pub(super) updates: Vec<Update>,
    pub(super) served: Vec<PlannedCaller>,
    pub(super) now: Timestamp,
}

impl<'a> Share<'a> {
    pub(super) const fn of_slots(bucket: &'a Arc<Bucket>) -> Self {
        Self::Slots { bucket, total: Amount::ZERO, borrows: None }
    }

    pub(super) fn of_tokens(planner: RatePlanner<'a>, now: Timestamp) -> Self {
        Self::Tokens(Box::new(planner.batch(now, Starts::Pinned)))
    }

    pub(super) fn judge(
        &self,
        cost: Cost,
        leaves: Option<Amount>,
        patience: Duration,
        now: Timestamp,
    ) -> Plan<Amount> {
        match self {
            Self::Slots { bucket, total, .. } => SlotPlanner::new(bucket).judge(cost, *total, leaves, now),
            Self::Tokens(batch) => batch.judge(Claim { cost, patience }),
        }
    }

    /// Whether a caller that asks for `cost` has to be the first of another transaction.
    pub(super) fn is_closed_to(&self, cost: Cost, patience: Duration) -> bool {
        matches!(self, Self::Tokens(batch) if batch.is_closed_to(Claim { cost, patience }))
    }

    pub(super) fn take(
        &mut self,
        cost: Cost,
        leaves: Option<Amount>,
        patience: Duration,
        sum_to_caller: Amount,
    ) {
        match self {
            Self::Slots { total, borrows, .. } => {
                *total = sum_to_caller;
                if leaves.is_some() || borrows.is_some() {
                    let least = sum_to_caller.plus(leaves.unwrap_or_default());
                    *borrows = Some(borrows.map_or(least, |before| before.max(least)));
                }
            }
            Self::Tokens(batch) => batch.take(Claim { cost, patience }, sum_to_caller),
        }
    }

    pub(super) const fn total(&self) -> Amount {
        match self {
            Self::Slots { total, .. } => *total,
            Self::Tokens(batch) => batch.total(),
        }
    }

    pub(super) fn write(self, now: Timestamp) -> Option<(Update, Arc<Bucket>)> {
        match self {
            Self::Slots { bucket, total, borrows } => {
                Some((SlotPlanner::new(bucket).write(total, borrows, now), Arc::clone(bucket)))
            }
            Self::Tokens(batch) => batch.write().map(|planned| (planned.update, Arc::new(planned.after))),
        }
    }
}

/// Returns the sum of costs up to this caller for each bucket; if one refuses, what each says.
pub(super) fn judge(
    shares: &[Share<'_>],
    ask: &RowAsk,
    now: Timestamp,
) -> Result<Vec<Amount>, Vec<Plan<Amount>>> {
    let patience = ask.terms.patience();
    let each = shares.iter().zip(ask.amounts());
    let plans: Vec<_> =
        each.map(|(share, (cost, leaves))| share.judge(cost, leaves, patience, now)).collect();
    let sum_to_caller = |plan: &Plan<Amount>| if let Plan::Write(sum) = plan { Some(*sum) } else { None };
    plans.iter().map(sum_to_caller).collect::<Option<Vec<_>>>().ok_or(plans)
}

impl SentTransaction {
    /// Returns the writes of the buckets in their order, then the leases of each caller.
    pub(super) fn writes(&self) -> Vec<Write> {
        let updates = self.updates.iter().map(|update| Write::Update(update.clone()));
        let leases = self.served.iter().flat_map(|served| served.leases.iter().flatten());
        updates.chain(leases.map(|lease| Write::Put(lease.put()))).collect()
    }
}
