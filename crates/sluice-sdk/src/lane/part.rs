//! What a grant holds of each bucket: tokens, or slots with their lease.

use std::borrow::Cow;
use std::sync::Arc;

use sluice_core::{
    Amount, Bucket, COMMON, Cost, Lease, LeaseId, LimitType, RateReceipt, ShareName, Timestamp,
};
use smallvec::SmallVec;

use crate::api::request::{Ask, Payer};
use crate::lane::entry::Entry;
use crate::lane::local_slots::LocalSlots;

/// The parts of a grant: one part, most often.
pub(crate) type Parts = SmallVec<[Part; 1]>;

/// What a grant holds of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) entry: Arc<Entry>,
    pub(crate) cost: Cost,
    pub(crate) start_at: Timestamp,
    pub(crate) hold: Hold,
    /// What the call used. It is settled when the part is released.
    pub(crate) used: Option<Amount>,
    /// Whether nobody is told if the lease is gone: a renewal has found that already, or the process has kept
    /// the slots in an outage, and does not know whether they were given back before.
    pub(crate) may_be_gone: bool,
    /// The borrower's own line, if the tokens were borrowed: `entry` is then the line that lent them. They go
    /// back there, and the borrower owes what the call uses beyond them.
    pub(crate) borrower: Option<Arc<Entry>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Hold {
    Tokens {
        receipt: RateReceipt,
        lease: Option<Box<Lease>>,
        /// What the call counts as: its cost, until the call is settled.
        counts: Amount,
        /// What of its cost did not go back to its line. If it was borrowed, the borrower paid the rest of what
        /// the call counts as.
        kept: Amount,
        /// Whether the caller has reported what the call used.
        is_settled: bool,
    },
    Slots(Box<Slots>),
    Inline(Box<Inline>),
    /// Tokens that are counted in this process.
    Local,
    /// Slots that this process let a call have by itself.
    LocalSlots(Arc<LocalSlots<Part>>),
    /// Nothing: the bucket would have refused, or could not be asked, and shadow mode let the call through.
    LetThrough {
        /// Whether it would have refused because of a cool-down.
        in_cool_down: bool,
    },
}

/// Slots with a lease row.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) lease: Lease,
}

/// Slots with an inline lease.
#[derive(Clone, Debug)]
pub(crate) struct Inline {
    pub(crate) id: LeaseId,
    pub(crate) ends: Timestamp,
}

/// The line that the tokens of a receipt are of: the name of a share, or `common`.
pub(crate) fn line_of(receipt: &RateReceipt) -> &str {
    receipt.share().map_or(COMMON, ShareName::as_str)
}

impl Part {
    /// Tokens of another share's line.
    pub(crate) fn borrowed(
        lender: &Arc<Entry>,
        borrower: &Arc<Entry>,
        receipt: RateReceipt,
        now: Timestamp,
    ) -> Self {
        let borrower = Some(Arc::clone(borrower));
        Self { borrower, ..Self::tokens(lender, receipt.cost(), receipt, now, None) }
    }

    /// The line whose share pays for the call.
    pub(crate) fn payer(&self) -> &Arc<Entry> {
        self.borrower.as_ref().unwrap_or(&self.entry)
    }

    /// The ask that would take the same again.
    pub(crate) fn ask(&self) -> Ask {
        let share = Payer::Named(self.payer().payer().cloned());
        Ask { dimension: self.entry.asked().clone(), cost: Some(self.cost), share }
    }

