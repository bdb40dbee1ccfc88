//! Slots while DynamoDB is out: which of them a process may let its calls have by itself.
//!
//! The vendor sees what calls hold of the table, and what processes granted by themselves. A slot of the table
//! whose call has ended keeps its lease in the outage: the process hands it on to its next call ("spare"). And
//! the slots that were free at the beginning are divided: each process has its part of them. So there are
//! never more calls at once than there are slots, and after the outage the table knows of all but the latter
//! ([`grant::secure`](crate::grant)).
//!
//! Slots of crashed holders, and of processes whose callers no longer ask, would be lost for the outage. So
//! in a long one, the processes change over to their parts of the whole ([`OwnRow::plan`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sluice_core::{Amount, Bucket, Cost, Dimension, NO_SLOT_WAIT, Reason, Refusal, Timestamp};

use crate::lane::part::Part;

/// What a process knows of the slots of each row, beside the table, by the row's name.
pub(super) type OwnSlots = HashMap<Dimension, OwnRow>;

/// What a process knows of the slots of one row, beside the table.
#[derive(Debug, Default)]
pub(super) struct OwnRow {
    /// Slots of the table whose calls have ended. Their leases are there, and nobody uses them.
    spare: Vec<Part>,
    /// What the process granted by itself of what was free, and whose calls run.
    granted: Amount,
    of_outage: OfOutage,
}

/// What belongs to one outage.
#[derive(Debug, Default)]
struct OfOutage {
    /// The number of returns of DynamoDB before it.
    returns: u32,
    /// What calls hold that have a lease of another call, by the lease's name.
    handed_on: HashMap<String, Amount>,
    /// The process's part of the row, with its part of what was free at the beginning.
    part: Option<Bucket>,
}

/// How much of a row of slots the calls of the process hold of the table. Calls that got a lease of another
/// call in an outage are not among them.
#[derive(Debug, Default)]
pub(super) struct HeldOfTable(AtomicI64);

impl HeldOfTable {
    pub(super) fn amount(&self) -> Amount {
        Amount::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// What a call holds of the table, until it is dropped.
#[derive(Debug)]
pub(crate) struct Holds {
    of: Arc<HeldOfTable>,
    micros: i64,
}

impl Holds {
    pub(super) fn new(of: Arc<HeldOfTable>, cost: Cost) -> Self {
        let micros = cost.amount().micros();
        of.0.fetch_add(micros, Ordering::Relaxed);
        Self { of, micros }
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.micros, Ordering::Relaxed);
    }
}

/// An outage as a process sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// The number of returns of DynamoDB before it.
    pub(super) returns: u32,
    /// For how long DynamoDB has been silent.
    pub(super) lasts: Duration,
    /// How long a lease lasts.
    pub(super) lease: Duration,
}

/// What a call gets.
#[derive(Debug)]
pub(super) enum Taken {
    /// A lease that is spare.
    Spare,
    /// Slots of the process's part, which is this.
    Own(Box<Bucket>),
}

/// Why a call gets nothing.
#[derive(Debug)]
pub(super) enum NotTaken<E> {
    Refused(Refusal),
    /// The process's part has no room for so much.
    TooMuch,
    /// There is no part.
    NoPart(E),
}

const FULL: Refusal = Refusal { wait: NO_SLOT_WAIT, reason: Reason::NoFreeSlot };