    pub(crate) fn tokens(
        entry: &Arc<Entry>,
        cost: Cost,
        receipt: RateReceipt,
        now: Timestamp,
        lease: Option<Lease>,
    ) -> Self {
        let start_at = receipt.start_at(now);
        let hold = Hold::Tokens {
            receipt,
            lease: lease.map(Box::new),
            counts: cost.amount(),
            kept: cost.amount(),
            is_settled: false,
        };
        Self {
            entry: Arc::clone(entry),
            cost,
            start_at,
            hold,
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }

    /// Tokens that are available now.
    pub(crate) const fn from_stock(entry: Arc<Entry>, receipt: RateReceipt, now: Timestamp) -> Self {
        let cost = receipt.cost();
        Self {
            entry,
            cost,
            start_at: now,
            hold: Hold::Tokens {
                receipt,
                lease: None,
                counts: cost.amount(),
                kept: cost.amount(),
                is_settled: false,
            },
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }

    pub(crate) fn slots(entry: &Arc<Entry>, cost: Cost, bucket: Arc<Bucket>, lease: Lease) -> Self {
        let start_at = lease.created_at().unwrap_or_default();
        Self {
            entry: Arc::clone(entry),
            cost,
            start_at,
            hold: Hold::Slots(Box::new(Slots { bucket, lease })),
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }

    pub(crate) fn inline(
        entry: &Arc<Entry>,
        cost: Cost,
        id: LeaseId,
        now: Timestamp,
        ends: Timestamp,
    ) -> Self {
        Self {
            entry: Arc::clone(entry),
            cost,
            start_at: now,
            hold: Hold::Inline(Box::new(Inline { id, ends })),
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }

    /// Slots that the process lets a call have by itself.
    pub(crate) fn local_slots(entry: Arc<Entry>, cost: Cost, now: Timestamp) -> Self {
        Self {
            entry,
            cost,
            start_at: now,
            hold: Hold::LocalSlots(Arc::new(LocalSlots::unleased())),
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }

    /// Slots of the table that a call has given back, for another call.
    pub(crate) fn handed_on(part: Self, now: Timestamp) -> Self {
        let (entry, cost, lease) = (Arc::clone(&part.entry), part.cost, part.lease_name());
        let slots = LocalSlots::of_another(part, lease);
        Self { hold: Hold::LocalSlots(Arc::new(slots)), ..Self::local_slots(entry, cost, now) }
    }

    /// Tokens that are counted in this process.
    pub(crate) const fn local_tokens(entry: Arc<Entry>, cost: Cost, start_at: Timestamp) -> Self {
        Self { entry, cost, start_at, hold: Hold::Local, used: None, may_be_gone: false, borrower: None }
    }

    /// Whether the end of the part takes a write. Tokens without a lease take none, unless the call is to be
    /// charged what it used: they are spent.
    pub(crate) const fn is_held(&self) -> bool {
        self.used.is_some()
            || !matches!(self.hold, Hold::Tokens { lease: None, .. } | Hold::LetThrough { .. })
    }

    /// The call is over: counts the tokens that it keeps because nobody said what it used.
    pub(crate) fn call_ended(&self) {
        if let Hold::Tokens { receipt, is_settled: false, .. } = &self.hold
            && self.used.is_none()
            && receipt.limit_type() == LimitType::Tokens
        {
            let entry = &self.entry;
            entry.unsettled.ended(entry, self.cost.amount());
            // A process with stock ends calls as fast as it can: they are published together, about once a
            // second.
            if entry.stock.is_none() {
                entry.unsettled.publish(entry);
            }
        }
    }

    pub(crate) const fn is_let_through(&self) -> bool {
        matches!(self.hold, Hold::LetThrough { .. })
    }

    /// Whether the vendor's reply to the call says something about a bucket of the table.
    pub(crate) fn is_of_table(&self) -> bool {
        match self.hold {
            Hold::Local | Hold::LocalSlots(_) => false,
            Hold::LetThrough { .. } => self.entry.limit().is_some(),
            _ => true,
        }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.hold {
            Hold::Tokens { lease, .. } => lease.as_deref(),
            Hold::Slots(slots) => Some(&slots.lease),
            Hold::Inline(_) | Hold::Local | Hold::LocalSlots(_) | Hold::LetThrough { .. } => None,
        }
    }

    /// Whether a running call has these slots without a lease.
    pub(crate) fn is_unleased(&self) -> bool {
        matches!(&self.hold, Hold::LocalSlots(slots) if slots.is_unleased())
    }

    /// Whether a running call has these slots, and is not known to have a lease for them.
    pub(crate) fn is_unsecured(&self) -> bool {
        matches!(&self.hold, Hold::LocalSlots(slots) if slots.is_unsecured())
    }

    /// What the call has of the table. For slots that the process granted by itself, that is what was taken for
    /// them since.
    pub(crate) fn of_table(&self) -> Option<Cow<'_, Self>> {
        match &self.hold {
            Hold::LocalSlots(slots) => slots.leased().map(Cow::Owned),
            _ => Some(Cow::Borrowed(self)),
        }
    }

    /// The lease's name, if the part has one.
    pub(crate) fn lease_name(&self) -> Option<String> {
        match &self.hold {
            Hold::Inline(inline) => Some(format!("{}/{}", self.entry.dimension, inline.id.as_str())),
            Hold::LocalSlots(slots) => slots.lease_name(),
            _ => self.lease().map(|lease| lease.key().to_owned()),
        }
    }

    pub(crate) fn lease_ends(&self) -> Option<Timestamp> {
        match &self.hold {
            Hold::Inline(inline) => Some(inline.ends),
            Hold::LocalSlots(slots) => slots.leased().and_then(|part| part.lease_ends()),
            _ => self.lease().map(Lease::ends),
        }
    }
}