impl OwnRow {
    /// What a call that costs `cost` gets now. `held` is what calls hold of the table, and `part` the
    /// process's part of the row at the beginning of an outage.
    ///
    /// In the first lease time, a process hands on what its calls had, and has its part of what was free. Then
    /// it grants nothing beyond its part of the whole; and after half a lease time more, all of that.
    ///
    /// Interleavings that the times stop: a process whose calls have more than its part goes on with all of
    /// that, while another, whose slots it has, grants its whole part; or the latter begins at once, while
    /// calls of the former still run.
    pub(super) fn plan<E>(
        &self,
        cost: Cost,
        outage: Outage,
        held: Amount,
        part: impl FnOnce() -> Result<Bucket, E>,
    ) -> Result<Taken, NotTaken<E>> {
        let begun = self.of_outage.is(outage).then_some(&self.of_outage);
        let part = match begun.and_then(|of| of.part.clone()) {
            Some(part) => Ok(part),
            None => part(),
        };
        let has_spare = self.spare.iter().any(|part| part.cost == cost);
        let amount = cost.amount();
        let Ok(part) = part else {
            // Not longer: others may have begun to grant their parts.
            return match part {
                Err(_) if has_spare && outage.lasts < outage.lease => Ok(Taken::Spare),
                Err(why) => Err(NotTaken::NoPart(why)),
                Ok(_) => Err(NotTaken::TooMuch),
            };
        };
        let whole = part.limit().capacity();
        let handed_on = begun.into_iter().flat_map(|of| of.handed_on.values());
        let running = handed_on.fold(self.granted.plus(held), |sum, amount| sum.plus(*amount));
        if outage.lasts >= outage.lease && running.plus(amount) > whole {
            return Err(NotTaken::Refused(FULL));
        }
        if has_spare {
            return Ok(Taken::Spare);
        }
        if amount > whole {
            return Err(NotTaken::TooMuch);
        }
        let free = match outage.lasts >= outage.lease * 3 / 2 {
            true => whole.minus(running),
            false => part.tokens().minus(self.granted),
        };
        if free < amount { Err(NotTaken::Refused(FULL)) } else { Ok(Taken::Own(Box::new(part))) }
    }

    /// Takes out a lease that is spare, for another call.
    pub(super) fn hand_on(&mut self, cost: Cost, outage: Outage, now: Timestamp) -> Option<Part> {
        let at = self.spare.iter().rposition(|part| part.cost == cost)?;
        let part = self.spare.swap_remove(at);
        let of = self.of_outage.begin(outage);
        of.handed_on.extend(part.lease_name().map(|lease| (lease, cost.amount())));
        Some(Part::handed_on(part, now))
    }

    /// Notes what a call got of the process's part.
    pub(super) fn grant(&mut self, part: Bucket, cost: Cost, outage: Outage) {
        self.of_outage.begin(outage).part = Some(part);
        self.granted = self.granted.plus(cost.amount());
    }

    /// The lease of a call is gone from the table: from now on, only the process knows of its slots.
    pub(super) fn is_alone(&mut self, cost: Cost) {
        self.granted = self.granted.plus(cost.amount());
    }

    /// A call that the process granted slots by itself is over, or has them of the table by now.
    pub(super) fn is_back(&mut self, cost: Cost) {
        self.granted = self.granted.minus(cost.amount()).max(Amount::ZERO);
    }

    /// Keeps what a call of the table held.
    pub(super) fn keep(&mut self, part: Part) {
        if let Some(lease) = part.lease_name() {
            self.of_outage.handed_on.remove(&lease);
        }
        self.spare.push(part);
    }

    /// The outage is over: takes out what is spare, and forgets the outage.
    pub(super) fn end_outage(&mut self) -> Vec<Part> {
        self.of_outage = OfOutage::default();
        std::mem::take(&mut self.spare)
    }

    pub(super) const fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Whether something is left to do after an outage.
    pub(super) fn is_left(&self) -> bool {
        !self.spare.is_empty() || !self.of_outage.handed_on.is_empty() || self.of_outage.part.is_some()
    }

    /// Whether it says no more than that nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_left() && self.granted == Amount::ZERO
    }
}

impl OfOutage {
    const fn is(&self, outage: Outage) -> bool {
        self.returns == outage.returns
    }

    /// What belongs to this outage. What belonged to an earlier one is forgotten.
    fn begin(&mut self, outage: Outage) -> &mut Self {
        if !self.is(outage) {
            *self = Self { returns: outage.returns, ..Self::default() };
        }
        self
    }
}
